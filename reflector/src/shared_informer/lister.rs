//! Listers: the objects of a store as values of a Rust type.
//!
//! Corresponds to the generated listers of client-go. Any type that implements `Deserialize` works:
//! those of `k8s-openapi`, those that `kube` derives, and one's own.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use revstore_watch_cache::selector::LabelSelector;
use revstore_watch_cache::{Object, Revision};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::delta_queue::FinalState;
use super::handler::EventHandler;
use super::store::ObjectStore;

/// The number of decoded objects, above twice those in the store, with which a lister forgets those
/// that are no longer in the store.
const FORGET_ABOVE: usize = 64;

/// An object that is not a value of the type of a [`Lister`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unable to decode {key} at revision {revision}: {message}")]
#[non_exhaustive]
pub struct DecodeFailure {
    /// The key of the object: `namespace/name`, or `name`.
    pub key: String,
    /// The revision of the object.
    pub revision: Revision,
    /// The error of the decoder.
    pub message: String,
}

/// Objects of a [`Lister`], ascending by key, and those that could not be decoded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed<T> {
    /// The decoded objects.
    pub objects: Vec<Arc<T>>,
    /// The objects that are in the store and are not values of the type.
    pub failures: Vec<DecodeFailure>,
}

/// The objects of an [`ObjectStore`] as values of type `T`. Clones share their decoded objects.
///
/// An object is decoded, with its resource version, when it is first read, and again when it has
/// changed. The lister keeps the result, so that a repeated read costs one lookup. An object that is
/// no value of `T` is an error of each read that returns it: it is never left out silently.
///
/// ```
/// use std::sync::Arc;
/// use revstore_reflector::{InformerHandle, Lister};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Pod {
///     spec: Spec,
/// }
/// #[derive(Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct Spec {
///     node_name: Option<String>,
/// }
///
/// fn pending_pods(informer: &InformerHandle) -> Result<usize, revstore_reflector::DecodeFailure> {
///     let pods: Lister<Pod> = Lister::new(informer.store().clone());
///     let listed = pods.list();
///     if let Some(failure) = listed.failures.first() {
///         return Err(failure.clone());
///     }
///     Ok(listed.objects.iter().filter(|pod| pod.spec.node_name.is_none()).count())
/// }
/// ```
pub struct Lister<T> {
    store: ObjectStore,
    /// The decoded objects by key, each with the object that it was decoded from. The lock is held to
    /// copy references; objects are decoded without it.
    decoded: Arc<RwLock<HashMap<String, Decoded<T>>>>,
}

type DecodeResult<T> = Result<Arc<T>, DecodeFailure>;

struct Decoded<T> {
    object: Object,
    result: DecodeResult<T>,
}

impl<T> Clone for Lister<T> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            decoded: self.decoded.clone(),
        }
    }
}

impl<T> fmt::Debug for Lister<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Lister<T> {
    /// Creates a lister of the objects of a store.
    pub fn new(store: ObjectStore) -> Self {
        Self {
            store,
            decoded: Arc::default(),
        }
    }

    /// Returns the store.
    pub fn store(&self) -> &ObjectStore {
        &self.store
    }

    /// Returns the object with a key: `namespace/name`, or `name`.
    ///
    /// # Errors
    /// [`DecodeFailure`] if it is not a value of the type.
    pub fn get(&self, key: &str) -> Result<Option<Arc<T>>, DecodeFailure> {
        if let Some(object) = self.store.get(key) {
            return self.decode(&object).map(Some);
        }
        self.decoded.write().remove(key);
        Ok(None)
    }

    /// Returns all objects.
    pub fn list(&self) -> Listed<T> {
        self.decode_all(self.store.list())
    }

    /// Returns the objects of a namespace.
    pub fn namespace(&self, namespace: &str) -> Listed<T> {
        self.decode_all(self.store.namespace(namespace))
    }

    /// Returns the objects with matching labels.
    pub fn matching(&self, labels: &LabelSelector) -> Listed<T> {
        self.decode_all(self.store.matching(labels))
    }

    /// Returns the objects with a value in an index of the store.
    pub fn by_index(&self, index: &str, value: &str) -> Listed<T> {
        self.decode_all(self.store.by_index(index, value))
    }

    /// Returns an object as a value of the type, for example one that a subscription delivered.
    ///
    /// # Errors
    /// [`DecodeFailure`] if it is not a value of the type.
    pub fn decode(&self, object: &Object) -> Result<Arc<T>, DecodeFailure> {
        let key = object.store_key();
        if let Some(known) = self.decoded.read().get(&key)
            && is_same(&known.object, object)
        {
            return known.result.clone();
        }
        let result = match serde_json::from_slice(&object.to_json()) {
            Ok(value) => Ok(Arc::new(value)),
            Err(error) => Err(DecodeFailure {
                key: key.clone(),
                revision: object.revision(),
                message: error.to_string(),
            }),
        };
        // Only objects of the store are kept, so that old versions are not.
        let is_current = |current: &Object| is_same(current, object);
        if self.store.get(&key).as_ref().is_some_and(is_current) {
            let (object, kept) = (object.clone(), result.clone());
            let previous = {
                let mut decoded = self.decoded.write();
                self.forget_deleted(&mut decoded);
                decoded.insert(
                    key,
                    Decoded {
                        object,
                        result: kept,
                    },
                )
            };
            drop(previous);
        }
        result
    }

    /// Returns a handler of closures over values of the type. See [`TypedHandlers`].
    pub fn handlers(&self) -> TypedHandlers<T> {
        TypedHandlers {
            lister: self.clone(),
            add: None,
            update: None,
            delete: None,
            failure: None,
        }
    }

    fn decode_all(&self, objects: Vec<Object>) -> Listed<T> {
        let mut listed = Listed {
            objects: Vec::with_capacity(objects.len()),
            failures: Vec::new(),
        };
        for object in objects {
            match self.decode(&object) {
                Ok(value) => listed.objects.push(value),
                Err(failure) => listed.failures.push(failure),
            }
        }
        listed
    }

    /// Removes objects that are no longer in the store, if there may be many of them.
    fn forget_deleted(&self, decoded: &mut HashMap<String, Decoded<T>>) {
        if decoded.len() > 2 * self.store.len() + FORGET_ABOVE {
            decoded.retain(|key, _| self.store.get(key).is_some());
        }
    }
}

fn is_same(a: &Object, b: &Object) -> bool {
    Arc::ptr_eq(a.stored(), b.stored()) && a.revision() == b.revision()
}

/// An [`EventHandler`] of closures over values of type `T`, created by [`Lister::handlers`]. Those that
/// are not set do nothing.
///
/// An object that is not a value of the type leads to a call of `on_failure` instead. If only the
/// previous version of a changed object is not, that leads to a call of `on_add`.
#[must_use = "a handler does nothing before it is added to an informer"]
pub struct TypedHandlers<T> {
    lister: Lister<T>,
    add: Option<AddFn<T>>,
    update: Option<UpdateFn<T>>,
    delete: Option<DeleteFn<T>>,
    failure: Option<FailureFn>,
}

type AddFn<T> = Box<dyn FnMut(&Arc<T>, bool) + Send>;
type UpdateFn<T> = Box<dyn FnMut(&Arc<T>, &Arc<T>) + Send>;
type FailureFn = Box<dyn FnMut(&DecodeFailure) + Send>;
type DeleteFn<T> = Box<dyn FnMut(&FinalState<Arc<T>>) + Send>;

impl<T> fmt::Debug for TypedHandlers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedHandlers").finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> TypedHandlers<T> {
    /// Sets the closure for a new object; its second argument is as in
    /// [`Notification::Added`](crate::Notification::Added).
    pub fn on_add(self, call: impl FnMut(&Arc<T>, bool) + Send + 'static) -> Self {
        Self {
            add: Some(Box::new(call)),
            ..self
        }
    }

    /// Sets the closure for a changed object, with the previous and the current object.
    pub fn on_update(self, call: impl FnMut(&Arc<T>, &Arc<T>) + Send + 'static) -> Self {
        Self {
            update: Some(Box::new(call)),
            ..self
        }
    }

    /// Sets the closure for a deleted object.
    pub fn on_delete(self, call: impl FnMut(&FinalState<Arc<T>>) + Send + 'static) -> Self {
        Self {
            delete: Some(Box::new(call)),
            ..self
        }
    }

    /// Sets the closure for an object that is not a value of the type.
    pub fn on_failure(self, call: impl FnMut(&DecodeFailure) + Send + 'static) -> Self {
        Self {
            failure: Some(Box::new(call)),
            ..self
        }
    }

    fn decoded(&mut self, object: &Object) -> Option<Arc<T>> {
        let failure = match self.lister.decode(object) {
            Ok(value) => return Some(value),
            Err(failure) => failure,
        };
        if let Some(call) = &mut self.failure {
            call(&failure);
        }
        None
    }
}

impl<T: DeserializeOwned + Send + Sync> EventHandler for TypedHandlers<T> {
    fn on_add(&mut self, object: &Object, initial: bool) {
        if let (Some(value), Some(call)) = (self.decoded(object), &mut self.add) {
            call(&value, initial);
        }
    }

    fn on_update(&mut self, old: &Object, new: &Object) {
        // The failure of the previous version was reported when it was new.
        let old = self.lister.decode(old).ok();
        let Some(new) = self.decoded(new) else { return };
        match (old, &mut self.update, &mut self.add) {
            (Some(old), Some(call), _) => call(&old, &new),
            (None, _, Some(call)) => call(&new, false),
            _ => {}
        }
    }

    fn on_delete(&mut self, state: &FinalState) {
        let Some(value) = self.decoded(state.object()) else {
            return;
        };
        if let Some(call) = &mut self.delete {
            call(&match state {
                FinalState::Known(_) => FinalState::Known(value),
                FinalState::Unknown(_) => FinalState::Unknown(value),
            });
        }
    }
}
