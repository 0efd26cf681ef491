#![doc = include_str!("../README.md")]
//!
//! # Bounds
//!
//! - An expression has at most [`SOURCE_CHARS_MAX`] characters, and a rule of the grammar the depth [`DEPTH_MAX`].
//! - An evaluation costs at most what its caller allows; Kubernetes allows [`CALL_COST_MAX`]. Work that has no cost in
//!   the language, such as the comparison of lists in lists, ends at [`WORK_MAX`].
//! - A pattern has at most [`PATTERN_BYTES_MAX`] bytes, and its automaton about [`PATTERN_WEIGHT_MAX`] states.

mod activation;
mod check;
mod cost;
mod declarations;
mod environment;
mod eval;
mod fault;
mod format;
mod functions;
mod pattern;
mod program;
mod regexp;
mod schema;
mod syntax;
mod types;
mod values;
mod work;

pub use activation::Activation;
pub use cost::CostEstimate;
pub use environment::Environment;
pub use fault::EvaluationError;
pub use program::{CALL_COST_MAX, CompileError, CompileIssues, Evaluation, Program};
pub use regexp::{PATTERN_BYTES_MAX, PATTERN_WEIGHT_MAX, translate};
pub use schema::{Declared, escape, is_reserved, max_cardinality, to_value, unescape};
pub use syntax::{DEPTH_MAX, Issue, Position, SOURCE_CHARS_MAX};
pub use types::Type;
pub use values::{
    AccessAttributes, AccessDecision, Authorizer, Url, Value, is_date, is_date_time, is_duration,
};
pub use work::WORK_MAX;
