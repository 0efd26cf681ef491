//! Maps, and objects with fields.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Value;
use super::number::{double_to_int, double_to_uint};

/// A map, or an object whose fields have their names in expressions as keys.
#[derive(Clone, Debug, Default)]
pub struct Map(Arc<Entries>);

#[derive(Clone, Debug, Default)]
struct Entries {
    visible: BTreeMap<Key, Value>,
    /// The fields that expressions do not see: they have no schema, or are null.
    hidden: BTreeMap<String, serde_json::Value>,
}

/// The key of an entry.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
}

impl Key {
    /// Returns the key that a value is, if it can be one.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => Self::Uint(*value),
            Value::Double(value) => Self::Double(*value),
            Value::String(text) => Self::String(text.clone()),
            _ => return None,
        })
    }

    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Double(value) => Value::Double(*value),
            Self::String(text) => Value::String(text.clone()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) => 1,
            Self::Uint(_) => 2,
            Self::Double(_) => 3,
            Self::String(_) => 4,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => left.cmp(right),
            (Self::Int(left), Self::Int(right)) => left.cmp(right),
            (Self::Uint(left), Self::Uint(right)) => left.cmp(right),
            (Self::Double(left), Self::Double(right)) => left.total_cmp(right),
            (Self::String(left), Self::String(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl Map {
    pub(crate) fn new(entries: impl IntoIterator<Item = (Key, Value)>) -> Self {
        Self(Arc::new(Entries {
            visible: entries.into_iter().collect(),
            hidden: BTreeMap::new(),
        }))
    }

    pub(crate) fn object(
        visible: BTreeMap<Key, Value>,
        hidden: BTreeMap<String, serde_json::Value>,
    ) -> Self {
        Self(Arc::new(Entries { visible, hidden }))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.visible.len() + self.0.hidden.len()
    }

    pub(crate) fn hidden(&self) -> &BTreeMap<String, serde_json::Value> {
        &self.0.hidden
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.0.visible.iter()
    }

    pub(crate) fn get_str(&self, name: &str) -> Option<&Value> {
        self.0.visible.get(&Key::String(name.into()))
    }

    /// Returns the value of a key. Numbers of different types are the same key if they are equal.
    pub(crate) fn get(&self, key: &Key) -> Option<&Value> {
        let visible = &self.0.visible;
        if let Some(value) = visible.get(key) {
            return Some(value);
        }
        let (int, uint) = match key {
            Key::Int(value) => (None, u64::try_from(*value).ok()),
            Key::Uint(value) => (i64::try_from(*value).ok(), None),
            Key::Double(value) => (double_to_int(*value), double_to_uint(*value)),
            _ => return None,
        };
        #[expect(
            clippy::cast_precision_loss,
            clippy::float_cmp,
            reason = "only exact values"
        )]
        let exact = match key {
            Key::Double(value) => (
                int.filter(|int| *int as f64 == *value),
                uint.filter(|uint| *uint as f64 == *value),
            ),
            _ => (int, uint),
        };
        let int = exact.0.and_then(|int| visible.get(&Key::Int(int)));
        int.or_else(|| exact.1.and_then(|uint| visible.get(&Key::Uint(uint))))
    }

    /// Adds an entry. Copies the map only if it is shared. Returns whether the key was new.
    pub(crate) fn insert(&mut self, key: Key, value: Value) -> bool {
        let is_new = self.get(&key).is_none();
        if is_new {
            Arc::make_mut(&mut self.0).visible.insert(key, value);
        }
        is_new
    }
}
