//! Writes: create, update and delete with a compare on the mod revision. A write is repeated if the
//! version on which it is based is stale. Corresponds to Kubernetes' `GuaranteedUpdate`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::corrupt::decodable;
use crate::api::keys::ObjectRef;
use crate::api::status::{Conflict, InvalidDelete, RequestError};
use crate::api::storage::{
    DeleteOptions, Preconditions, Update, UpdateFn, UpdateOptions, ValidateFn,
};
use crate::encode::object::{Object, StoredObject};
use crate::source::raw_store::{RawStore, internal};
use crate::source::{ConditionalWrite, ListRequest, StoredKeyValue, WriteAction, WriteOutcome};
use crate::status::ResourceName;

/// The maximum number of attempts of a write before it fails with [`Conflict::Modified`].
const ATTEMPTS_MAX: usize = 128;

/// The version of an object on which a write is based.
struct BaseVersion {
    object: Option<Object>,
    /// Whether the version was read from the source for this write. A cached version may be stale, so
    /// an error is final only for a fresh version (WC-105).
    fresh: bool,
}

/// The decision about a write.
enum Decision {
    /// The object stays unchanged.
    Keep(Object),
    /// The object is replaced or deleted.
    Write(WriteAction),
}

impl RawStore {
    pub(crate) async fn create_object(
        &self,
        object: &ObjectRef,
        value: Bytes,
        time_to_live: Option<Duration>,
    ) -> Result<Object, RequestError> {
        let key = self.config.layout.key(object)?;
        let stored = StoredKeyValue {
            key: key.clone(),
            value: value.clone(),
            create_revision: Revision(0),
            mod_revision: Revision(0),
        };
        let mut new = StoredObject::decode(stored, &*self.config.kind, &self.config.layout);
        if has_version(&new) {
            return Err(RequestError::version_on_create());
        }
        let action = WriteAction::Put {
            value,
            time_to_live,
        };
        match self.write(&key, None, action, &[]).await? {
            WriteOutcome::Done(revision) => {
                new.set_created(revision);
                Ok(Object::new(Arc::new(new)))
            }
            WriteOutcome::Differs(_) => Err(RequestError::AlreadyExists {
                resource: (*self.config.name).clone(),
                name: object.name.clone(),
            }),
        }
    }

    pub(crate) async fn update_object(
        &self,
        object: &ObjectRef,
        options: &UpdateOptions,
        assumed: Option<Object>,
        mut update: UpdateFn<'_>,
    ) -> Result<Object, RequestError> {
        let (preconditions, may_be_missing) = (&options.preconditions, options.create_if_missing);
        self.write_decided(object, assumed, &options.others, |current| {
            self.check(object, current, preconditions, may_be_missing)?;
            let Update {
                value,
                time_to_live,
            } = update(current)?;
            Ok(match current {
                // WC-204: an unchanged value is not written.
                Some(current) if value == current.value() => Decision::Keep(current.clone()),
                _ => Decision::Write(WriteAction::Put {
                    value,
                    time_to_live,
                }),
            })
        })
        .await
    }

    pub(crate) async fn delete_object(
        &self,
        object: &ObjectRef,
        options: &DeleteOptions,
        assumed: Option<Object>,
        mut validate: ValidateFn<'_>,
    ) -> Result<Object, RequestError> {
        let preconditions = &options.preconditions;
        if options.ignore_store_read_error && *preconditions != Preconditions::default() {
            let invalid = InvalidDelete::Preconditions;
            return Err(RequestError::InvalidDelete(Box::new(invalid)));
        }
        self.write_decided(object, assumed, &options.others, |current| {
            if !options.ignore_store_read_error {
                self.check(object, current, preconditions, false)
                    .map_err(|error| self.of_deletion(error))?;
            } else if current.is_none_or(|current| current.decode_error().is_none()) {
                let invalid = InvalidDelete::NotCorrupt {
                    resource: (*self.config.name).clone(),
                    name: object.name.clone(),
                };
                return Err(RequestError::InvalidDelete(Box::new(invalid)));
            }
            current.map_or(Ok(()), &mut validate)?;
            Ok(Decision::Write(WriteAction::Delete))
        })
        .await
    }

    /// Calls `decide` with the current version of an object and writes the result. Repeats both if
    /// another write has changed the object meanwhile. An error, and a decision not to write, are
    /// final only for a fresh version (WC-105).
    async fn write_decided(
        &self,
        object: &ObjectRef,
        assumed: Option<Object>,
        others: &[ConditionalWrite],
        mut decide: impl FnMut(Option<&Object>) -> Result<Decision, RequestError>,
    ) -> Result<Object, RequestError> {
        let key = self.config.layout.key(object)?;
        let mut base = self.base_version(&key, assumed).await?;
        for _ in 0..ATTEMPTS_MAX {
            let current = base.object.as_ref();
            let action = match decide(current) {
                Ok(Decision::Write(action)) => action,
                _ if !base.fresh => {
                    base = self.read_version(&key).await?;
                    continue;
                }
                Ok(Decision::Keep(object)) => return Ok(object),
                Err(error) => return Err(error),
            };
            let expected = current.map(|current| current.stored().mod_revision());
            let outcome = self.write(&key, expected, action.clone(), others).await?;
            match (outcome, action) {
                (WriteOutcome::Done(revision), WriteAction::Put { value, .. }) => {
                    return Ok(self.written(key, value, current, revision));
                }
                (WriteOutcome::Done(revision), WriteAction::Delete) => {
                    let last = current.ok_or_else(|| self.not_found(object))?;
                    return Ok(Object::shown_at(last.stored().clone(), revision));
                }
                (WriteOutcome::Differs(found), _) => {
                    if found.as_ref().map(|found| found.mod_revision) == expected {
                        return Err(self.conflict(object, Conflict::Others));
                    }
                    base = self.fresh_version(found);
                }
            }
        }
        Err(self.conflict(object, Conflict::Modified))
    }

    async fn write(
        &self,
        key: &Bytes,
        expected: Option<Revision>,
        action: WriteAction,
        others: &[ConditionalWrite],
    ) -> Result<WriteOutcome, RequestError> {
        let write = ConditionalWrite {
            key: key.clone(),
            expected,
            action,
        };
        let outcome = self.source.write_with(write, others.to_vec()).await;
        outcome.map_err(|error| internal(&error))
    }

    async fn base_version(
        &self,
        key: &Bytes,
        assumed: Option<Object>,
    ) -> Result<BaseVersion, RequestError> {
        match assumed {
            Some(object) => Ok(BaseVersion {
                object: Some(object),
                fresh: false,
            }),
            None => self.read_version(key).await,
        }
    }

    async fn read_version(&self, key: &Bytes) -> Result<BaseVersion, RequestError> {
        let request = ListRequest {
            range: revstore_engine::KeyRange::One(key.clone()),
            at: None,
            limit: None,
        };
        let page = self.source.list(request).await;
        let page = page.map_err(|error| internal(&error))?;
        Ok(self.fresh_version(page.items.into_iter().next()))
    }

    fn fresh_version(&self, stored: Option<StoredKeyValue>) -> BaseVersion {
        let decoder = self.config.decoder();
        BaseVersion {
            object: stored.map(|stored| Object::new(decoder.decode(stored))),
            fresh: true,
        }
    }

    /// Returns the object after a put.
    fn written(
        &self,
        key: Bytes,
        value: Bytes,
        previous: Option<&Object>,
        revision: Revision,
    ) -> Object {
        let stored = StoredKeyValue {
            key,
            value,
            create_revision: previous.map_or(revision, |previous| previous.create_revision()),
            mod_revision: revision,
        };
        Object::new(self.config.decoder().decode(stored))
    }

    /// Fails if the object does not exist and `may_be_missing` is not set, if it is corrupt, or if a
    /// precondition does not hold.
    fn check(
        &self,
        object: &ObjectRef,
        current: Option<&Object>,
        preconditions: &Preconditions,
        may_be_missing: bool,
    ) -> Result<(), RequestError> {
        let Some(current) = current else {
            return if may_be_missing {
                Ok(())
            } else {
                Err(self.not_found(object))
            };
        };
        decodable(current.stored().clone())?;
        preconditions
            .check(current)
            .map_err(|reason| self.conflict(object, reason))
    }

    /// Returns the error of a deletion for that of an update with the same precondition.
    fn of_deletion(&self, error: RequestError) -> RequestError {
        let RequestError::Conflict { name, reason, .. } = error else {
            return error;
        };
        let kind = &self.config.kind;
        RequestError::Conflict {
            resource: ResourceName::new(kind.group(), kind.kind()),
            name,
            reason: Box::new(reason.of_deletion()),
        }
    }

    pub(crate) fn not_found(&self, object: &ObjectRef) -> RequestError {
        RequestError::NotFound {
            resource: (*self.config.name).clone(),
            name: object.name.clone(),
        }
    }

    fn conflict(&self, object: &ObjectRef, reason: Conflict) -> RequestError {
        RequestError::Conflict {
            resource: (*self.config.name).clone(),
            name: object.name.clone(),
            reason: Box::new(reason),
        }
    }
}

/// Returns whether the value of an object contains a resource version (WC-443).
fn has_version(object: &StoredObject) -> bool {
    let span = object
        .attributes()
        .and_then(|attributes| attributes.resource_version_span);
    let version = span.and_then(|span| object.value().get(span.start as usize..span.end as usize));
    version.is_some_and(|version| !matches!(version, b"" | b"\"\"" | b"\"0\"" | b"null"))
}
