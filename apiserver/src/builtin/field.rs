//! A position in an object: a value together with its path, for validation.

use serde_json::Value;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::FieldPath;

/// The number of steps of a path that are kept. The deepest field that is validated is below this, and
/// further steps would be left out of the path.
const STEPS_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

#[derive(Clone, Copy, Debug)]
enum Node<'a> {
    Map(&'a JsonObject),
    Value(&'a Value),
}

/// A field of an object, which may be absent. Its path is written only when an error names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    node: Node<'a>,
    steps: [Option<Step<'a>>; STEPS_MAX],
    depth: usize,
}

impl<'a> Field<'a> {
    /// Returns the object itself.
    pub(crate) fn root(object: &'a JsonObject) -> Self {
        Self {
            node: Node::Map(object),
            steps: [None; STEPS_MAX],
            depth: 0,
        }
    }

    fn step(&self, value: Option<&'a Value>, step: Step<'a>) -> Self {
        let mut next = *self;
        next.node = Node::Value(value.unwrap_or(&Value::Null));
        if let Some(slot) = next.steps.get_mut(self.depth) {
            *slot = Some(step);
            next.depth += 1;
        }
        next
    }

    /// Returns the field as an object, if it is one.
    pub(crate) fn object(&self) -> Option<&'a JsonObject> {
        match self.node {
            Node::Map(map) => Some(map),
            Node::Value(value) => value.as_object(),
        }
    }

    fn raw(&self) -> Option<&'a Value> {
        match self.node {
            Node::Map(_) => None,
            Node::Value(value) => Some(value),
        }
    }

    fn array(&self) -> &'a [Value] {
        match self.raw() {
            Some(Value::Array(items)) => items,
            _ => &[],
        }
    }

    /// Returns a member of this object.
    pub(crate) fn child(&self, name: &'a str) -> Self {
        let value = self.object().and_then(|map| map.get(name));
        self.step(value, Step::Child(name))
    }

    /// Returns the field at a sequence of names below this object.
    pub(crate) fn at(&self, names: &[&'a str]) -> Self {
        names.iter().fold(*self, |field, name| field.child(name))
    }

    /// Returns this value under the path of a member, for errors about a part that is not a field.
    pub(crate) fn named(&self, name: &'a str) -> Self {
        let mut next = *self;
        if let Some(slot) = next.steps.get_mut(self.depth) {
            *slot = Some(Step::Child(name));
            next.depth += 1;
        }
        next
    }

    /// Returns this value under the path of another field, for errors whose path is not that of the value.
    pub(crate) fn placed(&self, at: &Self) -> Self {
        Self {
            node: self.node,
            ..*at
        }
    }

    /// Returns the entry of a map.
    pub(crate) fn key(&self, key: &'a str) -> Self {
        let value = self.object().and_then(|map| map.get(key));
        self.step(value, Step::Key(key))
    }

    /// Returns the entry of a map, if it is there.
    pub(crate) fn entry(&self, key: &str) -> Option<Self> {
        let (key, value) = self.object()?.get_key_value(key)?;
        Some(self.step(Some(value), Step::Key(key)))
    }

    /// Returns the items of a list.
    pub(crate) fn items(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let list = *self;
        let items = self.array().iter().enumerate();
        items.map(move |(index, item)| list.step(Some(item), Step::Index(index)))
    }

    /// Returns the entries of a map.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> + use<'a> {
        let map = *self;
        let entries = self.object().into_iter().flatten();
        entries.map(move |(key, value)| (key.as_str(), map.step(Some(value), Step::Key(key))))
    }

    /// Returns the number of items of a list, or of entries of a map.
    pub(crate) fn len(&self) -> usize {
        match self.object() {
            Some(map) => map.len(),
            None => self.array().len(),
        }
    }

    /// Returns whether the field is present and not null.
    pub(crate) fn is_set(&self) -> bool {
        self.raw().is_none_or(|value| !value.is_null())
    }

    /// Returns whether the field has the zero value of its type, which Go does not tell from an absent
    /// one.
    pub(crate) fn is_zero(&self) -> bool {
        match self.raw() {
            None => self.len() == 0,
            Some(value) => is_zero(value),
        }
    }

    /// Returns the text of a string, or an empty one.
    pub(crate) fn text(&self) -> &'a str {
        self.raw().and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the number, if it is one.
    pub(crate) fn int(&self) -> Option<i64> {
        self.raw().and_then(Value::as_i64)
    }

    /// Returns the boolean, or false.
    pub(crate) fn flag(&self) -> bool {
        self.raw().and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns a copy of the value.
    pub(crate) fn value(&self) -> Value {
        match self.node {
            Node::Map(map) => Value::Object(map.clone()),
            Node::Value(value) => value.clone(),
        }
    }

    /// Returns whether two fields have equal values. Absent, null and empty values are equal.
    pub(crate) fn equals(&self, other: &Field<'_>) -> bool {
        match (self.object(), other.object()) {
            (Some(one), Some(two)) => maps_equal(one, two),
            _ => values_equal(
                self.raw().unwrap_or(&Value::Null),
                other.raw().unwrap_or(&Value::Null),
            ),
        }
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> FieldPath {
        let mut path: Option<FieldPath> = None;
        for step in self.steps.iter().flatten() {
            path = Some(match (path, step) {
                (None, Step::Child(name) | Step::Key(name)) => FieldPath::new(*name),
                (None, Step::Index(index)) => FieldPath::new("").index(*index),
                (Some(path), Step::Child(name)) => path.child(name),
                (Some(path), Step::Index(index)) => path.index(*index),
                (Some(path), Step::Key(key)) => path.key(key),
            });
        }
        path.unwrap_or_else(|| FieldPath::new(""))
    }
}

/// Returns whether a value is null or the zero value of its type.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Returns whether two values are equal, where absent, null and empty lists and maps are equal. Corresponds
/// to `Semantic.DeepEqual`.
pub(crate) fn values_equal(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Object(one), Value::Object(two)) => maps_equal(one, two),
        (Value::Array(one), Value::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| values_equal(one, two))
        }
        _ => one == two || is_empty(one) && is_empty(two),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        _ => false,
    }
}

/// Returns a value without what [`values_equal`] does not distinguish: values are equal
/// by that function if these are.
pub(crate) fn without_empty(value: &Value) -> Value {
    match value {
        Value::Array(items) if !items.is_empty() => items.iter().map(without_empty).collect(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), without_empty(value)))
                .filter(|(_, value)| !value.is_null());
            let members: JsonObject = members.collect();
            if members.is_empty() {
                Value::Null
            } else {
                Value::Object(members)
            }
        }
        Value::Array(_) => Value::Null,
        other => other.clone(),
    }
}

fn maps_equal(one: &JsonObject, two: &JsonObject) -> bool {
    let covered = |from: &JsonObject, by: &JsonObject| {
        from.iter()
            .all(|(name, value)| by.contains_key(name) || is_empty(value))
    };
    one.iter().all(|(name, value)| match two.get(name) {
        Some(other) => values_equal(value, other),
        None => is_empty(value),
    }) && covered(two, one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Field, values_equal};

    #[test]
    fn paths_are_those_of_kubernetes() {
        let object = json!({"spec": {"ports": [{"name": "a"}], "selector": {"app": "x"}}});
        let root = Field::root(object.as_object().unwrap());
        let spec = root.child("spec");
        let port = spec.child("ports").items().next().unwrap();
        assert_eq!(port.child("name").path().to_string(), "spec.ports[0].name");
        assert_eq!(port.child("name").text(), "a");
        let (_, app) = spec.child("selector").entries().next().unwrap();
        assert_eq!(app.path().to_string(), "spec.selector[app]");
        assert!(!spec.at(&["missing", "further"]).is_set());
    }

    #[test]
    fn empty_values_equal_absent_ones() {
        for (one, two, equal) in [
            (json!({"a": {}}), json!({}), true),
            (json!({"a": null}), json!({"a": []}), true),
            (json!({"a": [1]}), json!({"a": [1, 2]}), false),
            (json!({"a": 1}), json!({"b": 1}), false),
            (json!({"a": 0}), json!({}), false),
        ] {
            assert_eq!(values_equal(&one, &two), equal, "{one} {two}");
            assert_eq!(values_equal(&two, &one), equal, "{two} {one}");
        }
    }
}
