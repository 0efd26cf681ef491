//! The rules of a schema, as a tree of its nodes that have some.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use revstore_cel::Declared;
use serde_json::Value;

use super::rule::Rule;

/// The name of the type of `self`. No variable has it.
pub(super) const TYPE: &str = "Self";

/// The rules of a schema. They are compiled when they are first used.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    schema: Arc<Value>,
    root: Arc<OnceLock<Option<Node>>>,
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl Rules {
    /// Returns the rules of a schema, if it has any.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        has_rules(schema).then(|| Self {
            schema: Arc::new(schema.clone()),
            root: Arc::new(OnceLock::new()),
        })
    }

    /// Returns the rules of the root and of what is below it, if they are evaluated.
    pub(crate) fn root(&self) -> Option<&Node> {
        self.root
            .get_or_init(|| node(&self.schema, &self.schema, true).filter(Node::is_evaluated))
            .as_ref()
    }
}

/// The rules of a node and of those below it.
#[derive(Debug)]
pub(crate) struct Node {
    /// The schema of the values, only where there are rules.
    pub(super) schema: Value,
    pub(super) is_root: bool,
    pub(super) kind: String,
    /// The keys of a list that is a map.
    pub(super) keys: Option<Vec<String>>,
    pub(super) rules: Vec<Rule>,
    pub(super) items: Option<Box<Node>>,
    pub(super) values: Option<Box<Node>>,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) all_of: Vec<Node>,
}

impl Node {
    /// Returns whether there are rules outside of `allOf`. Without one kube-apiserver does not evaluate those in it either.
    pub(super) fn is_evaluated(&self) -> bool {
        let below = [&self.items, &self.values].into_iter().flatten();
        let mut below = below.map(|node| &**node).chain(self.properties.values());
        !self.rules.is_empty() || below.any(Self::is_evaluated)
    }

    /// Returns the rules of the items of a list.
    pub(crate) fn of_items(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    /// Returns the rules of a property.
    pub(crate) fn of_property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name)
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.contains_key("x-kubernetes-validations") || fields.values().any(has_rules)
        }
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

/// Returns the name of the type of a schema.
pub(super) fn kind_of(schema: &Value) -> &str {
    schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the keys of a list that is a map.
pub(super) fn keys_of(schema: &Value) -> Option<Vec<String>> {
    if schema["x-kubernetes-list-type"] != "map" {
        return None;
    }
    let keys = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)?;
    Some(
        keys.iter()
            .filter_map(|key| key.as_str().map(str::to_owned))
            .collect(),
    )
}

fn node(rules: &Value, schema: &Value, is_root: bool) -> Option<Node> {
    if !has_rules(rules) {
        return None;
    }
    let is_embedded = |schema: &Value| schema["x-kubernetes-embedded-resource"] == true;
    let below = |name: &str| {
        let inner = schema.get(name).filter(|inner| inner.is_object())?;
        let inner_rules = rules.get(name)?;
        node(inner_rules, inner, is_embedded(inner)).map(Box::new)
    };
    let mut properties = BTreeMap::new();
    for (name, inner_rules) in rules
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let inner = schema
            .get("properties")
            .and_then(|properties| properties.get(name));
        if let Some(found) = inner.and_then(|inner| node(inner_rules, inner, is_embedded(inner))) {
            properties.insert(name.clone(), found);
        }
    }
    let list = |name: &str| {
        rules
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let declared = list("x-kubernetes-validations")
        .next()
        .and_then(|_| Declared::from_schema(schema, TYPE, is_root));
    let own: Vec<_> = declared
        .iter()
        .flat_map(|declared| {
            list("x-kubernetes-validations").map(|rule| Rule::compile(rule, schema, declared))
        })
        .collect();
    Some(Node {
        schema: if own.is_empty() {
            Value::Null
        } else {
            schema.clone()
        },
        is_root,
        kind: kind_of(schema).to_owned(),
        keys: keys_of(schema),
        items: below("items"),
        values: below("additionalProperties"),
        properties,
        all_of: list("allOf")
            .filter_map(|part| node(part, schema, is_root))
            .collect(),
        rules: own,
    })
}
