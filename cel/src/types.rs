//! The types of expressions.

use std::fmt;
use std::sync::Arc;

/// The type of an expression, as the checker finds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Any type; it is known only when the expression is evaluated.
    Dyn,
    /// The type of what could not be checked.
    Error,
    /// The type of `null`.
    Null,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// A list of items of one type.
    List(Arc<Type>),
    /// A map from keys to values.
    Map(Arc<Type>, Arc<Type>),
    /// An object with declared fields, or a type of a library, by its name.
    Struct(Arc<str>),
    /// A type with parameters that has no fields, such as `optional_type`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A parameter of a function, or a type that is not yet known.
    Param(Arc<str>),
}

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// Returns the type of lists of a type.
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    /// Returns the type of maps.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// Returns the type of optional values of a type.
    pub fn optional(value: Self) -> Self {
        Self::Opaque(OPTIONAL.into(), Arc::new([value]))
    }

    /// Returns the type of objects with a name.
    pub fn object(name: &str) -> Self {
        Self::Struct(name.into())
    }

    /// Returns the type of the value of an optional type.
    pub(crate) fn optional_value(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Returns the parameters of a type.
    pub(crate) fn parameters(&self) -> Vec<Self> {
        match self {
            Self::List(item) => vec![(**item).clone()],
            Self::Map(key, value) => vec![(**key).clone(), (**value).clone()],
            Self::Opaque(_, parameters) => parameters.to_vec(),
            Self::Type(Some(of)) => vec![(**of).clone()],
            _ => Vec::new(),
        }
    }

    /// Returns the name of a type with those of its parameters, as errors about results show it.
    pub fn full_name(&self) -> String {
        let parameters = self.parameters();
        if parameters.is_empty() {
            return self.name().to_owned();
        }
        let parameters: Vec<_> = parameters.iter().map(Self::full_name).collect();
        format!("{}({})", self.name(), parameters.join(", "))
    }

    /// Returns the name of a type, as `type(x)` shows it.
    pub fn name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "*error*",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Type(_) => "type",
            Self::Struct(name) | Self::Opaque(name, _) | Self::Param(name) => name,
        }
    }
}

/// The text of the type in errors, such as `list(int)`.
impl fmt::Display for Type {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => out.write_str("!error!"),
            Self::Null => out.write_str("null"),
            Self::Duration => out.write_str("duration"),
            Self::Timestamp => out.write_str("timestamp"),
            _ => {
                out.write_str(self.name())?;
                let parameters = self.parameters();
                for (index, parameter) in parameters.iter().enumerate() {
                    out.write_str(if index == 0 { "(" } else { ", " })?;
                    write!(out, "{parameter}")?;
                }
                out.write_str(if parameters.is_empty() { "" } else { ")" })
            }
        }
    }
}
