//! What the functions do.

mod access;
mod convert;
pub(crate) mod format_string;
mod library;
mod lists;
mod operators;
mod strings;
mod times;

pub(crate) use operators::compare;

use crate::fault::EvaluationError;
use crate::pattern::Patterns;
use crate::values::Value;
use crate::work::Work;

/// What functions share during one evaluation.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) work: Work,
    pub(crate) patterns: Patterns,
}

impl Context {
    pub(crate) fn new() -> Self {
        Self {
            work: Work::new(),
            patterns: Patterns::default(),
        }
    }
}

pub(crate) type Outcome = Result<Value, EvaluationError>;
/// A function. It checks the types of its arguments itself.
pub(crate) type Function = fn(&mut Context, &[Value]) -> Outcome;

/// Returns the function with a name.
pub(crate) fn find(name: &str) -> Option<Function> {
    operators::find(name)
        .or_else(|| convert::find(name))
        .or_else(|| strings::find(name))
        .or_else(|| lists::find(name))
        .or_else(|| times::find(name))
        .or_else(|| library::find(name))
        .or_else(|| access::find(name))
}
