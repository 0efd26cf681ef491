//! Request bodies and options: JSON and YAML as Kubernetes reads them, YAML output, and the options of
//! writes and deletions with kube-apiserver's checks.

mod delete_options;
mod error;
mod go_json;
mod json;
mod syntax;
mod write_options;
mod yaml;
mod yaml_scalar;
mod yaml_text;

pub use delete_options::{DeleteOptions, Propagation};
pub(crate) use error::json_type;
pub use error::{DecodeError, strict_message, strict_warnings, unhandled};
pub(crate) use json::object_from_json;
pub(crate) use json::{depth, int_or_float};
pub use json::{from_json, integral_floats_to_integers};
pub(crate) use write_options::field_manager_causes;
pub use write_options::{
    FieldValidation, MAX_FIELD_MANAGER_BYTES, WriteOptions, manager_or_user_agent,
};
pub use yaml::from_yaml;
pub use yaml_text::to_yaml;

use serde_json::Value;

/// The largest size of a request body, in bytes. A larger one is answered with 413.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// The deepest nesting of lists and objects in a request body. A deeper one is a decoding error.
///
/// kube-apiserver allows 10,000 levels. Here all parts of the server that read stored objects must be
/// able to recurse into them, also inside of a watch event or a list.
pub const MAX_DEPTH: usize = 120;

/// The largest number of strict errors that are reported for one body.
pub const MAX_STRICT_ERRORS: usize = 100;

/// The text format of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value. Where a field occurs twice it is the last one.
    pub value: Value,
    /// What strict decoding reports: duplicate fields, in their order in the body. With
    /// [`FieldValidation::Warn`] these are warnings (see [`strict_warnings`]), with
    /// [`FieldValidation::Strict`] the body is refused (see [`strict_message`]).
    pub strict: Vec<String>,
}

/// Decodes a body.
///
/// # Errors
/// [`DecodeError`] if the text is malformed, nested too deeply or contains too many aliases.
pub fn decode(body: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    match format {
        Format::Json => from_json(body),
        Format::Yaml => from_yaml(body),
    }
}
