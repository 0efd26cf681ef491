//! The variables of an evaluation.

use crate::fault::EvaluationError;
use crate::values::Value;

/// The variables of an evaluation.
pub trait Activation {
    /// Returns the value of a variable.
    fn variable(&self, name: &str) -> Option<Value>;

    /// Returns a field of a variable whose fields are computed when they are used. `None`: the variable is not such a
    /// one.
    fn field(&self, variable: &str, field: &str) -> Option<Result<Value, EvaluationError>> {
        let _ = (variable, field);
        None
    }
}

impl Activation for &[(&str, Value)] {
    fn variable(&self, name: &str) -> Option<Value> {
        let found = self.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| value.clone())
    }
}
