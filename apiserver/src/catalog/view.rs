//! Versions of a resource whose objects are stored in another version.

use std::fmt;

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

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
    /// Objects whose versions have the same fields.
    Same,
    /// `ResourceClaim` of `resource.k8s.io/v1beta1`, whose requests have the fields of `exactly` themselves.
    Claim,
    /// `ResourceClaimTemplate`, likewise.
    ClaimTemplate,
    /// `ResourceSlice` of `resource.k8s.io/v1beta1`, whose devices have their fields in `basic`.
    Slice,
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

/// How clients see objects that are stored in another version.
pub(crate) trait Presentation: fmt::Debug + Send + Sync {
    /// Returns an object of a client as it is stored.
    fn to_stored(&self, object: JsonObject) -> JsonObject;

    /// Returns a stored object as clients see it.
    fn to_shown(&self, object: JsonObject) -> JsonObject;
}

impl Presentation for View {
    fn to_stored(&self, mut object: JsonObject) -> JsonObject {
        match self.convert {
            Convert::Event => rename(&mut object, EVENT_FIELDS),
            Convert::Autoscaler => autoscaler::to_stored(&mut object),
            Convert::Same => {}
            Convert::Claim => each_item(&mut object, CLAIM_REQUESTS, request_to_stored),
            Convert::ClaimTemplate => each_item(&mut object, TEMPLATE_REQUESTS, request_to_stored),
            Convert::Slice => each_item(&mut object, DEVICES, device_to_stored),
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
            Convert::Same => {}
            Convert::Claim => each_item(&mut object, CLAIM_REQUESTS, request_to_shown),
            Convert::ClaimTemplate => each_item(&mut object, TEMPLATE_REQUESTS, request_to_shown),
            Convert::Slice => each_item(&mut object, DEVICES, device_to_shown),
        }
        set_version(&mut object, &self.stored, &self.shown);
        object
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

/// The paths of the lists that versions of devices convert.
const CLAIM_REQUESTS: &[&str] = &["spec", "devices", "requests"];
const TEMPLATE_REQUESTS: &[&str] = &["spec", "spec", "devices", "requests"];
const DEVICES: &[&str] = &["spec", "devices"];

/// Changes each object in a list.
fn each_item(object: &mut JsonObject, path: &[&str], change: impl Fn(&mut JsonObject)) {
    let [first, rest @ ..] = path else {
        return;
    };
    let found = object.get_mut(*first);
    let found = found.and_then(|found| {
        rest.iter()
            .try_fold(found, |found, name| found.get_mut(name))
    });
    let items = found.and_then(Value::as_array_mut).into_iter().flatten();
    items.filter_map(Value::as_object_mut).for_each(change);
}

/// Moves the fields of a request beside its name and its alternatives into `exactly`.
fn request_to_stored(request: &mut JsonObject) {
    const OWN: [&str; 2] = ["name", "firstAvailable"];
    let (own, exactly) = std::mem::take(request)
        .into_iter()
        .partition(|(name, _)| OWN.contains(&name.as_str()));
    *request = own;
    let exactly: JsonObject = exactly;
    // A request with alternatives has an empty class in this version.
    let is_empty = |value: &Value| value.is_null() || value.as_str() == Some("");
    if !exactly.values().all(is_empty) {
        request.insert("exactly".to_owned(), Value::Object(exactly));
    }
}

fn request_to_shown(request: &mut JsonObject) {
    if let Some(Value::Object(exactly)) = request.remove("exactly") {
        request.extend(exactly);
    }
    let class = request.entry("deviceClassName");
    class.or_insert_with(|| "".into());
}

fn device_to_stored(device: &mut JsonObject) {
    if let Some(Value::Object(basic)) = device.remove("basic") {
        device.extend(basic);
    }
}

fn device_to_shown(device: &mut JsonObject) {
    let (own, basic): (JsonObject, JsonObject) = std::mem::take(device)
        .into_iter()
        .partition(|(name, _)| name == "name");
    *device = own;
    device.insert("basic".to_owned(), Value::Object(basic));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
