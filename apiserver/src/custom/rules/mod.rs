//! The rules of schemas in CEL, `x-kubernetes-validations`: their check when a definition is written, and their
//! evaluation when an object is.

mod check;
mod field_path;
mod rule;
#[cfg(test)]
mod tests;
mod tree;
mod validate;

pub(crate) use check::check;
pub(crate) use tree::{Node, Rules};

/// The maximum cost of all rules for one object.
pub(crate) const OBJECT_COST_MAX: i64 = 10_000_000;
/// The maximum estimated cost of a rule, for all places of an object to which it applies.
pub(crate) const RULE_ESTIMATE_MAX: u64 = 10_000_000;
/// The maximum estimated cost of all rules of a schema.
pub(crate) const SCHEMA_ESTIMATE_MAX: u64 = 100_000_000;
