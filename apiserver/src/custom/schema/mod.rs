//! Structural schemas of custom resources: the rules that a schema must follow, and pruning, defaulting
//! and validation of objects by it.

mod causes;
mod default;
mod embedded;
mod node;
mod object_meta;
mod path;
mod prune;
mod structural;
mod supported;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use causes::Causes;
pub use causes::{CAUSE_BYTES_MAX, CAUSES_MAX};
pub use default::{DEFAULT_BYTES_MAX, DefaultsTooLarge};
pub(crate) use embedded::{Coercion, coerce_metadata};
pub(crate) use node::Additional;
pub use node::{SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX, SCHEMA_PATTERNS_MAX, Schema, SchemaError};
pub(crate) use object_meta::kind_of;
pub(crate) use path::Path;
pub use revstore_cel::{PATTERN_BYTES_MAX, PATTERN_WEIGHT_MAX};
pub use value::VALIDATION_COST_MAX;
pub(crate) use value::format::is_uri;
pub(crate) use value::number::exact as exact_integer;
