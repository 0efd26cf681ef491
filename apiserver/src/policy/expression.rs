//! What the expressions of policies and match conditions can refer to, and their compilation.

use revstore_cel::{CompileError, Declared, Environment, Program, Type};

/// The type of the variable `variables`.
const VARIABLES_TYPE: &str = "kubernetes.variables";
/// The type of an apply configuration.
pub(crate) const OBJECT_TYPE: &str = "Object";
/// The type of an operation of a JSON patch.
pub(crate) const JSON_PATCH_TYPE: &str = "JSONPatch";

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is wrong.
    Invalid(String),
    /// It has no program.
    Internal(String),
}

impl Refusal {
    /// Returns the reason.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Invalid(text) | Self::Internal(text) => text,
        }
    }
}

/// What an expression is for, which decides what it can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A condition, a validation, a variable, or an audit annotation.
    Decision,
    /// A message: it has no authorizer.
    Message,
    /// A mutation.
    Patch,
}

/// Compiles the expressions of one policy or webhook.
#[derive(Debug)]
pub(crate) struct Compiler {
    decision: Environment,
    message: Environment,
    /// Made when it is first used.
    patch: Option<Environment>,
}

impl Compiler {
    /// Returns a compiler. `has_params`: there is the variable `params`. `is_composed`: there is `variables`, whose
    /// fields are those that [`Self::add_variable`] adds.
    pub(crate) fn new(has_params: bool, is_composed: bool) -> Self {
        let mut message = base();
        if has_params {
            message = message.with_variable("params", Type::Dyn);
        }
        if is_composed {
            message = message
                .with_structure(VARIABLES_TYPE, [("", Type::Dyn); 0])
                .with_variable("variables", Type::object(VARIABLES_TYPE));
        }
        let authorization = |name: &str| Type::object(&format!("kubernetes.authorization.{name}"));
        let decision = message
            .clone()
            .with_variable("authorizer", authorization("Authorizer"))
            .with_variable("authorizer.requestResource", authorization("ResourceCheck"));
        Self {
            decision,
            message,
            patch: None,
        }
    }

    /// Returns a compiler that knows the type of the object and perhaps that of the parameters, for [`Self::issues`].
    pub(super) fn typed(object: &Declared, has_params: bool, params: Option<&Declared>) -> Self {
        let mut environment = base()
            .with_declared("object", object)
            .with_variable("oldObject", object.cel_type().clone())
            .with_structure(VARIABLES_TYPE, [("", Type::Dyn); 0])
            .with_variable("variables", Type::object(VARIABLES_TYPE))
            .with_variable(
                "authorizer",
                Type::object("kubernetes.authorization.Authorizer"),
            );
        environment = match params {
            Some(params) => environment.with_declared("params", params),
            None if has_params => environment.with_variable("params", Type::Dyn),
            None => environment,
        };
        Self {
            decision: environment.clone(),
            message: environment,
            patch: None,
        }
    }

    /// Returns what the parser and the checker find in an expression.
    pub(super) fn issues(&self, source: &str) -> Option<String> {
        match self.decision.compile(source) {
            Err(CompileError::Invalid(issues)) => Some(issues.to_string()),
            Ok(_) | Err(CompileError::Plan(_)) => None,
        }
    }

    /// Compiles an expression, whose type must be one of those expected.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn compile(
        &mut self,
        source: &str,
        purpose: Purpose,
        expected: &[Type],
    ) -> Result<Program, Refusal> {
        let program = self.compile_any(source, purpose)?;
        if expected.contains(program.result_type()) {
            return Ok(program);
        }
        let found = program.result_type().full_name();
        Err(Refusal::Invalid(match expected {
            [one] => format!("must evaluate to {} but got {found}", one.full_name()),
            several => {
                let names: Vec<_> = several.iter().map(Type::full_name).collect();
                format!(
                    "must evaluate to one of [{}] but got {found}",
                    names.join(" ")
                )
            }
        }))
    }

    fn compile_any(&mut self, source: &str, purpose: Purpose) -> Result<Program, Refusal> {
        let environment = match purpose {
            Purpose::Decision => &self.decision,
            Purpose::Message => &self.message,
            Purpose::Patch => {
                let decision = &self.decision;
                self.patch
                    .get_or_insert_with(|| decision.clone().with_patch_types())
            }
        };
        environment.compile(source).map_err(|error| match error {
            CompileError::Invalid(issues) => {
                Refusal::Invalid(format!("compilation failed: {issues}"))
            }
            CompileError::Plan(reason) => {
                Refusal::Internal(format!("program instantiation failed: {reason}"))
            }
        })
    }

    /// Compiles the expression of a variable, which the expressions that follow can use, even if it is wrong.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn add_variable(&mut self, name: &str, source: &str) -> Result<Program, Refusal> {
        let program = self.compile_any(source, Purpose::Decision);
        let of = match &program {
            Ok(program) => field_type(program.result_type()),
            Err(_) => Type::Dyn,
        };
        let environments = [&mut self.decision, &mut self.message];
        for environment in environments.into_iter().chain(&mut self.patch) {
            environment.add_field(VARIABLES_TYPE, name, of.clone());
        }
        program
    }
}

/// Returns the type of a variable whose expression has a type.
fn field_type(of: &Type) -> Type {
    match of {
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => of.clone(),
        Type::List(item) => Type::list(field_type(item)),
        Type::Map(key, value) => Type::map(field_type(key), field_type(value)),
        _ => Type::Dyn,
    }
}

/// Returns the variables that all expressions have.
fn base() -> Environment {
    let texts = |names: &[&'static str]| -> Vec<(&'static str, Type)> {
        names.iter().map(|name| (*name, Type::String)).collect()
    };
    let strings = || Type::list(Type::String);
    let string_map = || Type::map(Type::String, Type::String);
    let user = [
        ("username", Type::String),
        ("uid", Type::String),
        ("groups", strings()),
        ("extra", Type::map(Type::String, strings())),
    ];
    let request = [
        ("kind", Type::object("kubernetes.GroupVersionKind")),
        ("resource", Type::object("kubernetes.GroupVersionResource")),
        ("subResource", Type::String),
        ("requestKind", Type::object("kubernetes.GroupVersionKind")),
        (
            "requestResource",
            Type::object("kubernetes.GroupVersionResource"),
        ),
        ("requestSubResource", Type::String),
        ("name", Type::String),
        ("namespace", Type::String),
        ("operation", Type::String),
        ("userInfo", Type::object("kubernetes.UserInfo")),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ];
    let condition = [
        ("status", Type::String),
        ("type", Type::String),
        ("lastTransitionTime", Type::Timestamp),
        ("message", Type::String),
        ("reason", Type::String),
    ];
    let metadata = [
        ("name", Type::String),
        ("generateName", Type::String),
        ("namespace", Type::String),
        ("labels", string_map()),
        ("annotations", string_map()),
        ("UID", Type::String),
        ("creationTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Timestamp),
        ("generation", Type::Int),
        ("resourceVersion", Type::String),
        ("finalizers", strings()),
    ];
    let conditions = Type::list(Type::object("kubernetes.NamespaceCondition"));
    let namespace = [
        ("metadata", Type::object("kubernetes.NamespaceMetadata")),
        ("spec", Type::object("kubernetes.NamespaceSpec")),
        ("status", Type::object("kubernetes.NamespaceStatus")),
    ];
    Environment::new()
        .with_structure(
            "kubernetes.GroupVersionKind",
            texts(&["group", "version", "kind"]),
        )
        .with_structure(
            "kubernetes.GroupVersionResource",
            texts(&["group", "version", "resource"]),
        )
        .with_structure("kubernetes.UserInfo", user)
        .with_structure("kubernetes.AdmissionRequest", request)
        .with_structure("kubernetes.NamespaceSpec", [("finalizers", strings())])
        .with_structure("kubernetes.NamespaceCondition", condition)
        .with_structure(
            "kubernetes.NamespaceStatus",
            [("conditions", conditions), ("phase", Type::String)],
        )
        .with_structure("kubernetes.NamespaceMetadata", metadata)
        .with_structure("kubernetes.Namespace", namespace)
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_variable("request", Type::object("kubernetes.AdmissionRequest"))
        .with_variable("namespaceObject", Type::object("kubernetes.Namespace"))
}
