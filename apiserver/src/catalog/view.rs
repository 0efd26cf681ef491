//! Versions of a resource whose objects are stored in another version.

use std::fmt;

use revstore_watch_cache::registry::JsonObject;

use crate::catalog::autoscaler;

/// A version of a resource whose objects are stored in another version, of this group or of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) convert: Convert,
    /// The API version of clients.
    pub(crate) shown: String,
    /// The API version of stored objects.
    pub(crate) stored: String,
}

/// What differs between two versions, besides the API version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convert {
    /// Events of `events.k8s.io`, which are stored as those of the core group.
    Event,
    /// `HorizontalPodAutoscaler` of `autoscaling/v1`, which are stored as those of `autoscaling/v2`.
    Autoscaler,
}

/// The fields of events with other names in the core group: those of `events.k8s.io` first.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// The fields of the reference to the object of an event that selectors can name.
const REFERENCE_FIELDS: [&str; 7] = [
    "kind",
    "namespace",
    "name",
    "uid",
    "apiVersion",
    "resourceVersion",
    "fieldPath",
];

/// How clients see objects that are stored in another version.
pub(crate) trait Presentation: fmt::Debug + Send + Sync {
    /// Returns an object of a client as it is stored.
    fn to_stored(&self, object: JsonObject) -> JsonObject;

    /// Returns a stored object as clients see it.
    fn to_shown(&self, object: JsonObject) -> JsonObject;

    /// Returns the name in stored objects of a field that selectors can name, or `None` if they cannot.
    fn stored_field(&self, field: &str) -> Option<String> {
        Some(field.to_owned())
    }
}

impl Presentation for View {
    fn to_stored(&self, mut object: JsonObject) -> JsonObject {
        match self.convert {
            Convert::Event => rename(&mut object, EVENT_FIELDS),
            Convert::Autoscaler => autoscaler::to_stored(&mut object),
        }
        set_version(&mut object, &self.shown, &self.stored);
        object
    }

    fn to_shown(&self, mut object: JsonObject) -> JsonObject {
        match self.convert {
            Convert::Event => {
                rename(
                    &mut object,
                    EVENT_FIELDS.map(|(shown, stored)| (stored, shown)),
                );
            }
            Convert::Autoscaler => autoscaler::to_shown(&mut object),
        }
        set_version(&mut object, &self.stored, &self.shown);
        object
    }

    fn stored_field(&self, field: &str) -> Option<String> {
        match (self.convert, field) {
            (Convert::Event, "reason" | "type") | (Convert::Autoscaler, _) => {
                Some(field.to_owned())
            }
            (Convert::Event, "reportingController") => Some("reportingComponent".to_owned()),
            (Convert::Event, _) => {
                let rest = field.strip_prefix("regarding.")?;
                REFERENCE_FIELDS
                    .contains(&rest)
                    .then(|| format!("involvedObject.{rest}"))
            }
        }
    }
}

/// Replaces the API version, unless it is another one, which is an error that the store reports.
fn set_version(object: &mut JsonObject, from: &str, to: &str) {
    if object
        .get("apiVersion")
        .is_none_or(|version| version == from || version == "")
    {
        object.insert("apiVersion".to_owned(), to.into());
    }
}

fn rename(object: &mut JsonObject, fields: [(&str, &str); 7]) {
    for (from, to) in fields {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(value: &Value) -> JsonObject {
        value.as_object().cloned().unwrap()
    }

    fn there_and_back(convert: Convert, shown: &str, stored: &str, value: &Value, field: &str) {
        let view = View {
            convert,
            shown: shown.to_owned(),
            stored: stored.to_owned(),
        };
        let original = object(value);
        let kept = view.to_stored(original.clone());
        assert_eq!(kept["apiVersion"], stored);
        assert!(
            Value::Object(kept.clone()).pointer(field).is_some(),
            "{kept:?}"
        );
        assert_eq!(view.to_shown(kept), original);
    }

    #[test]
    fn events_are_stored_with_the_names_of_the_core_group() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n", "regarding": {"kind": "Pod"},
            "deprecatedCount": 2, "deprecatedSource": {}, "reportingController": "c",
        });
        there_and_back(
            Convert::Event,
            "events.k8s.io/v1",
            "v1",
            &event,
            "/involvedObject/kind",
        );
    }
}
