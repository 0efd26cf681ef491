//! What is wrong with an object.

use std::fmt;

/// A field that the type of its object does not have. `Display` writes it as a warning has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// The path of the field, such as `spec.containers[0].nope`.
    pub path: String,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown field {:?}", self.path)
    }
}

/// A value that does not fit its type. The texts are those of Go's decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A value of another JSON type, a number without an integer value, or one out of range.
    #[error("json: cannot unmarshal {value} into Go {} of type {ty}", place(.field))]
    Type {
        /// What there is: `string`, `object`, `number 1.5` ...
        value: String,
        /// The innermost Go struct with the path of the field, such as `DeploymentSpec.spec.replicas`; empty at the top.
        field: String,
        /// The Go type that is expected.
        ty: String,
    },
    /// A text that is no quantity, time or base64, or a value that is no JSON schema.
    #[error("{message}")]
    Text {
        /// The error of the decoder of the type.
        message: String,
        /// The path of the value, such as `spec.containers[0].resources.limits.cpu`.
        path: String,
    },
    /// Objects are nested too deeply.
    #[error("exceeded max depth")]
    TooDeep,
    /// There are too many objects in the object.
    #[error("too many objects")]
    TooMany,
}

fn place(field: &str) -> String {
    if field.is_empty() {
        "value".to_owned()
    } else {
        format!("struct field {field}")
    }
}
