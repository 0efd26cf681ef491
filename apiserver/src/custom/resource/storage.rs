//! The objects of a store in a version that no webhook converts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::future::ready;
use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use revstore_watch_cache::api::{
    DeleteOptions, EventStream, GetOptions, ListOptions, ObjectList, ObjectRef, Storage,
    StoreStats, Update, UpdateFn, UpdateOptions, ValidateFn, WatchOptions,
};
use revstore_watch_cache::registry::{JsonObject, encode};
use revstore_watch_cache::{
    JsonKind, Object, RequestError, ResourceCache, Revision, Scope, WatchEvent,
};

use super::CustomResource;
use crate::custom::definition::Definition;

/// The largest object that is remembered, in bytes.
const LAST_BYTES_MAX: usize = 64 * 1024;

/// A store whose objects have the fields and the defaults of a version when they are read, and those of the storage
/// version when they are written.
#[derive(Clone, Debug)]
pub(crate) struct PresentedStorage {
    cache: ResourceCache,
    resource: CustomResource,
    kind: JsonKind,
    /// The last object that was read for a write, as it is stored and as it is shown: a write reads it more than once. Held
    /// to look it up or to replace it.
    last: Arc<Mutex<Option<[Object; 2]>>>,
}

impl PresentedStorage {
    pub(crate) fn new(cache: ResourceCache, resource: CustomResource) -> Self {
        let definition: &Definition = resource.definition();
        let api_version = format!("{}/{}", definition.group, resource.version().name);
        Self {
            kind: JsonKind::new(api_version, &*definition.names.kind),
            cache,
            resource,
            last: Arc::default(),
        }
    }

    /// Returns an object as it is shown for a write, from memory if it is the one that was asked for before.
    fn shown_for_write(&self, object: &Object) -> Result<Object, RequestError> {
        let is_same = |stored: &Object| {
            stored.revision() == object.revision() && stored.key() == object.key()
        };
        if let Some([_, shown]) = self.last.lock().as_ref().filter(|[last, _]| is_same(last)) {
            return Ok(shown.clone());
        }
        let shown = self.shown(object)?;
        if shown.value().len() <= LAST_BYTES_MAX {
            let before = self.last.lock().replace([object.clone(), shown.clone()]);
            // Freed when nobody waits for it.
            drop(before);
        }
        Ok(shown)
    }

    fn shown(&self, object: &Object) -> Result<Object, RequestError> {
        let mut decoded = parsed(object.value())?;
        // An object that does not fit its schema any more is shown as it is.
        let _ = self.resource.present(&mut decoded);
        Ok(object.with_value(encode(&decoded), &self.kind))
    }

    /// Returns an object that was just written as it is read. One of the storage version is what was written.
    fn written(&self, object: Object) -> Result<Object, RequestError> {
        if self.resource.is_storage_version() {
            return Ok(object);
        }
        self.shown(&object)
    }

    fn to_stored(&self, value: Bytes) -> Result<Bytes, RequestError> {
        if self.resource.is_storage_version() {
            return Ok(value);
        }
        let mut object = parsed(&value)?;
        self.resource.to_stored(&mut object)?;
        Ok(encode(&object))
    }
}

fn parsed(value: &[u8]) -> Result<JsonObject, RequestError> {
    serde_json::from_slice(value).map_err(|error| RequestError::Internal(error.to_string()))
}

impl Storage for PresentedStorage {
    fn assumed(&self, object: &ObjectRef) -> Option<Object> {
        let assumed = Storage::assumed(&self.cache, object)?;
        self.shown_for_write(&assumed).ok()
    }

    fn get<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a GetOptions,
    ) -> BoxFuture<'a, Result<Option<Object>, RequestError>> {
        Box::pin(async move {
            let found = Storage::get(&self.cache, object, options).await?;
            found.map(|found| self.shown(&found)).transpose()
        })
    }

    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<ObjectList, RequestError>> {
        Box::pin(async move {
            let list = self.cache.list(scope, options).await?;
            let objects = list.items.map(|object| self.shown(&object?));
            let objects: Vec<Object> = objects.collect::<Result<_, _>>()?;
            let mut shown = ObjectList::from_objects(list.revision, &objects);
            shown.continue_token = list.continue_token;
            shown.remaining_item_count = list.remaining_item_count;
            Ok(shown)
        })
    }

    fn watch<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<EventStream, RequestError>> {
        Box::pin(async move {
            let watcher = self.cache.watch(scope, options).await?;
            let storage = self.clone();
            let shown = watcher.map(move |event| match event {
                WatchEvent::Object { event, object, .. } => match storage.shown(&object) {
                    Ok(object) => WatchEvent::unshared(event, object),
                    Err(error) => WatchEvent::Error(error),
                },
                other => other,
            });
            Ok(Box::pin(shown) as EventStream)
        })
    }

    fn create<'a>(
        &'a self,
        object: &'a ObjectRef,
        value: Bytes,
        time_to_live: Option<Duration>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        Box::pin(async move {
            let value = self.to_stored(value)?;
            let created = Storage::create(&self.cache, object, value, time_to_live).await?;
            self.written(created)
        })
    }

    fn guaranteed_update<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a UpdateOptions,
        mut update: UpdateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        let update = Box::new(
            move |current: Option<&Object>| -> Result<Update, RequestError> {
                let shown = current.map(|current| self.shown_for_write(current));
                let shown = shown.transpose()?;
                let mut new = update(shown.as_ref())?;
                new.value = self.to_stored(new.value)?;
                Ok(new)
            },
        );
        Box::pin(async move {
            let written = self.cache.guaranteed_update(object, options, update);
            self.written(written.await?)
        })
    }

    fn delete<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a DeleteOptions,
        mut validate: ValidateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        if options.ignore_store_read_error {
            return Storage::delete(&self.cache, object, options, validate);
        }
        let check = Box::new(move |found: &Object| validate(&self.shown(found)?));
        let deleted = Storage::delete(&self.cache, object, options, check);
        Box::pin(deleted.map(|last| self.shown(&last?)))
    }

    fn read_back(&self, value: Bytes) -> BoxFuture<'_, Result<Bytes, RequestError>> {
        let read = || {
            if self.resource.is_storage_version() {
                return Ok(value);
            }
            let mut object = parsed(&value)?;
            self.resource.to_stored(&mut object)?;
            let _ = self.resource.present(&mut object);
            Ok(encode(&object))
        };
        Box::pin(ready(read()))
    }

    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, RequestError>> {
        self.cache.current_revision()
    }

    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, RequestError>> {
        self.cache.stats()
    }

    fn is_ready(&self) -> bool {
        Storage::is_ready(&self.cache)
    }
}
