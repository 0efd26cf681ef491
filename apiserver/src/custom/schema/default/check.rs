//! The rules for the defaults of a schema: they must be valid and without unknown fields.

use revstore_watch_cache::status::StatusCause;
use serde_json::{Value, json};

use crate::custom::schema::causes::Causes;
use crate::custom::schema::embedded::Coercion;
use crate::custom::schema::node::Schema;
use crate::custom::schema::path::Path;
use crate::custom::schema::prune::META_FIELDS;

impl Schema {
    /// Returns what is wrong with the defaults of the schema, with paths below `path`.
    pub fn default_errors(&self, path: &str) -> Vec<StatusCause> {
        let mut causes = Causes::default();
        let place = Place {
            root: self,
            is_root: true,
            in_metadata: false,
            above: None,
        };
        check(self, &place, &Path::root(path), &mut causes);
        causes.into_unique()
    }
}

/// Where a schema stands in the object around it.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The schema of the object.
    root: &'a Schema,
    is_root: bool,
    in_metadata: bool,
    above: Option<(&'a Place<'a>, Step<'a>)>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Item,
}

impl Place<'_> {
    /// Returns the smallest object that has a value at this place.
    fn surround(&self, value: Value) -> Value {
        let Some((place, step)) = self.above else {
            return value;
        };
        place.surround(match step {
            Step::Field(name) => json!({name: value}),
            Step::Item => json!([value]),
        })
    }
}

fn check(schema: &Schema, place: &Place<'_>, path: &Path<'_>, causes: &mut Causes) {
    if causes.is_full() {
        return;
    }
    let own_place = Place {
        root: schema,
        is_root: place.is_root,
        in_metadata: false,
        above: None,
    };
    let place = if schema.embedded { &own_place } else { place };
    if let Some(default) = &schema.default {
        check_default(schema, default, place, &path.child("default"), causes);
    }
    if let Some(items) = &schema.items {
        let below = Place {
            above: Some((place, Step::Item)),
            is_root: false,
            ..*place
        };
        check(items, &below, &path.child("items"), causes);
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        let is_meta = (schema.embedded || place.is_root) && META_FIELDS.contains(&name.as_str());
        let below = Place {
            above: Some((place, Step::Field(name))),
            is_root: false,
            in_metadata: place.in_metadata || is_meta,
            ..*place
        };
        check(property, &below, &properties.key(name), causes);
    }
}

fn check_default(
    schema: &Schema,
    default: &Value,
    place: &Place<'_>,
    path: &Path<'_>,
    causes: &mut Causes,
) {
    let is_object = schema.embedded || place.is_root;
    let field = || path.field();
    let mut how = Coercion {
        is_object,
        drops: false,
    };
    if place.in_metadata {
        how.is_object = true;
        let mut object = place.surround(default.clone());
        if let Some(map) = object.as_object_mut() {
            map.entry("kind").or_insert_with(|| "Validation".into());
            map.entry("apiVersion")
                .or_insert_with(|| "validation/v1".into());
        }
        let root = Path::root("");
        let mut errors = Causes::default();
        match place.root.coerce(&mut object, &how, &root) {
            Err(cause) => errors.push(*cause),
            Ok(_) => place
                .root
                .embedded_errors(&object, true, &root, &mut errors),
        }
        if !errors.is_empty() {
            let errors: Vec<_> = errors
                .into_sorted()
                .iter()
                .map(ToString::to_string)
                .collect();
            let detail = match errors.as_slice() {
                [error] => format!("must result in valid metadata: {error}"),
                errors => format!("must result in valid metadata: [{}]", errors.join(", ")),
            };
            causes.push(StatusCause::invalid(field(), default.clone(), &detail));
            return;
        }
    } else {
        let mut pruned = default.clone();
        if is_object {
            schema.prune(&mut pruned);
        } else {
            schema.prune_value(&mut pruned);
        }
        if pruned != *default {
            causes.push(StatusCause::invalid(
                field(),
                default.clone(),
                "must not have unknown fields",
            ));
        }
        let mut errors = Causes::default();
        match schema.coerce(&mut pruned, &how, path) {
            Err(cause) => errors.push(*cause),
            Ok(_) => schema.embedded_errors(default, is_object, path, &mut errors),
        }
        if !errors.is_empty() {
            causes.append(errors);
            return;
        }
    }
    causes.extend(schema.validate_at(&path.to_string(), default, None));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::custom::schema::Schema;

    fn errors(property: &Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"a": property}});
        let causes = Schema::parse(&schema).unwrap().default_errors("s");
        causes
            .iter()
            .map(|cause| cause.to_string().replace("s.properties[a]", "a"))
            .collect()
    }

    #[test]
    fn defaults_must_be_valid_and_pruned() {
        let embedded = |metadata: &Value| {
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                "metadata": {"type": "object", "properties": {"name": metadata}}}})
        };
        for (property, expected) in [
            (
                json!({"type": "integer", "default": "x"}),
                "a.default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "object", "default": {"b": 1}}),
                "a.default: Invalid value: {\"b\":1}: must not have unknown fields",
            ),
            (
                json!({"type": "object", "default": {"b": 11},
                "properties": {"b": {"type": "integer", "maximum": 10}}}),
                "a.default.b: Invalid value: 11: b in body should be less than or equal to 10",
            ),
            (
                embedded(&json!({"type": "string", "default": "a/b"})),
                "a.properties[metadata].properties[name].default: Invalid value: \"a/b\": must result in valid \
                 metadata: metadata.name: Invalid value: \"a/b\": may not contain '/'",
            ),
        ] {
            assert_eq!(errors(&property), [expected], "{property}");
        }
        assert_eq!(
            errors(&embedded(&json!({"type": "string", "default": "ok"}))),
            [""; 0]
        );
        assert_eq!(
            errors(&json!({"type": "string", "enum": ["a"], "default": "a"})),
            [""; 0]
        );
    }
}
