//! The objects of a store in the version of a resource, converted by a webhook.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use revstore_watch_cache::api::{
    DeleteOptions, EventStream, GetOptions, ListOptions, ObjectList, ObjectRef, Storage,
    StoreStats, UpdateFn, UpdateOptions, ValidateFn, WatchOptions,
};
use revstore_watch_cache::{Object, RequestError, ResourceCache, Revision, Scope};

use super::converter::Converter;
use super::watch::ConvertedWatch;

/// The number of attempts of a write whose object is changed by others while the webhook converts it.
const ATTEMPTS_MAX: usize = 8;
/// The text of the error by which a write ends that was computed for another version of the object.
const STALE: &str = "another write was faster than the conversion";

/// A store whose objects a webhook converts when they are read and written.
#[derive(Debug)]
pub(crate) struct ConvertingStorage {
    cache: ResourceCache,
    converter: Arc<Converter>,
}

impl ConvertingStorage {
    pub(crate) fn new(cache: ResourceCache, converter: Arc<Converter>) -> Self {
        Self { cache, converter }
    }

    async fn current(&self, object: &ObjectRef) -> Result<Option<Object>, RequestError> {
        Storage::get(&self.cache, object, &GetOptions::default()).await
    }

    async fn shown(&self, object: Option<&Object>) -> Result<Option<Object>, RequestError> {
        match object {
            Some(object) => self.converter.show(object.clone()).await.map(Some),
            None => Ok(None),
        }
    }
}

fn stale() -> RequestError {
    RequestError::Unclassified(STALE.to_owned())
}

fn is_stale(error: &RequestError) -> bool {
    matches!(error, RequestError::Unclassified(text) if text == STALE)
}

fn busy() -> RequestError {
    RequestError::Internal("the object changes more often than it can be converted".to_owned())
}

impl Storage for ConvertingStorage {
    fn get<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a GetOptions,
    ) -> BoxFuture<'a, Result<Option<Object>, RequestError>> {
        Box::pin(async move {
            let found = Storage::get(&self.cache, object, options).await?;
            self.shown(found.as_ref()).await
        })
    }

    fn list<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<ObjectList, RequestError>> {
        Box::pin(async move {
            let list = self.cache.list(scope, options).await?;
            self.converter.show_list(list).await
        })
    }

    fn watch<'a>(
        &'a self,
        scope: &'a Scope,
        options: &'a WatchOptions,
    ) -> BoxFuture<'a, Result<EventStream, RequestError>> {
        Box::pin(async move {
            let watcher = self.cache.watch(scope, options).await?;
            let watch = ConvertedWatch::new(watcher, self.converter.clone());
            Ok(Box::pin(watch) as EventStream)
        })
    }

    fn create<'a>(
        &'a self,
        object: &'a ObjectRef,
        value: Bytes,
        time_to_live: Option<Duration>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        Box::pin(async move {
            let value = self.converter.to_stored(value).await?;
            let created = Storage::create(&self.cache, object, value, time_to_live).await?;
            self.converter.show_written(created).await
        })
    }

    fn guaranteed_update<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a UpdateOptions,
        mut update: UpdateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        Box::pin(async move {
            for _ in 0..ATTEMPTS_MAX {
                let current = self.current(object).await?;
                let shown = self.shown(current.as_ref()).await?;
                if shown.is_none() && !options.create_if_missing {
                    // The error of an object that does not exist is that of the cache.
                    let none = Box::new(|_: Option<&Object>| Err(stale()));
                    match self.cache.guaranteed_update(object, options, none).await {
                        Err(error) if is_stale(&error) => continue,
                        result => return result,
                    }
                }
                let mut new = update(shown.as_ref())?;
                let completed = match (&shown, &current) {
                    (Some(shown), Some(current)) if new.value == shown.value_bytes() => {
                        self.converter.completed(current)?
                    }
                    _ => None,
                };
                new.value = match completed {
                    Some(completed) => completed,
                    None => self.converter.to_stored(new.value).await?,
                };
                let replaced = current.as_ref().map(Object::revision);
                let write = Box::new(|found: Option<&Object>| {
                    if found.map(Object::revision) == replaced {
                        Ok(new.clone())
                    } else {
                        Err(stale())
                    }
                });
                match self.cache.guaranteed_update(object, options, write).await {
                    Err(error) if is_stale(&error) => {}
                    Err(error) => return Err(error),
                    Ok(written) => return self.converter.show_written(written).await,
                }
            }
            Err(busy())
        })
    }

    fn delete<'a>(
        &'a self,
        object: &'a ObjectRef,
        options: &'a DeleteOptions,
        mut validate: ValidateFn<'a>,
    ) -> BoxFuture<'a, Result<Object, RequestError>> {
        Box::pin(async move {
            if options.ignore_store_read_error {
                return Storage::delete(&self.cache, object, options, validate).await;
            }
            for _ in 0..ATTEMPTS_MAX {
                let current = self.current(object).await?;
                let shown = self.shown(current.as_ref()).await?;
                let check = Box::new(|found: &Object| match (&shown, &current) {
                    (Some(shown), Some(current)) if current.revision() == found.revision() => {
                        validate(shown)
                    }
                    _ => Err(stale()),
                });
                match Storage::delete(&self.cache, object, options, check).await {
                    Err(error) if is_stale(&error) => {}
                    Ok(last) => {
                        let value =
                            shown.map_or_else(|| last.value_bytes(), |shown| shown.value_bytes());
                        return Ok(self.converter.with_value(&last, value));
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(busy())
        })
    }

    fn read_back(&self, value: Bytes) -> BoxFuture<'_, Result<Bytes, RequestError>> {
        Box::pin(self.converter.read_back(value))
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
