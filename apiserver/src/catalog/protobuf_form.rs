//! Objects of built-in kinds as protobuf.

use std::sync::Arc;

use revstore_kinds as kinds;
use revstore_watch_cache::encode::{ControlEvent, Form, ListHead};
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::{EventType, Object};
use serde_json::{Value, json};

/// Objects of built-in kinds as protobuf, made of another form in JSON. Used for watches: objects and lists are
/// converted as a whole.
#[derive(Debug)]
pub(crate) struct ProtobufForm {
    /// The form in JSON.
    pub(crate) json: Arc<dyn Form>,
    /// The API version and the kind of bookmarks.
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

impl ProtobufForm {
    /// Writes an event with an object, which is a message behind its length.
    fn write(event_type: &str, object: &Value, out: &mut Vec<u8>) {
        // An object that cannot be written is left out of its event. The tests of `kinds` write all kinds.
        let object = kinds::to_protobuf(object).unwrap_or_default();
        let message = kinds::watch_event(event_type, &object);
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&message);
    }

    fn value(&self, object: &Object) -> Value {
        let mut json = Vec::new();
        self.json.write_object(object, &mut json);
        serde_json::from_slice(&json).unwrap_or_default()
    }
}

impl Form for ProtobufForm {
    fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
        out.extend(kinds::to_protobuf(&self.value(object)).unwrap_or_default());
    }

    fn write_event(&self, event: EventType, object: &Object, _: bool, out: &mut Vec<u8>) {
        Self::write(event.as_str(), &self.value(object), out);
    }

    fn write_control_event(&self, event: ControlEvent<'_>, _: bool, out: &mut Vec<u8>) {
        match event {
            ControlEvent::Bookmark {
                revision,
                initial_events_end,
            } => {
                let mut metadata = JsonObject::new();
                metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
                if initial_events_end {
                    let annotations = json!({"k8s.io/initial-events-end": "true"});
                    metadata.insert("annotations".to_owned(), annotations);
                }
                let mut object = json!({
                    "apiVersion": self.api_version,
                    "kind": self.kind,
                    "metadata": metadata,
                });
                let (group, version) = self
                    .api_version
                    .split_once('/')
                    .unwrap_or(("", &self.api_version));
                if let Some(ty) = kinds::kind(group, version, &self.kind) {
                    // A value of this form always fits its type.
                    let _ = kinds::normalize(ty, &mut object, kinds::Storage::Protobuf);
                }
                Self::write("BOOKMARK", &object, out);
            }
            ControlEvent::Error(error) => {
                let status = error.status().to_json();
                let status = serde_json::from_str(&status).unwrap_or_default();
                Self::write("ERROR", &status, out);
            }
            _ => {}
        }
    }

    fn write_list_head(&self, list: &ListHead, out: &mut Vec<u8>) {
        self.json.write_list_head(list, out);
    }

    fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        self.json.write_item(object, out);
    }

    fn write_list_tail(&self, list: &ListHead, out: &mut Vec<u8>) {
        self.json.write_list_tail(list, out);
    }
}
