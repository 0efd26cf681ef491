//! The values of expressions.

mod authorization;
mod equal;
mod json;
mod list;
mod map;
mod net;
mod number;
mod object;
mod quantity;
mod semver;
mod show;
mod text_format;
mod time;
mod url;

use std::net::IpAddr;
use std::sync::Arc;

pub use authorization::{AccessAttributes, AccessDecision, Authorizer};
pub(crate) use authorization::{Authorization, Check};
pub(crate) use list::{List, ListKind};
pub(crate) use map::{Key, Map};
pub(crate) use net::{Cidr, parse_cidr, parse_ip};
pub(crate) use number::{compare_numbers, double_to_int, double_to_uint};
pub(crate) use object::Object;
pub(crate) use quantity::Quantity;
pub(crate) use semver::Semver;
pub(crate) use show::{double_text, go_quote};
pub use text_format::{is_date, is_date_time, is_duration};
pub(crate) use text_format::{read_date_time, read_duration};
pub(crate) use time::{
    NANOS, Timestamp, duration_text, parse_date, parse_duration, parse_timestamp,
};
pub use url::Url;

use crate::format::Format;

/// A value.
///
/// Clones are cheap: strings, lists and maps are shared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// A text.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A span of time, in nanoseconds.
    Duration(i64),
    /// A point in time.
    #[doc(hidden)]
    Timestamp(Timestamp),
    /// A list.
    #[doc(hidden)]
    List(List),
    /// A map, or an object with fields.
    #[doc(hidden)]
    Map(Map),
    /// An object that an expression makes, with the name of its type.
    #[doc(hidden)]
    Object(Arc<Object>),
    /// The name of a type.
    Type(Arc<str>),
    /// An optional value.
    Optional(Option<Arc<Value>>),
    /// An amount of a resource, such as `100Mi`.
    #[doc(hidden)]
    Quantity(Quantity),
    /// An address.
    Ip(IpAddr),
    /// A range of addresses.
    #[doc(hidden)]
    Cidr(Cidr),
    /// A URL.
    #[doc(hidden)]
    Url(Arc<Url>),
    /// A semantic version.
    #[doc(hidden)]
    Semver(Arc<Semver>),
    /// A named format of texts.
    #[doc(hidden)]
    Format(&'static Format),
    /// A question about access, or its answer.
    #[doc(hidden)]
    Authorization(Arc<Authorization>),
    /// Data of an object without a schema. It can only be compared.
    #[doc(hidden)]
    Unknown(Arc<serde_json::Value>),
    /// Data that does not match its schema: why. Its use is an error.
    #[doc(hidden)]
    Invalid(Arc<str>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl Value {
    /// Makes a list.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(List::new(items))
    }

    /// Makes a map with texts as keys.
    pub fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(Map::new(entries.into_iter().map(|(key, value)| {
            let key: String = key.into();
            (Key::String(key.into()), value)
        })))
    }

    /// Makes a value from JSON for which there is no schema.
    pub fn from_json(json: &serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(value) => Self::Int(value),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Self::from(text.as_str()),
            serde_json::Value::Array(items) => {
                Self::list(items.iter().map(Self::from_json).collect())
            }
            serde_json::Value::Object(fields) => Self::map(
                fields
                    .iter()
                    .map(|(key, value)| (key.as_str(), Self::from_json(value))),
            ),
        }
    }

    /// Makes an optional value.
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Makes the value of a variable through which expressions ask what a user may do.
    pub fn authorizer(authorizer: Arc<dyn Authorizer>, user: &str) -> Self {
        let inner = Authorization::Authorizer {
            authorizer,
            user: user.into(),
            is_service_account: false,
        };
        Self::Authorization(Arc::new(inner))
    }

    /// Makes the value of a variable through which expressions ask what a user may do with a resource.
    pub fn resource_check(authorizer: Arc<dyn Authorizer>, access: AccessAttributes) -> Self {
        let check = Check { authorizer, access };
        Self::Authorization(Arc::new(Authorization::Check(Box::new(check))))
    }

    /// Returns the names of types in an object that are not those of the fields in which they are, as texts of errors.
    pub fn type_mismatches(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Self::Object(object) = self {
            object.mismatches(object.name(), &mut found);
        }
        found
    }

    /// Returns the items of a list.
    pub fn items(&self) -> Vec<Self> {
        match self {
            Self::List(list) => list.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the entry of a map, or the field of an object by its name in expressions.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Map(map) => map.get_str(name),
            Self::Object(object) => object.fields().get_str(name),
            _ => None,
        }
    }

    /// Returns the item of a list.
    pub fn item(&self, index: usize) -> Option<Self> {
        match self {
            Self::List(list) => list.get(index),
            _ => None,
        }
    }

    /// Returns the name of the type.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(object) => object.name(),
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorization(inner) => inner.type_name(),
            Self::Unknown(_) => "unknown",
            Self::Invalid(_) => "*error*",
        }
    }

    /// Returns the number of characters, bytes, items or entries, if the value has a size.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Self::String(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(list) => Some(list.len()),
            Self::Map(map) => Some(map.len()),
            _ => None,
        }
    }

    /// Returns whether the value is the zero value of its type.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) | Self::Duration(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.len() == 0,
            Self::Map(map) => map.len() == 0,
            Self::Object(object) => object.fields().len() == 0,
            Self::Optional(inner) => inner.as_ref().is_none_or(|value| value.is_zero()),
            Self::Timestamp(time) => time.is_zero(),
            _ => false,
        }
    }
}
