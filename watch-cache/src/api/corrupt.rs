//! Corrupt objects: stored objects that cannot be decoded, and how errors name them.

use std::fmt;
use std::sync::Arc;

use revstore_engine::Revision;

use crate::api::status::RequestError;
use crate::encode::object::StoredObject;
use crate::selector::ObjectFilter;
use crate::status::{CauseReason, ResourceName, StatusCause};

/// The maximum number of corrupt objects that the error of a list names, as in kube-apiserver.
const CORRUPT_OBJECTS_MAX: usize = 100;

/// An object in the store that cannot be decoded. Shown as kube-apiserver shows it.
///
/// A corrupt object can be overwritten neither by an update nor by a create. To remove it, delete it
/// with [`DeleteOptions::ignore_store_read_error`](crate::api::DeleteOptions).
// WC-205.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorruptObject {
    /// The key in the store.
    pub key: String,
    /// The revision that wrote the corrupt version.
    pub revision: Revision,
    /// The error of the [`Kind`](crate::encode::Kind) that tried to decode it.
    pub reason: String,
}

impl CorruptObject {
    /// Returns the failure without the key.
    pub(crate) fn failure(&self) -> String {
        let Self {
            revision, reason, ..
        } = self;
        format!("object not decodable revision={revision}: {reason}")
    }

    /// Returns the cause that names the object in the details of a status.
    pub(crate) fn cause(&self) -> StatusCause {
        StatusCause {
            field: self.key.clone(),
            ..StatusCause::new(CauseReason::UNEXPECTED_RESPONSE, self.to_string())
        }
    }
}

impl fmt::Display for CorruptObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "StorageError: corrupt object, Code: 7, Key: {}, ResourceVersion: 0, \
             AdditionalErrorMsg: {}",
            self.key,
            self.failure()
        )
    }
}

/// The corrupt objects of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorruptList {
    /// The listed resource.
    pub resource: ResourceName,
    /// The corrupt objects, at most 100.
    pub objects: Vec<CorruptObject>,
    /// Whether there are more of them.
    pub more: bool,
}

impl CorruptList {
    pub(crate) fn of(filter: &ObjectFilter) -> Self {
        Self {
            resource: filter.resource().clone(),
            ..Self::default()
        }
    }

    /// Adds an object. Returns `false` if the error names no further objects, so that the list ends.
    pub(crate) fn add(&mut self, object: CorruptObject) -> bool {
        self.more = self.objects.len() == CORRUPT_OBJECTS_MAX;
        if !self.more {
            self.objects.push(object);
        }
        !self.more
    }

    /// Fails with [`RequestError::CorruptList`] unless the list is empty.
    pub(crate) fn check(&mut self) -> Result<(), RequestError> {
        if self.objects.is_empty() {
            Ok(())
        } else {
            Err(RequestError::CorruptList(Box::new(std::mem::take(self))))
        }
    }

    /// Returns the causes that name the objects in the details of a status.
    pub(crate) fn causes(&self) -> Vec<StatusCause> {
        let too_many = self.more.then(|| {
            let message = "too many errors, the list is truncated";
            StatusCause::new(CauseReason::TOO_MANY, message)
        });
        let causes = self.objects.iter().map(CorruptObject::cause);
        causes.chain(too_many).collect()
    }
}

/// Returns `object`, or [`RequestError::Corrupt`] if it could not be decoded.
pub(crate) fn decodable(object: Arc<StoredObject>) -> Result<Arc<StoredObject>, RequestError> {
    match object.corruption() {
        None => Ok(object),
        Some(corrupt) => Err(RequestError::Corrupt(Box::new(corrupt))),
    }
}
