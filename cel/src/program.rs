//! Compiled expressions.

use std::fmt;

use crate::activation::Activation;
use crate::check::check;
use crate::cost::{CostEstimate, estimate};
use crate::environment::Environment;
use crate::eval::{Plan, plan, run};
use crate::fault::EvaluationError;
use crate::syntax::{Issue, Issues, parse};
use crate::types::Type;
use crate::values::Value;

/// The maximum cost of one evaluation in Kubernetes.
pub const CALL_COST_MAX: u64 = 1_000_000;

/// An expression that was checked and can be evaluated.
#[derive(Debug)]
pub struct Program {
    plan: Plan,
    of: Type,
    estimate: CostEstimate,
    variables: Vec<String>,
}

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Errors of syntax or of types.
    #[error("{0}")]
    Invalid(CompileIssues),
    /// A constant part of it has no value.
    #[error("{0}")]
    Plan(String),
}

/// The errors in an expression. The text is that of kube-apiserver, with the line of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileIssues {
    source: String,
    /// The errors, by position.
    pub issues: Vec<Issue>,
}

impl fmt::Display for CompileIssues {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            issue.write(&self.source, out)?;
        }
        Ok(())
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The value.
    pub result: Result<Value, EvaluationError>,
    /// The cost. If it reached the limit, a value above the limit.
    pub cost: u64,
}

impl Environment {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// The expression is no valid one, or its types do not fit.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let mut issues = Issues::default();
        let parsed = parse(source, &mut issues);
        let invalid = |issues: Issues| {
            CompileError::Invalid(CompileIssues {
                source: source.to_owned(),
                issues: issues.into_list(),
            })
        };
        let Some(mut parsed) = parsed else {
            return Err(invalid(issues));
        };
        let found = check(&mut parsed, self, &mut issues);
        if !issues.is_empty() {
            return Err(invalid(issues));
        }
        let of = found.type_of(&parsed.root).clone();
        let estimate = estimate(&parsed.root, &found, self);
        let plan = plan(&parsed.root, &found).map_err(CompileError::Plan)?;
        Ok(Program {
            plan,
            of,
            estimate,
            variables: found.variables,
        })
    }
}

impl Program {
    /// Returns the type of the result.
    pub fn result_type(&self) -> &Type {
        &self.of
    }

    /// Returns the lowest and highest cost that an evaluation can have, from the schemas of the variables.
    pub fn estimate(&self) -> CostEstimate {
        self.estimate
    }

    /// Returns the variables of the environment that it uses.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// Evaluates the expression. It ends when its cost is above the limit.
    pub fn evaluate(&self, variables: &[(&str, Value)], cost_max: u64) -> Evaluation {
        self.evaluate_in(&variables, cost_max)
    }

    /// Evaluates the expression with variables that may be computed when they are used. It ends when its cost is above
    /// the limit; what it costs to compute variables is not part of it.
    pub fn evaluate_in(&self, activation: &dyn Activation, cost_max: u64) -> Evaluation {
        let (result, cost) = run(&self.plan, activation, cost_max);
        Evaluation { result, cost }
    }
}
