//! Policies and bindings, as they are read from their objects.

use std::sync::OnceLock;

use revstore_cel::{Program, Type};
use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use super::conditions::Conditions;
use super::constraints::Constraints;
use super::expression::{Compiler, JSON_PATCH_TYPE, OBJECT_TYPE, Purpose, Refusal};
use crate::evaluation;

/// A policy.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    /// Whether requests pass if the policy cannot be evaluated.
    pub(crate) ignores_failures: bool,
    pub(crate) param_kind: Option<ParamKind>,
    pub(crate) constraints: Constraints,
    /// Whether it is called again when others have changed the object.
    pub(crate) is_reinvoked: bool,
    spec: Value,
    /// Compiled when it is first needed.
    evaluator: OnceLock<Evaluator>,
}

/// The kind of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamKind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

/// The compiled expressions of a policy.
#[derive(Debug)]
pub(crate) struct Evaluator {
    pub(crate) variables: Variables,
    pub(crate) conditions: Conditions,
    pub(crate) validations: Vec<Validation>,
    pub(crate) audits: Vec<Audit>,
    pub(crate) mutations: Vec<Mutation>,
}

/// Variables that expressions share, in their order.
#[derive(Debug, Default)]
pub(crate) struct Variables(pub(super) Vec<(String, Expression)>);

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) source: String,
    pub(crate) program: Result<Program, Refusal>,
}

#[derive(Debug)]
pub(crate) struct Validation {
    pub(crate) expression: Expression,
    pub(crate) message: String,
    pub(crate) computed: Option<Expression>,
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) key: String,
    pub(crate) expression: Expression,
}

#[derive(Debug)]
pub(crate) struct Mutation {
    pub(crate) is_json_patch: bool,
    pub(crate) expression: Expression,
}

/// A binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) name: String,
    pub(crate) policy: String,
    pub(crate) constraints: Option<Constraints>,
    pub(crate) param_ref: Option<ParamRef>,
    pub(crate) denies: bool,
    pub(crate) warns: bool,
    pub(crate) audits: bool,
    /// The actions as they are written, for audit annotations.
    pub(crate) actions: Value,
}

/// Which parameters a binding uses.
#[derive(Debug)]
pub(crate) struct ParamRef {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) selector: Option<JsonObject>,
    /// Whether requests fail without parameters.
    pub(crate) denies_absent: bool,
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl Definition {
    /// Reads a policy.
    pub(crate) fn read(name: &str, object: &mut JsonObject) -> Self {
        let spec = object.remove("spec").unwrap_or_default();
        let param_kind = ParamKind::read(&spec["paramKind"]);
        Self {
            name: name.to_owned(),
            ignores_failures: spec["failurePolicy"] == "Ignore",
            param_kind,
            constraints: Constraints::read(&spec["matchConstraints"]),
            is_reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
            spec,
            evaluator: OnceLock::new(),
        }
    }

    /// Returns the compiled expressions.
    pub(crate) fn evaluator(&self) -> &Evaluator {
        self.evaluator
            .get_or_init(|| evaluation::compile(self.spec.as_object(), || self.compile()))
    }

    fn compile(&self) -> Evaluator {
        let spec = &self.spec;
        let mut compiler = Compiler::new(self.param_kind.is_some(), true);
        let variables = items(&spec["variables"]).map(|variable| {
            let (name, source) = (text(&variable["name"]), text(&variable["expression"]));
            let program = compiler.add_variable(&name, &source);
            (name, Expression { source, program })
        });
        let variables = Variables(variables.collect());
        let conditions = Conditions::compile(
            &mut compiler,
            items(&spec["matchConditions"]),
            self.ignores_failures,
        );
        let mut compile = |source: &Value, purpose, expected: &[Type]| {
            let source = text(source);
            let program = compiler.compile(&source, purpose, expected);
            Expression { source, program }
        };
        let validations = items(&spec["validations"]).map(|validation| Validation {
            expression: compile(&validation["expression"], Purpose::Decision, &[Type::Bool]),
            message: text(&validation["message"]).trim().to_owned(),
            computed: validation["messageExpression"]
                .as_str()
                .filter(|source| !source.is_empty())
                .map(|source| compile(&source.into(), Purpose::Message, &[Type::String])),
            reason: text(&validation["reason"]),
        });
        let validations = validations.collect();
        let audits = items(&spec["auditAnnotations"]).map(|audit| Audit {
            key: text(&audit["key"]),
            expression: compile(
                &audit["valueExpression"],
                Purpose::Decision,
                &[Type::String, Type::Null],
            ),
        });
        let audits = audits.collect();
        let mutations = items(&spec["mutations"]).map(|mutation| {
            let is_json_patch = mutation["patchType"] == "JSONPatch";
            let (field, of) = if is_json_patch {
                ("jsonPatch", Type::list(Type::object(JSON_PATCH_TYPE)))
            } else {
                ("applyConfiguration", Type::object(OBJECT_TYPE))
            };
            Mutation {
                is_json_patch,
                expression: compile(&mutation[field]["expression"], Purpose::Patch, &[of]),
            }
        });
        let mutations = mutations.collect();
        Evaluator {
            variables,
            conditions,
            validations,
            audits,
            mutations,
        }
    }
}

impl ParamKind {
    /// Reads the kind of parameters, if there is one.
    pub(super) fn read(kind: &Value) -> Option<Self> {
        kind.is_object().then(|| {
            let version = text(&kind["apiVersion"]);
            let (group, version) = version.split_once('/').unwrap_or(("", &version));
            Self {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: text(&kind["kind"]),
            }
        })
    }
}

impl Binding {
    /// Reads a binding.
    pub(crate) fn read(name: &str, object: &mut JsonObject) -> Self {
        let spec = object.remove("spec").unwrap_or_default();
        let matched = &spec["matchResources"];
        let reference = &spec["paramRef"];
        let actions = spec["validationActions"].clone();
        let has = |action: &str| items(&actions).any(|own| own == action);
        Self {
            name: name.to_owned(),
            policy: text(&spec["policyName"]),
            constraints: matched.is_object().then(|| Constraints::read(matched)),
            param_ref: reference.is_object().then(|| ParamRef {
                name: text(&reference["name"]),
                namespace: text(&reference["namespace"]),
                selector: reference["selector"].as_object().cloned(),
                denies_absent: reference["parameterNotFoundAction"] == "Deny",
            }),
            denies: has("Deny"),
            warns: has("Warn"),
            audits: has("Audit"),
            actions,
        }
    }
}

impl std::fmt::Display for ParamKind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}
