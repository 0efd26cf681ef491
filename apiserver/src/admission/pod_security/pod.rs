//! What the checks read of a pod or of a template, and how they word what they find.

use std::collections::BTreeSet;

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

/// The lists of containers, in the order in which they are checked.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// A pod, or the template of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'a> {
    metadata: &'a Value,
    pub(super) spec: &'a Value,
}

impl<'a> Pod<'a> {
    pub(super) fn of(object: &'a JsonObject) -> Self {
        let member = |name| object.get(name).unwrap_or(&Value::Null);
        Self {
            metadata: member("metadata"),
            spec: member("spec"),
        }
    }

    /// Returns all containers, also the ephemeral ones.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Value> {
        let lists = CONTAINERS.into_iter();
        lists.flat_map(move |list| items(&self.spec[list]))
    }

    /// Returns the names of the containers for which something holds.
    pub(super) fn containers_that(self, mut holds: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        let found = self.containers().filter(|container| holds(container));
        found.map(|container| text(&container["name"])).collect()
    }

    /// Returns the security context of the pod.
    pub(super) fn context(self) -> &'a Value {
        &self.spec["securityContext"]
    }

    /// Returns the annotations with a text.
    pub(super) fn annotations(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let annotations = self.metadata["annotations"].as_object();
        let annotations = annotations.into_iter().flatten();
        annotations.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
    }

    pub(super) fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Returns whether the users of the pod are not those of the node.
    pub(super) fn has_own_users(self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// Returns the security context of a container.
pub(super) fn context(container: &Value) -> &Value {
    &container["securityContext"]
}

/// Returns the items of a list, or none.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns a text, or an empty one.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What is wrong with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

impl Violation {
    /// Returns a violation, unless nothing violates the check.
    pub(super) fn unless<T>(
        found: &[T],
        reason: &'static str,
        detail: impl FnOnce() -> String,
    ) -> Option<Self> {
        (!found.is_empty()).then(|| Self {
            reason,
            detail: detail(),
        })
    }
}

/// Returns the names of those who set something wrong: the pod itself, and some of its containers.
pub(super) fn setters(is_pod: bool, containers: &[&str]) -> Vec<String> {
    let pod = is_pod.then(|| "pod".to_owned());
    let containers = (!containers.is_empty()).then(|| named("container", containers));
    pod.into_iter().chain(containers).collect()
}

/// Returns names with what they are names of.
pub(super) fn named<T: AsRef<str>>(word: &'static str, names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    format!("{} {}", plural(word, names.len()), quoted(names))
}

/// Returns a word for one thing, or its plural for several.
pub(super) fn plural(word: &str, count: usize) -> String {
    match count {
        1 => word.to_owned(),
        _ => format!("{word}s"),
    }
}

/// Returns "uses" for one thing, and "use" for several.
pub(super) fn uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

/// Returns texts in quotation marks.
pub(super) fn quoted<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts
        .into_iter()
        .map(|text| format!("\"{text}\""))
        .collect();
    quoted.join(", ")
}

/// Texts, each once, in their order.
pub(super) type Texts<'a> = BTreeSet<&'a str>;
