//! Random objects of built-in kinds, random values, and patches for them, from a seed.

use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;
use revstore_kinds::{Field, Shape, Type};
use serde_json::{Map, Value, json};

/// The deepest nesting of objects of a kind.
const LEVELS: usize = 9;

pub(crate) struct Generator {
    random: Rng,
    seed: u64,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            seed,
        }
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.random.usize(..bound)
    }

    /// Returns `true` once in `count` times.
    pub(crate) fn chance(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    /// Returns an object of a kind. All objects of one generator use the same few fields.
    pub(crate) fn object(&mut self, ty: &'static Type) -> Value {
        self.typed(ty, LEVELS)
    }

    /// Returns whether a field is used: lists that are merged more often than others.
    fn uses(&self, ty: &Type, field: &Field) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.seed, ty.full_name(), field.name()).hash(&mut hasher);
        let is_nested = field.merge_key().is_some()
            || field.has_patch_strategy("merge")
            || matches!(field.name(), "metadata" | "spec" | "template" | "status");
        hasher
            .finish()
            .is_multiple_of(if is_nested { 2 } else { 6 })
    }

    fn typed(&mut self, ty: &'static Type, levels: usize) -> Value {
        match ty.shape() {
            Shape::Pointer(target) => self.typed(target.get(), levels),
            Shape::Struct(fields) if levels > 0 => {
                let mut object = Map::new();
                for field in fields {
                    if self.uses(ty, field) && !self.chance(3) {
                        let value = self.field(field, levels - 1);
                        object.insert(field.name().to_owned(), value);
                    }
                }
                object.into()
            }
            Shape::Struct(_) => json!({}),
            Shape::List { item, .. } => {
                let items = 0..self.below(4);
                items
                    .map(|_| self.typed(item.get(), levels.saturating_sub(1)))
                    .collect()
            }
            Shape::Map { value, .. } => {
                let mut object = Map::new();
                for _ in 0..self.below(3) {
                    let key = self.one_of(&["a", "b", "c"]).to_owned();
                    object.insert(key, self.typed(value.get(), levels.saturating_sub(1)));
                }
                object.into()
            }
            Shape::Bool => self.random.bool().into(),
            Shape::Int32 | Shape::Int64 | Shape::Float64 => self.below(3).into(),
            Shape::IntOrString if self.random.bool() => self.below(3).into(),
            Shape::FieldsV1 | Shape::RawExtension | Shape::Json => json!({"f:a": {}}),
            _ => self.one_of(&["a", "b", "c"]).into(),
        }
    }

    /// Returns the value of a field; the items of a list have their merge key.
    fn field(&mut self, field: &'static Field, levels: usize) -> Value {
        let mut value = self.typed(field.ty(), levels);
        if let (Some(key), Value::Array(items)) = (field.merge_key(), &mut value) {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.insert(key.to_owned(), self.one_of(&["a", "b", "c", "d"]).into());
            }
        }
        // The order of a list of scalars that occur twice depends on the capacity of a slice in Go.
        if let (None, true, Value::Array(items)) = (
            field.merge_key(),
            field.has_patch_strategy("merge"),
            &mut value,
        ) {
            items.sort_unstable_by_key(Value::to_string);
            items.dedup();
            self.random.shuffle(items);
        }
        value
    }

    /// Adds directives and `null` to an object of a kind.
    pub(crate) fn directives(&mut self, ty: &'static Type, value: Value) -> Value {
        match value {
            Value::Object(object) => self.object_directives(ty.target(), object).into(),
            other => other,
        }
    }

    fn object_directives(
        &mut self,
        ty: &'static Type,
        object: Map<String, Value>,
    ) -> Map<String, Value> {
        let mut patch = Map::new();
        for (name, value) in object {
            if self.chance(12) {
                patch.insert(name, Value::Null);
                continue;
            }
            let field = ty.field(&name);
            let merges = field.is_some_and(|field| field.has_patch_strategy("merge"));
            match (field, value) {
                (Some(field), Value::Array(items)) if merges => {
                    self.list_directives(field, items, &mut patch);
                }
                (Some(field), value @ Value::Object(_)) => {
                    patch.insert(name, self.directives(field.ty(), value));
                }
                (_, value) => {
                    patch.insert(name, value);
                }
            }
        }
        if self.chance(10) {
            let mut retained: Vec<Value> = patch.keys().map(|name| name.as_str().into()).collect();
            retained.retain(|_| !self.chance(20));
            retained.push("name".into());
            patch.insert("$retainKeys".to_owned(), retained.into());
        }
        if self.chance(25) {
            let directive = self.one_of(&["replace", "delete", "merge", "other"]);
            patch.insert("$patch".to_owned(), directive.into());
        }
        patch
    }

    /// Adds a merged list to a patch, with directives.
    fn list_directives(
        &mut self,
        field: &'static Field,
        mut items: Vec<Value>,
        patch: &mut Map<String, Value>,
    ) {
        let name = field.name();
        let element = field.ty().element().unwrap();
        let is_ordered = self.chance(2);
        let Some(key) = field.merge_key() else {
            // Items that are added and deleted at once depend on the order of a map in Go.
            if self.chance(2) {
                let deleted = json!([self.one_of(&["x", "a"]), self.one_of(&["y", "b"])]);
                items.retain(|item| !deleted.as_array().unwrap().contains(item));
                patch.insert(format!("$deleteFromPrimitiveList/{name}"), deleted);
                if !is_ordered {
                    return;
                }
            }
            if is_ordered {
                let order = self.order(&items, Value::clone);
                patch.insert(format!("$setElementOrder/{name}"), order);
            }
            if !items.is_empty() || self.random.bool() {
                patch.insert(name.to_owned(), items.into());
            }
            return;
        };
        if is_ordered {
            let order = self.order(&items, |item| json!({key: item[key]}));
            patch.insert(format!("$setElementOrder/{name}"), order);
        }
        let mut items: Vec<_> = items
            .into_iter()
            .map(|item| self.directives(element, item))
            .collect();
        for _ in 0..self.below(3) {
            let at = self.below(items.len() + 1);
            let deleted = self.one_of(&["a", "b", "c", "d"]);
            items.insert(at, json!({key: deleted, "$patch": "delete"}));
        }
        if self.chance(15) {
            items.push(json!({"$patch": "replace"}));
        }
        patch.insert(name.to_owned(), items.into());
    }

    /// Returns an order with all items and some others, which is sometimes not that of the items.
    fn order(&mut self, items: &[Value], key: impl Fn(&Value) -> Value) -> Value {
        let mut order: Vec<Value> = items.iter().map(&key).collect();
        for _ in 0..self.below(4) {
            let at = self.below(order.len() + 1);
            let name = Value::from(self.one_of(&["a", "b", "c", "d"]));
            let sample = items.first().map(&key);
            let other = match sample.as_ref().and_then(Value::as_object) {
                Some(sample) => sample
                    .keys()
                    .map(|key| (key.clone(), name.clone()))
                    .collect(),
                None if sample.is_some() => name,
                None => return json!([]),
            };
            order.insert(at, other);
        }
        if self.chance(10) {
            order.reverse();
        }
        order.into()
    }

    /// Returns an object without a schema.
    pub(crate) fn members(&mut self, levels: usize) -> Value {
        let mut object = Map::new();
        for _ in 0..self.below(4) {
            let key = self.one_of(&["a", "b", "c", "0"]).to_owned();
            object.insert(key, self.value(levels.saturating_sub(1)));
        }
        object.into()
    }

    /// Returns a value without a schema.
    pub(crate) fn value(&mut self, levels: usize) -> Value {
        match self.below(if levels == 0 { 5 } else { 9 }) {
            0 => Value::Null,
            1 => self.random.bool().into(),
            2 => self.random.i64(-3..3).into(),
            3 => json!(f64::from(self.random.i32(-3..3)) / 4.0),
            4 => self.one_of(&["", "a", "b"]).into(),
            5 | 6 => (0..self.below(4)).map(|_| self.value(levels - 1)).collect(),
            _ => self.members(levels),
        }
    }

    /// Returns an operation of a JSON patch.
    pub(crate) fn operation(&mut self) -> Value {
        let op = self.one_of(&["add", "remove", "replace", "move", "copy", "test", "other"]);
        json!({"op": op, "path": self.pointer(), "from": self.pointer(), "value": self.value(2)})
    }

    fn pointer(&mut self) -> String {
        let parts = ["a", "b", "c", "0", "1", "-", "-1", "+1", "01", "~0", ""];
        let parts: Vec<_> = (0..self.below(4))
            .map(|_| format!("/{}", self.one_of(&parts)))
            .collect();
        parts.concat()
    }

    /// Returns a text without quotes that YAML may read as a number or the like.
    pub(crate) fn scalar(&mut self) -> String {
        if self.chance(4) {
            let words = [
                "yes",
                "No",
                "ON",
                "off",
                "~",
                "null",
                "NULL",
                "true",
                "y",
                "n",
                ".inf",
                "<<",
                "=",
                "0x1F",
                "0o17",
                "1_000",
                "1e3",
                "12:30:45",
                "2001-01-01",
                "+.5",
                "0b11",
                "1e400",
                "-0",
                "017",
                "1.",
                "9223372036854775808",
                "18446744073709551616",
                "1.7976931348623157e308",
                "1e-400",
            ];
            return self.one_of(&words).to_owned();
        }
        let letters: Vec<char> = "-+0123456789._exobEXyn~:".chars().collect();
        let length = 1 + self.below(6);
        let text: String = (0..length)
            .map(|_| letters[self.below(letters.len())])
            .collect();
        // Colons and dashes before brackets have a meaning in YAML 1.2.
        text.trim_end_matches([':', '-']).to_owned()
    }

    /// Returns a text of letters that matter in YAML.
    pub(crate) fn text(&mut self) -> String {
        let letters: Vec<char> =
            "ab1 \n\t:#-?,[]{}&*!|>'\"%@`\\.~=<\u{7}\u{85}\u{a0}\u{2028}\u{e9}\u{1f600}\u{feff}"
                .chars()
                .collect();
        (0..self.below(9))
            .map(|_| letters[self.below(letters.len())])
            .collect()
    }

    /// Returns JSON with duplicate fields.
    pub(crate) fn duplicated(&mut self, levels: usize) -> String {
        if levels == 0 || self.chance(3) {
            return self.value(1).to_string();
        }
        let count = self.below(4);
        let mut items = Vec::new();
        let is_list = self.chance(3);
        for _ in 0..count {
            let value = self.duplicated(levels - 1);
            items.push(if is_list {
                value
            } else {
                format!("{:?}: {value}", self.one_of(&["a", "b", "c.d"]))
            });
        }
        let items = items.join(", ");
        if is_list {
            format!("[{items}]")
        } else {
            format!("{{{items}}}")
        }
    }

    /// Changes letters of a text.
    pub(crate) fn damaged(&mut self, text: &str) -> String {
        let mut letters: Vec<char> = text.chars().collect();
        for _ in 0..self.below(3) {
            let at = self.below(letters.len() + 1);
            let wrong: Vec<char> = "{}[],:\"\\ 0123-+.eEtrufalsn\u{1}x".chars().collect();
            let letter = wrong[self.below(wrong.len())];
            match self.below(3) {
                0 => letters.insert(at, letter),
                1 if at < letters.len() => {
                    letters.remove(at);
                }
                _ if at < letters.len() => letters[at] = letter,
                _ => {}
            }
        }
        letters.into_iter().collect()
    }
}
