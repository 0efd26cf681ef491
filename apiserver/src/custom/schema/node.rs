//! One node of a schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::custom::schema::value::format::Format;
use crate::custom::schema::value::pattern::Pattern;

/// The maximum depth of a schema.
pub const SCHEMA_DEPTH_MAX: usize = 100;
/// The maximum number of nodes of a schema.
pub const SCHEMA_NODES_MAX: usize = 50_000;
/// The maximum weight of all patterns of a schema.
pub const SCHEMA_PATTERNS_MAX: u64 = 500_000;

/// A schema that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema is nested too deeply.
    #[error("the schema must not be nested more than {SCHEMA_DEPTH_MAX} levels deep")]
    TooDeep,
    /// The schema has too many nodes.
    #[error("the schema must not have more than {SCHEMA_NODES_MAX} nodes")]
    TooLarge,
    /// The patterns of the schema are too large together.
    #[error("the patterns of the schema are too large")]
    PatternsTooLarge,
}

/// What a schema says about the properties that it does not name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Additional {
    /// Nothing.
    #[default]
    Unset,
    /// `true` or `false`.
    Allowed(bool),
    /// A schema for their values.
    Schema(Box<Schema>),
}

impl Additional {
    pub(crate) fn schema(&self) -> Option<&Schema> {
        match self {
            Self::Schema(schema) => Some(schema),
            _ => None,
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        !matches!(self, Self::Unset)
    }
}

/// A schema of `openAPIV3Schema`. Corresponds to `JSONSchemaProps`.
///
/// ```
/// use revstore_apiserver::custom::schema::Schema;
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "properties": {"size": {"type": "integer", "default": 1}}});
/// let schema = Schema::parse(&schema)?;
/// assert!(schema.structural_errors("openAPIV3Schema").is_empty());
/// let mut object = json!({"nope": 2});
/// assert_eq!(schema.prune(&mut object), ["nope"]);
/// schema.set_defaults(&mut object)?;
/// assert_eq!(object, json!({"size": 1}));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent fields of schemas"
)]
pub struct Schema {
    /// The type, or an empty text.
    pub(crate) kind: String,
    pub(crate) has_title: bool,
    pub(crate) has_description: bool,
    pub(crate) has_documents: bool,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) checks: Checks,
    pub(crate) items: Option<Box<Schema>>,
    /// The schemas of `items` if it is a list, which is not supported.
    pub(crate) item_list: Vec<Schema>,
    pub(crate) properties: BTreeMap<String, Schema>,
    pub(crate) additional: Additional,
    pub(crate) preserve_unknown: Option<bool>,
    pub(crate) embedded: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list_keys: Vec<String>,
    pub(crate) list_type: Option<String>,
    pub(crate) map_type: Option<String>,
    /// The rules of `x-kubernetes-validations`.
    pub(crate) rules: Vec<Value>,
    /// The names of fields that are not supported.
    pub(crate) unsupported: Vec<&'static str>,
    /// Whether the schema names its dialect in `$schema`, which is not supported either, with an error of its own.
    pub(crate) has_dialect: bool,
}

/// The checks of a schema that do not depend on its structure.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Checks {
    pub(crate) format: String,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Vec<String>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

/// The fields that no schema of a definition may have, with the names of their errors.
const UNSUPPORTED: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

impl Schema {
    /// Reads a schema. Fields of a wrong type are ignored: they are refused before.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema is too large.
    pub fn parse(schema: &Value) -> Result<Self, SchemaError> {
        let mut reader = Reader {
            nodes: 0,
            weight: 0,
        };
        reader.node(schema, 0)
    }

    /// Returns the types that values may have; none if any.
    pub(crate) fn types(&self) -> &[&str] {
        if self.int_or_string {
            return &["integer", "string"];
        }
        match self.kind.as_str() {
            "object" => &["object"],
            "array" => &["array"],
            "string" => &["string"],
            "integer" => &["integer"],
            "number" => &["number"],
            "boolean" => &["boolean"],
            _ => &[],
        }
    }

    /// Returns the format that values are checked for.
    pub(crate) fn format(&self) -> Option<Format> {
        if self.checks.format.is_empty() {
            return None;
        }
        let kind = if self.int_or_string { "" } else { &self.kind };
        Format::find(&self.checks.format, kind)
    }

    /// Returns whether unknown fields are kept.
    pub(crate) fn preserves_unknown(&self) -> bool {
        self.preserve_unknown == Some(true)
    }

    /// Returns the schema of a field.
    pub(crate) fn of_field(&self, name: &str) -> Option<&Self> {
        self.properties
            .get(name)
            .or_else(|| self.additional.schema())
    }

    /// Returns the schemas directly below, with the names of their fields.
    pub(crate) fn children(&self) -> impl Iterator<Item = &Self> {
        let checks = &self.checks;
        let lists = [
            &checks.all_of,
            &checks.any_of,
            &checks.one_of,
            &self.item_list,
        ];
        self.properties
            .values()
            .chain(self.items.as_deref())
            .chain(self.additional.schema())
            .chain(checks.not.as_deref())
            .chain(lists.into_iter().flatten())
    }

    /// Returns whether the schema or one below it fulfils a condition.
    pub(crate) fn any(&self, condition: &mut impl FnMut(&Self) -> bool) -> bool {
        condition(self) || self.children().any(|child| child.any(condition))
    }

    /// Returns the number of nodes.
    pub(crate) fn count(&self) -> usize {
        let mut count = 0;
        self.any(&mut |_| {
            count += 1;
            false
        });
        count
    }

    /// Returns whether the schema has fields without which its structure cannot be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.any(&mut |schema| {
            !schema.unsupported.is_empty()
                || schema.has_dialect
                || !schema.item_list.is_empty()
                || schema.preserve_unknown == Some(false)
        })
    }

    /// Returns whether the schema has rules in CEL, `x-kubernetes-validations`.
    pub fn has_rules(&self) -> bool {
        self.any(&mut |schema| !schema.rules.is_empty())
    }

    /// Returns whether the schema has defaults.
    pub fn has_defaults(&self) -> bool {
        self.any(&mut |schema| schema.default.is_some())
    }

    /// Returns the formats that values are not checked for, because they are not known.
    pub fn unrecognized_formats(&self) -> Vec<String> {
        let mut formats = Vec::new();
        self.any(&mut |schema| {
            let is_known = Format::find(&schema.checks.format, &schema.kind).is_some();
            if !schema.checks.format.is_empty() && !is_known {
                formats.push(schema.checks.format.clone());
            }
            false
        });
        formats
    }
}

struct Reader {
    nodes: usize,
    weight: u64,
}

fn text(map: &Map<String, Value>, name: &str) -> Option<String> {
    map.get(name)?.as_str().map(str::to_owned)
}

fn flag(map: &Map<String, Value>, name: &str) -> bool {
    map.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn texts(map: &Map<String, Value>, name: &str) -> Vec<String> {
    let list = map.get(name).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

impl Reader {
    fn node(&mut self, schema: &Value, depth: usize) -> Result<Schema, SchemaError> {
        self.nodes += 1;
        if depth >= SCHEMA_DEPTH_MAX {
            return Err(SchemaError::TooDeep);
        }
        if self.nodes > SCHEMA_NODES_MAX {
            return Err(SchemaError::TooLarge);
        }
        let empty = Map::new();
        let map = schema.as_object().unwrap_or(&empty);
        let has_text = |name: &str| {
            map.get(name)
                .and_then(Value::as_str)
                .is_some_and(|text| !text.is_empty())
        };
        let items = map.get("items").filter(|items| !items.is_null());
        let is_set = |name: &&str| match map.get(*name) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => *name == "$ref" || !text.is_empty(),
            Some(Value::Object(entries)) => {
                *name != "patternProperties" && *name != "definitions" || !entries.is_empty()
            }
            Some(_) => true,
        };
        let (item, item_list) = match items {
            None => (None, Vec::new()),
            Some(Value::Array(_)) => (None, self.nodes(map, "items", depth)?),
            Some(items) => (Some(Box::new(self.node(items, depth + 1)?)), Vec::new()),
        };
        let additional = match map.get("additionalProperties") {
            None | Some(Value::Null) => Additional::Unset,
            Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
            Some(schema) => Additional::Schema(Box::new(self.node(schema, depth + 1)?)),
        };
        let mut properties = BTreeMap::new();
        for (name, schema) in map
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            properties.insert(name.clone(), self.node(schema, depth + 1)?);
        }
        Ok(Schema {
            kind: text(map, "type").unwrap_or_default(),
            has_title: has_text("title"),
            has_description: has_text("description"),
            has_documents: map.get("externalDocs").is_some_and(Value::is_object)
                || map.get("example").is_some_and(|example| !example.is_null()),
            nullable: flag(map, "nullable"),
            default: map
                .get("default")
                .filter(|default| !default.is_null())
                .cloned(),
            checks: self.checks(map, depth)?,
            items: item,
            item_list,
            properties,
            additional,
            preserve_unknown: map
                .get("x-kubernetes-preserve-unknown-fields")
                .and_then(Value::as_bool),
            embedded: flag(map, "x-kubernetes-embedded-resource"),
            int_or_string: flag(map, "x-kubernetes-int-or-string"),
            list_keys: texts(map, "x-kubernetes-list-map-keys"),
            list_type: text(map, "x-kubernetes-list-type"),
            map_type: text(map, "x-kubernetes-map-type"),
            rules: match map.get("x-kubernetes-validations") {
                Some(Value::Array(rules)) => rules.clone(),
                _ => Vec::new(),
            },
            unsupported: UNSUPPORTED.into_iter().filter(is_set).collect(),
            has_dialect: has_text("$schema"),
        })
    }

    fn checks(&mut self, map: &Map<String, Value>, depth: usize) -> Result<Checks, SchemaError> {
        let number = |name: &str| map.get(name).and_then(Value::as_f64);
        let integer = |name: &str| map.get(name).and_then(Value::as_i64);
        let pattern = text(map, "pattern").filter(|pattern| !pattern.is_empty());
        let pattern = pattern.map(|pattern| Pattern::new(&pattern));
        self.weight += pattern.as_ref().map_or(0, Pattern::weight);
        if self.weight > SCHEMA_PATTERNS_MAX {
            return Err(SchemaError::PatternsTooLarge);
        }
        Ok(Checks {
            format: text(map, "format").unwrap_or_default(),
            maximum: number("maximum"),
            exclusive_maximum: flag(map, "exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: flag(map, "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: integer("maxLength"),
            min_length: integer("minLength"),
            pattern,
            max_items: integer("maxItems"),
            min_items: integer("minItems"),
            unique_items: flag(map, "uniqueItems"),
            max_properties: integer("maxProperties"),
            min_properties: integer("minProperties"),
            required: texts(map, "required"),
            enumeration: match map.get("enum") {
                Some(Value::Array(values)) => values.clone(),
                _ => Vec::new(),
            },
            all_of: self.nodes(map, "allOf", depth)?,
            any_of: self.nodes(map, "anyOf", depth)?,
            one_of: self.nodes(map, "oneOf", depth)?,
            not: match map.get("not") {
                None | Some(Value::Null) => None,
                Some(schema) => Some(Box::new(self.node(schema, depth + 1)?)),
            },
        })
    }

    fn nodes(
        &mut self,
        map: &Map<String, Value>,
        name: &str,
        depth: usize,
    ) -> Result<Vec<Schema>, SchemaError> {
        let list = map.get(name).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .map(|schema| self.node(schema, depth + 1))
            .collect()
    }
}
