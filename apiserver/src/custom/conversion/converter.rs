//! The webhook that converts the objects of a definition.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use revstore_watch_cache::api::ObjectList;
use revstore_watch_cache::registry::{JsonObject, encode};
use revstore_watch_cache::status::Status;
use revstore_watch_cache::{JsonKind, Object, RequestError, Revision};
use serde::Deserialize;
use serde_json::Value;

use super::review::{Flaw, ReviewVersion, checked, kind_text};
use crate::custom::definition::Definition;
use crate::custom::resource::CustomResource;
use crate::custom::resource::coercion::{adopt, adopt_stored, api_version, complete, version_of};
use crate::webhook::{Clients, DEFAULT_TIMEOUT, new_uid};

/// The largest number of objects in one call of a webhook, and the size of their JSON from which a further one goes into
/// the next call. The objects of a list are converted in several calls, one after the other.
const BATCH_OBJECTS_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The memory of the converted objects of one version of a resource in bytes, which further reads use. Above it all are
/// dropped.
const CONVERTED_BYTES_MAX: usize = 64 << 20;

/// Converts the objects of one version of a definition by its webhook.
#[derive(Debug)]
pub(crate) struct Converter {
    clients: Arc<Clients>,
    resource: CustomResource,
    /// The API version of the resource.
    version: String,
    /// The API version of stored objects.
    stored: String,
    /// Whether objects that are stored in the version of the resource are shown as they are.
    is_verbatim: bool,
    kind: JsonKind,
    /// The bytes with which objects begin that are stored in the version of the resource.
    prefix: String,
    // A leaf lock, held for one look or change.
    converted: Mutex<Converted>,
}

/// Objects that were converted, by their keys, with the revisions of the stored ones.
#[derive(Debug, Default)]
struct Converted {
    objects: HashMap<String, (Revision, Bytes)>,
    bytes: usize,
}

/// The version of a stored object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versioned {
    #[serde(default)]
    api_version: String,
}

impl Converter {
    /// Returns the converter of a version, or `None` if no webhook converts.
    pub(crate) fn new(clients: &Arc<Clients>, resource: &CustomResource) -> Option<Arc<Self>> {
        let definition = resource.definition();
        definition.conversion.as_ref()?;
        let stored = definition.storage_version().unwrap_or(resource.version());
        let version = api_version(definition, resource.version());
        Some(Arc::new(Self {
            clients: clients.clone(),
            kind: JsonKind::new(version.as_str(), &*definition.names.kind),
            prefix: format!("{{\"apiVersion\":\"{version}\","),
            version,
            stored: api_version(definition, stored),
            is_verbatim: resource.is_presented_verbatim(),
            resource: resource.clone(),
            converted: Mutex::default(),
        }))
    }

    /// Returns a stored object in the version of the resource.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub(crate) async fn show(&self, object: Object) -> Result<Object, RequestError> {
        let mut shown = self.show_all(vec![object]).await?;
        shown
            .pop()
            .ok_or_else(|| RequestError::Internal("no object was converted".to_owned()))
    }

    /// Returns an object that was just written in the version of the resource. One that is stored in this version is what
    /// was written.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub(crate) async fn show_written(&self, object: Object) -> Result<Object, RequestError> {
        if self.version == self.stored {
            return Ok(object);
        }
        self.show(object).await
    }

    /// Returns a list of stored objects in the version of the resource.
    ///
    /// # Errors
    /// 500 if the webhook fails, or an object cannot be decoded.
    pub(crate) async fn show_list(&self, list: ObjectList) -> Result<ObjectList, RequestError> {
        let objects: Vec<Object> = list.items.collect::<Result<_, _>>()?;
        let shown = self.show_all(objects).await?;
        let mut new = ObjectList::from_objects(list.revision, &shown);
        new.continue_token = list.continue_token;
        new.remaining_item_count = list.remaining_item_count;
        Ok(new)
    }

    /// Returns stored objects in the version of the resource. Those that have it are completed, which most need not be.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub(crate) async fn show_all(
        &self,
        mut objects: Vec<Object>,
    ) -> Result<Vec<Object>, RequestError> {
        let mut missing = Vec::new();
        {
            let converted = self.converted.lock();
            for (index, object) in objects.iter_mut().enumerate() {
                if self.is_verbatim && self.is_shown(object) {
                    continue;
                }
                match converted.objects.get(object.store_key_str()) {
                    Some((revision, value)) if *revision == object.mod_revision() => {
                        *object = object.with_value(value.clone(), &self.kind);
                    }
                    _ => missing.push(index),
                }
            }
        }
        let mut missing = missing.as_slice();
        while !missing.is_empty() {
            let mut bytes = 0;
            let count = missing.iter().take(BATCH_OBJECTS_MAX).take_while(|index| {
                let fits = bytes < BATCH_BYTES_MAX;
                bytes += objects[**index].value().len();
                fits
            });
            let (batch, rest) = missing.split_at(count.count());
            missing = rest;
            let mut shown = Vec::with_capacity(batch.len());
            let mut others = Vec::new();
            for index in batch {
                let object = self.complete(decoded(&objects[*index])?);
                if is_of(&object, &self.version) {
                    shown.push((*index, object));
                } else {
                    others.push((*index, object));
                }
            }
            let (indexes, others): (Vec<_>, Vec<_>) = others.into_iter().unzip();
            let converted = self.convert_batch(others, &self.version).await?;
            for (index, mut object) in indexes.into_iter().zip(converted) {
                adopt(self.definition(), self.resource.version(), &mut object)?;
                shown.push((index, object));
            }
            for (index, new) in shown {
                let object = &mut objects[index];
                let value = encoded(new);
                self.keep(object, value.clone());
                *object = object.with_value(value, &self.kind);
            }
        }
        Ok(objects)
    }

    /// Returns an object of the version of the resource as it is stored.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub(crate) async fn to_stored(&self, value: Bytes) -> Result<Bytes, RequestError> {
        if self.version == self.stored {
            return Ok(value);
        }
        let mut new = self.convert(parsed(&value)?, &self.stored).await?;
        if let Some(stored) = self.definition().storage_version() {
            adopt_stored(self.definition(), stored, &mut new)?;
        }
        Ok(encoded(new))
    }

    /// Returns an object of the version of the resource as it would be read after it was written.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub(crate) async fn read_back(&self, value: Bytes) -> Result<Bytes, RequestError> {
        if self.version == self.stored {
            return Ok(value);
        }
        let stored = parsed(&self.to_stored(value).await?)?;
        let mut new = self.convert(self.complete(stored), &self.version).await?;
        adopt(self.definition(), self.resource.version(), &mut new)?;
        Ok(encoded(new))
    }

    /// Returns an object in another version, as the webhook makes it.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub(crate) async fn convert(
        &self,
        object: JsonObject,
        target: &str,
    ) -> Result<JsonObject, RequestError> {
        if is_of(&object, target) {
            return Ok(object);
        }
        let mut new = self.convert_batch(vec![object], target).await?;
        new.pop()
            .ok_or_else(|| RequestError::Internal("no object was converted".to_owned()))
    }

    /// Calls the webhook.
    async fn convert_batch(
        &self,
        objects: Vec<JsonObject>,
        target: &str,
    ) -> Result<Vec<JsonObject>, RequestError> {
        let text = |object: &JsonObject, field: &str| {
            let text = object.get(field).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        for object in &objects {
            if version_of(self.definition(), object).is_none() {
                let version = text(object, "apiVersion");
                return Err(RequestError::Unclassified(format!(
                    "request to convert CR from an invalid group/version: {version}"
                )));
            }
        }
        let Some(first) = objects.first() else {
            return Ok(objects);
        };
        let subject = kind_text(&text(first, "apiVersion"), &text(first, "kind"));
        let failed = |reason: String| {
            RequestError::Unclassified(format!("conversion webhook for {subject} {reason}"))
        };
        let answered = self.call(&objects, target).await;
        let converted = answered.map_err(|reason| failed(format!("failed: {reason}")))?;
        if converted.len() != objects.len() {
            return Err(failed(format!(
                "returned {} objects, expected {}",
                converted.len(),
                objects.len()
            )));
        }
        let is_one = objects.len() == 1;
        let mut new = Vec::with_capacity(converted.len());
        for (index, (original, converted)) in objects.iter().zip(converted).enumerate() {
            let checked = checked(original, converted, target);
            new.push(checked.map_err(|flaw| {
                failed(match flaw {
                    Flaw::Object(text) if is_one && text.starts_with("must have") => {
                        format!("returned invalid object: {text}")
                    }
                    Flaw::Object(text) if is_one => {
                        format!("returned invalid object at index {index}: {text}")
                    }
                    Flaw::Object(text) => {
                        format!("returned invalid converted object at index {index}: {text}")
                    }
                    Flaw::Metadata(text) if is_one => format!("returned invalid metadata: {text}"),
                    Flaw::Metadata(text) => {
                        format!("returned invalid metadata in object at index {index}: {text}")
                    }
                })
            })?);
        }
        Ok(new)
    }

    async fn call(&self, objects: &[JsonObject], target: &str) -> Result<Vec<Value>, String> {
        let Some(conversion) = &self.definition().conversion else {
            return Err("there is no webhook".to_owned());
        };
        let endpoint = conversion.endpoint.as_ref().map_err(ToString::to_string)?;
        let version = ReviewVersion::of(&conversion.review_versions);
        let version = version.ok_or("no supported conversion review versions")?;
        let uid = new_uid();
        let body = version.request(&uid, target, objects);
        let answer = self
            .clients
            .call(endpoint, body, DEFAULT_TIMEOUT, None)
            .await;
        let answer = answer.map_err(|error| error.to_string())?;
        version.converted(&uid, &answer.body)
    }

    fn definition(&self) -> &Definition {
        self.resource.definition()
    }

    /// Returns a stored object with the defaults and the fields of the version that it has.
    fn complete(&self, mut object: JsonObject) -> JsonObject {
        let definition = self.definition();
        if let Some(version) = version_of(definition, &object) {
            // An object that does not fit its schema any more is left as it is.
            let _ = complete(definition, version, &mut object, true);
        }
        object
    }

    /// Returns a stored object with the value of its conversion.
    pub(super) fn with_value(&self, stored: &Object, value: Bytes) -> Object {
        stored.with_value(value, &self.kind)
    }

    /// Returns whether an object is stored in the version of the resource.
    fn is_shown(&self, object: &Object) -> bool {
        let value = object.value();
        value.starts_with(self.prefix.as_bytes())
            || serde_json::from_slice::<Versioned>(value)
                .is_ok_and(|object| object.api_version == self.version)
    }

    /// Returns the form in which an object is stored that does not change, if the webhook need not be asked: the object is
    /// stored in the storage version, of which it gets the new defaults.
    pub(super) fn completed(&self, object: &Object) -> Result<Option<Bytes>, RequestError> {
        let object = parsed(object.value())?;
        let version = object.get("apiVersion").and_then(Value::as_str);
        if self.version == self.stored || version != Some(&*self.stored) {
            return Ok(None);
        }
        Ok(Some(encoded(self.complete(object))))
    }

    /// Keeps a converted object.
    fn keep(&self, stored: &Object, value: Bytes) {
        let mut converted = self.converted.lock();
        let key = stored.store_key();
        let known = converted.objects.get(&key);
        if known.is_some_and(|(revision, _)| *revision > stored.mod_revision()) {
            return;
        }
        let replaced = known.map_or(0, |(_, value)| value.len() + key.len());
        converted.bytes += value.len() + key.len();
        converted.bytes -= replaced;
        if converted.bytes > CONVERTED_BYTES_MAX {
            converted.objects.clear();
            converted.bytes = value.len() + key.len();
        }
        let entry = (stored.mod_revision(), value);
        converted.objects.insert(key, entry);
    }
}

/// Returns a stored object with its resource version.
fn decoded(object: &Object) -> Result<JsonObject, RequestError> {
    serde_json::from_slice(&object.to_json())
        .map_err(|error| Status::internal_error(error.to_string()).into())
}

/// Returns an object that a store writes.
fn parsed(value: &[u8]) -> Result<JsonObject, RequestError> {
    serde_json::from_slice(value).map_err(|error| RequestError::Internal(error.to_string()))
}

/// Returns whether an object has an API version.
fn is_of(object: &JsonObject, version: &str) -> bool {
    object.get("apiVersion").and_then(Value::as_str) == Some(version)
}

/// Returns the JSON of an object as stored ones have it: without a resource version.
fn encoded(mut object: JsonObject) -> Bytes {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("resourceVersion");
    }
    encode(&object)
}
