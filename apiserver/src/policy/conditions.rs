//! Match conditions: expressions that say for which requests a policy or a webhook is.

use revstore_cel::Type;
use serde_json::Value;

use super::activation::{Bindings, Scene};
use super::definition::{Expression, Variables};
use super::expression::{Compiler, Purpose};

/// The maximum cost of all conditions of a policy or webhook for one request.
const CONDITIONS_COST_MAX: u64 = 2_500_000;

/// The match conditions of a policy or a webhook.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    expressions: Vec<Expression>,
    ignores_failures: bool,
}

impl Conditions {
    /// Compiles conditions, which are objects with the field `expression`. `ignores_failures`: one that cannot be
    /// evaluated counts as false, and not as an error.
    pub(crate) fn compile<'a>(
        compiler: &mut Compiler,
        conditions: impl Iterator<Item = &'a Value>,
        ignores_failures: bool,
    ) -> Self {
        let expressions = conditions.map(|condition| {
            let source = condition["expression"].as_str().unwrap_or_default();
            Expression {
                source: source.to_owned(),
                program: compiler.compile(source, Purpose::Decision, &[Type::Bool]),
            }
        });
        Self {
            expressions: expressions.collect(),
            ignores_failures,
        }
    }

    /// Returns whether all conditions hold for a request.
    ///
    /// # Errors
    /// Why they cannot be evaluated.
    pub(crate) async fn hold(
        &self,
        scene: &Scene,
        params: Option<&revstore_cel::Value>,
        variables: &Variables,
    ) -> Result<bool, String> {
        if self.expressions.is_empty() {
            return Ok(true);
        }
        let mut bindings = Bindings::new(scene, variables, params, true).without_namespace();
        let mut budget = CONDITIONS_COST_MAX;
        let mut errors = Vec::new();
        for expression in &self.expressions {
            match bindings.evaluate(expression, &mut budget).await {
                Err(_) if self.ignores_failures => return Ok(false),
                Err(error) => return Err(error),
                Ok(Ok(value)) if value.as_bool() == Some(false) => return Ok(false),
                Ok(Ok(_)) => {}
                Ok(Err(error)) if errors.contains(&error) => {}
                Ok(Err(error)) => errors.push(error),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if self.ignores_failures => Ok(false),
            [error] => Err(error.clone()),
            errors => Err(format!("[{}]", errors.join(", "))),
        }
    }
}
