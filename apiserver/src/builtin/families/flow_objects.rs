//! The flow schemas and priority levels that the server itself keeps.

use std::sync::LazyLock;

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use crate::builtin::edit;
use crate::builtin::field::values_equal;

/// One object in each line, written by `scripts/generate-apiserver.sh`.
const OBJECTS: &str = include_str!("../../../data/flow-control.jsonl");
/// The annotation that says whether the server keeps the specification of an object that it suggests.
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The priority level whose administrators may change `spec.exempt`.
const EXEMPT: (&str, &str) = ("PriorityLevelConfiguration", "exempt");

/// A flow schema or a priority level that the server creates when it is missing.
#[derive(Debug)]
pub(crate) struct FlowObject {
    /// The kind, the metadata and the specification.
    object: JsonObject,
    /// Whether the specification is fixed. That of another object is a suggestion.
    mandatory: bool,
}

impl FlowObject {
    /// Returns all objects in the order in which kube-apiserver creates them.
    pub(crate) fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<FlowObject>> =
            LazyLock::new(|| OBJECTS.lines().filter_map(FlowObject::parse).collect());
        &ALL
    }

    fn parse(line: &str) -> Option<Self> {
        let mut object: JsonObject = serde_json::from_str(line).ok()?;
        let mandatory = object.remove("mandatory")?.as_bool()?;
        Some(Self { object, mandatory })
    }

    /// Returns the object whose specification must not change, if one has this kind and name.
    pub(super) fn mandatory(kind: &str, name: &str) -> Option<&'static Self> {
        let mut mandatory = Self::all().iter().filter(|it| it.mandatory);
        mandatory.find(|it| it.kind() == kind && it.name() == name)
    }

    pub(crate) fn kind(&self) -> &str {
        edit::text(&self.object, "kind")
    }

    pub(crate) fn name(&self) -> &str {
        edit::text_at(&self.object, &["metadata", "name"])
    }

    /// Returns a new object.
    pub(crate) fn object(&self) -> &JsonObject {
        &self.object
    }

    pub(crate) fn spec(&self) -> &Value {
        &self.object["spec"]
    }

    /// Returns whether a specification is that of the object, apart from what administrators may change.
    pub(crate) fn has_spec(&self, spec: &Value) -> bool {
        if (self.kind(), self.name()) != EXEMPT {
            return values_equal(self.spec(), spec);
        }
        let rest = |spec: &Value| {
            let mut rest = spec.clone();
            rest.as_object_mut().map(|rest| rest.remove("exempt"));
            rest
        };
        values_equal(&rest(self.spec()), &rest(spec))
    }

    /// Returns whether an object says that a server keeps it.
    pub(crate) fn says_kept(object: &JsonObject) -> bool {
        autoupdate(object) == Some(true)
    }

    /// Returns an object with the specification that it should have, and with the annotation that says whether it is
    /// kept. `None` if nothing changes.
    pub(crate) fn revised(&self, object: &JsonObject) -> Option<JsonObject> {
        let generation = edit::at(object, &["metadata", "generation"]).and_then(Value::as_i64);
        let said = autoupdate(object);
        // What nobody has changed is kept, too.
        let keeps = self.mandatory || said.unwrap_or(generation == Some(1));
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let differs = keeps && !self.has_spec(spec);
        if said == Some(keeps) && !differs {
            return None;
        }
        let mut new = object.clone();
        if differs {
            new.insert("spec".to_owned(), self.spec().clone());
        }
        if said != Some(keeps) {
            let metadata = edit::ensure(&mut new, "metadata")?;
            let annotations = edit::ensure(metadata, "annotations")?;
            annotations.insert(AUTOUPDATE.to_owned(), keeps.to_string().into());
        }
        Some(new)
    }
}

/// Returns what the annotation says, if it is a boolean as Go reads it.
fn autoupdate(object: &JsonObject) -> Option<bool> {
    match edit::text_at(object, &["metadata", "annotations", AUTOUPDATE]) {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AUTOUPDATE, FlowObject, OBJECTS};

    #[test]
    fn each_line_is_an_object() {
        let all = FlowObject::all();
        assert_eq!(all.len(), OBJECTS.lines().count());
        for one in all {
            assert!(["FlowSchema", "PriorityLevelConfiguration"].contains(&one.kind()));
            assert!(one.spec().is_object() && !one.name().is_empty());
        }
        let mandatory = all.iter().filter(|it| it.mandatory);
        let names: Vec<_> = mandatory.map(|it| (it.kind(), it.name())).collect();
        assert_eq!(
            names,
            [
                ("PriorityLevelConfiguration", "catch-all"),
                ("PriorityLevelConfiguration", "exempt"),
                ("FlowSchema", "exempt"),
                ("FlowSchema", "catch-all"),
            ]
        );
    }

    #[test]
    fn shares_of_the_exempt_level_may_change() {
        let level = FlowObject::mandatory("PriorityLevelConfiguration", "exempt").unwrap();
        let shares = json!({"nominalConcurrencyShares": 5, "lendablePercent": 50});
        assert!(level.has_spec(&json!({"type": "Exempt", "exempt": shares})));
        assert!(!level.has_spec(&json!({"type": "Limited", "exempt": shares})));
        let level = FlowObject::mandatory("PriorityLevelConfiguration", "catch-all").unwrap();
        let mut spec = level.spec().clone();
        assert!(level.has_spec(&spec));
        spec["limited"]["nominalConcurrencyShares"] = json!(6);
        assert!(!level.has_spec(&spec));
    }

    fn expected(kind: &str, name: &str) -> &'static FlowObject {
        let mut all = FlowObject::all().iter();
        all.find(|one| one.kind() == kind && one.name() == name)
            .unwrap()
    }

    /// Returns the specification and the annotation of a revised object, or `None`.
    fn check(
        expected: &FlowObject,
        annotation: Option<&str>,
        generation: i64,
        spec: &Value,
    ) -> Option<(Value, String)> {
        let mut object = json!({"metadata": {"generation": generation}, "spec": spec});
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({AUTOUPDATE: annotation});
        }
        let new = expected.revised(object.as_object().unwrap())?;
        let said = new["metadata"]["annotations"][AUTOUPDATE].as_str();
        Some((new["spec"].clone(), said.unwrap_or_default().to_owned()))
    }

    #[test]
    fn suggested_objects_are_kept_until_somebody_changes_them() {
        let suggested = expected("FlowSchema", "probes");
        let own = suggested.spec();
        let mut other = own.clone();
        other["matchingPrecedence"] = json!(77);
        let kept = Some((own.clone(), "true".to_owned()));
        let left = Some((other.clone(), "false".to_owned()));
        for (annotation, generation, spec, expected) in [
            (Some("true"), 1, own, None),
            (Some("true"), 4, &other, kept.clone()),
            (Some("false"), 1, &other, None),
            (None, 1, own, kept.clone()),
            (None, 1, &other, kept.clone()),
            (None, 2, &other, left.clone()),
            (Some("maybe"), 2, &other, left),
            (Some("1"), 2, &other, Some((own.clone(), "1".to_owned()))),
        ] {
            let found = check(suggested, annotation, generation, spec);
            assert_eq!(found, expected, "{annotation:?} {generation}");
        }
    }

    #[test]
    fn mandatory_objects_are_always_kept() {
        let mandatory = expected("FlowSchema", "catch-all");
        let own = mandatory.spec();
        let kept = Some((own.clone(), "true".to_owned()));
        assert_eq!(check(mandatory, Some("false"), 5, own), kept);
        assert_eq!(check(mandatory, None, 5, &json!({})), kept);
        // Its administrators choose its shares.
        let exempt = expected("PriorityLevelConfiguration", "exempt");
        let mut spec = exempt.spec().clone();
        spec["exempt"]["nominalConcurrencyShares"] = json!(9);
        assert_eq!(check(exempt, Some("true"), 5, &spec), None);
    }
}
