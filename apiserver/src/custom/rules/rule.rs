//! One rule.

use revstore_cel::{Declared, Environment, Program, Type};
use serde_json::Value;

use super::field_path;

/// A rule that was compiled.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    pub(super) message: String,
    pub(super) reason: String,
    /// The field below its schema that its errors name.
    pub(super) field: Option<String>,
    /// Whether `oldSelf` is an optional value.
    pub(super) is_optional_old: bool,
    /// The program, or why there is none. `None` if the rule is empty.
    pub(super) program: Option<Result<Program, String>>,
    pub(super) message_program: Option<Result<Program, String>>,
}

impl Rule {
    /// Compiles a rule of a schema.
    pub(super) fn compile(rule: &Value, schema: &Value, declared: &Declared) -> Self {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_optional_old = rule["optionalOldSelf"] == true;
        let environment = Environment::new().with_declared("self", declared);
        let environment = if is_optional_old {
            environment.with_optional("oldSelf", declared)
        } else {
            environment.with_declared("oldSelf", declared)
        };
        let expression = text("rule");
        let program = (!expression.trim().is_empty()).then(|| {
            compile(
                &environment,
                expression,
                &Type::Bool,
                ["", "cel expression", "a bool"],
            )
        });
        let computed = text("messageExpression");
        let is_compiled = matches!(program, Some(Ok(_)));
        let message_program = (is_compiled && !computed.is_empty()).then(|| {
            let words = ["messageExpression ", "messageExpression", "a string"];
            compile(&environment, computed, &Type::String, words)
        });
        let path = text("fieldPath");
        Self {
            text: expression.trim().to_owned(),
            message: text("message").trim().to_owned(),
            reason: text("reason").to_owned(),
            field: field_path::normalize(path, schema).filter(|_| !path.is_empty()),
            is_optional_old,
            program,
            message_program,
        }
    }

    /// Returns whether the rule compares an object with its old version.
    pub(super) fn uses_old(&self) -> bool {
        match &self.program {
            Some(Ok(program)) => program.variables().iter().any(|name| name == "oldSelf"),
            _ => false,
        }
    }

    /// Returns what names the rule in errors.
    pub(super) fn name(&self) -> &str {
        if self.message.is_empty() {
            &self.text
        } else {
            &self.message
        }
    }
}

/// Compiles an expression. `words` are parts of the errors.
fn compile(
    environment: &Environment,
    expression: &str,
    expected: &Type,
    words: [&str; 3],
) -> Result<Program, String> {
    let [prefix, what, of] = words;
    let program = environment
        .compile(expression)
        .map_err(|error| match error {
            revstore_cel::CompileError::Invalid(issues) => {
                format!("{prefix}compilation failed: {issues}")
            }
            revstore_cel::CompileError::Plan(reason) if prefix.is_empty() => {
                format!("program instantiation failed: {reason}")
            }
            revstore_cel::CompileError::Plan(reason) => {
                format!("{prefix}instantiation failed: {reason}")
            }
        })?;
    if program.result_type() != expected {
        return Err(format!("{what} must evaluate to {of}"));
    }
    Ok(program)
}
