//! What a server does when a definition changes.

use std::sync::Arc;

use super::{Definition, Names, Version};
use crate::custom::conversion::Conversion;

/// What a server does about a resource when its definition was created, changed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Keep,
    /// Add the resource to the cache, serve it, then [`establish`](super::establish) the definition.
    Serve,
    /// Use the new rules for new requests. The cache stays as it is, and watches go on.
    Refresh,
    /// Use the new rules for new requests, and end the watches: what clients see of objects may have changed.
    EndWatches,
    /// Configure the resource in the cache anew, and use the new rules: what can be selected has changed.
    Reconfigure,
    /// Serve the resource no longer, remove it from the cache, and serve another one in its place: the definition was
    /// deleted and created again.
    Replace,
    /// Serve the resource no longer, and remove it from the cache.
    Withdraw,
}

impl Definition {
    /// Returns whether the server has to serve the resource. It does so before the definition says so,
    /// and until the definition is removed.
    pub fn is_served(&self) -> bool {
        self.established || self.names_accepted
    }

    /// Returns what the cache depends on.
    fn layout(&self) -> (&str, Vec<&str>, Option<&str>) {
        let stored = self.storage_version().map(|version| version.name.as_str());
        let kind = self.accepted.kind.as_str();
        (kind, self.selectable_fields(), stored)
    }

    /// Returns what decides in which form clients see objects, and in which versions.
    fn form(&self) -> (&Names, &[Arc<Version>], Option<&Conversion>) {
        (&self.accepted, &self.versions, self.conversion.as_ref())
    }

    /// Returns whether this is another version of a definition, and not one of the same name that was created later.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.uid, self.namespaced) == (&other.uid, other.namespaced)
    }
}

/// Compares two versions of a definition, either of which may not exist. What is served is decided by
/// the versions alone, so that a server that starts can begin with `before` as `None`.
pub fn change(before: Option<&Definition>, after: Option<&Definition>) -> Change {
    let before = before.filter(|definition| definition.is_served());
    let after = after.filter(|definition| definition.is_served());
    match (before, after) {
        (None, None) => Change::Keep,
        (None, Some(_)) => Change::Serve,
        (Some(_), None) => Change::Withdraw,
        (Some(before), Some(after)) if before == after => Change::Keep,
        (Some(before), Some(after)) if !before.is_same(after) => Change::Replace,
        (Some(before), Some(after)) if before.layout() != after.layout() => Change::Reconfigure,
        (Some(before), Some(after)) if before.form() != after.form() => Change::EndWatches,
        (Some(_), Some(_)) => Change::Refresh,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{Change, Definition, change};

    #[test]
    fn changes_of_definitions_lead_to_actions() {
        let parse = |accepted: &str, fields: &[&str]| {
            let fields: Vec<_> = fields
                .iter()
                .map(|path| json!({"jsonPath": path}))
                .collect();
            let definition = json!({"metadata": {"uid": "u"}, "spec": {"group": "example.com", "versions": [
                {"name": "v1", "storage": true, "selectableFields": fields}]}, "status": {"conditions": [
                {"type": "NamesAccepted", "status": accepted}]}});
            Definition::parse(&serde_json::from_value(definition).unwrap()).unwrap()
        };
        let (new, served) = (parse("False", &[]), parse("True", &[]));
        let selectable = parse("True", &[".spec.b", ".spec.a"]);
        assert_eq!(selectable.selectable_fields(), ["spec.a", "spec.b"]);
        let mut terminating = served.clone();
        terminating.terminating = true;
        let mut versions = served.clone();
        versions.versions.push(Arc::default());
        let mut generation = served.clone();
        generation.generation += 1;
        let mut names = served.clone();
        names.accepted.short_names.push("w".to_owned());
        let mut recreated = selectable.clone();
        recreated.uid = "v".to_owned();
        let mut other_scope = served.clone();
        other_scope.namespaced = true;
        for (before, after, expected) in [
            (None, None, Change::Keep),
            (None, Some(&new), Change::Keep),
            (None, Some(&served), Change::Serve),
            (Some(&new), Some(&served), Change::Serve),
            (Some(&served), Some(&served), Change::Keep),
            (Some(&served), Some(&terminating), Change::Refresh),
            (Some(&served), Some(&generation), Change::Refresh),
            (Some(&served), Some(&versions), Change::EndWatches),
            (Some(&served), Some(&names), Change::EndWatches),
            (Some(&served), Some(&selectable), Change::Reconfigure),
            (Some(&served), Some(&recreated), Change::Replace),
            (Some(&served), Some(&other_scope), Change::Replace),
            (Some(&served), None, Change::Withdraw),
            (Some(&new), None, Change::Keep),
        ] {
            assert_eq!(change(before, after), expected);
        }
    }
}
