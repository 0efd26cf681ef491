//! The expression language [CEL](https://cel.dev) as Kubernetes 1.36 uses it.
//!
//! An expression is parsed, its types are checked, and its cost is estimated when it is compiled. An evaluation counts
//! its cost and ends at a limit, so that no expression can hold a thread for long. Types, values, errors and costs are
//! those of kube-apiserver.
//!
//! ```
//! use revstore_cel::{CALL_COST_MAX, Declared, Environment, to_value};
//! use serde_json::json;
//!
//! let schema = json!({"type": "object", "properties": {
//!     "min": {"type": "integer"},
//!     "max": {"type": "integer"},
//!     "names": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 63}},
//! }});
//! let declared = Declared::from_schema(&schema, "Object", false).unwrap();
//! let environment = Environment::new().with_declared("self", &declared);
//!
//! let rule = environment.compile("self.min <= self.max && self.names.all(n, n.startsWith('a'))").unwrap();
//! assert!(rule.estimate().max < 1_000);
//!
//! let data = to_value(&json!({"min": 1, "max": 2, "names": ["ab", "b"]}), &schema, false);
//! let evaluation = rule.evaluate(&[("self", data)], CALL_COST_MAX);
//! assert_eq!(evaluation.result.unwrap().as_bool(), Some(false));
//!
//! let error = environment.compile("self.minimum > 0").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "ERROR: <input>:1:5: undefined field 'minimum'\n | self.minimum > 0\n | ....^",
//! );
//! ```
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
pub use values::{AccessAttributes, AccessDecision, Authorizer, Url, Value};
pub use work::WORK_MAX;
