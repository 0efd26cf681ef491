//! Validation of admission policies and their bindings, with their expressions.

use std::collections::HashSet;

use revstore_cel::{Program, Type};
use serde_json::json;

use revstore_watch_cache::status::StatusCause;

use super::{FAILURE_POLICIES, check_conditions, check_match, refused};
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::custom::text::label_error;
use crate::evaluation;
use crate::policy::{Compiler, JSON_PATCH_TYPE, OBJECT_TYPE, Purpose, Refusal};

/// The maximum number of audit annotations of a policy.
const AUDIT_ANNOTATIONS_MAX: usize = 20;
/// The maximum length of the expression of an audit annotation, in bytes.
const VALUE_EXPRESSION_BYTES_MAX: usize = 5 * 1024;
/// The operations of requests that a policy can mutate.
const MUTABLE_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

/// Checks the parts that validating and mutating policies have in common, up to their match conditions. `operations`
/// are those that the policy can have, if not all.
fn check_constraints(spec: &Field<'_>, operations: Option<&[&str]>, causes: &mut Causes) {
    causes.check_one_of(&spec.child("failurePolicy"), &FAILURE_POLICIES);
    let kind = spec.child("paramKind");
    if kind.is_set() {
        check_param_kind(&kind, causes);
    }
    let matched = spec.child("matchConstraints");
    if matched.is_set() {
        check_match(&matched, causes);
        let rules = matched.child("resourceRules");
        causes.check_required(&rules);
        check_operations(&rules, operations, causes);
    } else {
        causes.required(&matched, "");
    }
    check_conditions(&spec.child("matchConditions"), kind.is_set(), causes);
}

fn check_operations(rules: &Field<'_>, operations: Option<&[&str]>, causes: &mut Causes) {
    let Some(supported) = operations else {
        return;
    };
    for rule in rules.items() {
        for operation in rule.child("operations").items() {
            let field = operation.placed(&rules.child("operations"));
            causes.check_one_of(&field, supported);
        }
    }
}

fn check_param_kind(of: &Field<'_>, causes: &mut Causes) {
    let version = of.child("apiVersion");
    let text = version.text();
    match text.matches('/').count() {
        _ if text.is_empty() => causes.required(&version, ""),
        0 | 1 => {
            let (group, name) = text.split_once('/').unwrap_or(("", text));
            if !group.is_empty()
                && let Some(detail) = names::subdomain_error(group)
            {
                causes.invalid_at(version.path(), group, &detail);
            }
            if name.is_empty() {
                causes.invalid(&version, "version must be specified");
            } else if let Some(detail) = label_error(name) {
                causes.invalid_at(version.path(), name, &detail);
            }
        }
        _ => causes.invalid(&version, &format!("unexpected GroupVersion string: {text}")),
    }
    let kind = of.child("kind");
    if causes.check_required(&kind)
        && let Some(detail) = label_error(&kind.text().to_lowercase())
    {
        let detail = format!("may have mixed case, but should otherwise match: {detail}");
        causes.invalid(&kind, &detail);
    }
}

fn check_variables(spec: &Field<'_>, compiler: &mut Compiler, causes: &mut Causes) {
    for variable in spec.child("variables").items() {
        let (name, expression) = (variable.child("name"), variable.child("expression"));
        if name.text().trim().is_empty() {
            causes.required(&name, "name is not specified");
        } else if !is_identifier(name.text()) {
            causes.invalid(&name, "must be a valid CEL identifier");
        }
        let source = expression.text();
        if source.trim().is_empty() {
            causes.required(&expression, "expression is not specified");
        } else if let Err(refusal) = compiler.add_variable(name.text(), source) {
            refused(&expression, source, &refusal, causes);
        }
    }
}

/// Returns whether a text is a name in expressions.
fn is_identifier(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    text.starts_with(is_letter)
        && text
            .chars()
            .all(|letter| is_letter(letter) || letter.is_ascii_digit())
        && !revstore_cel::is_reserved(text)
}

/// Returns the compiler of the expressions of a policy.
fn compiler(spec: &Field<'_>, is_composed: bool) -> Compiler {
    Compiler::new(spec.child("paramKind").is_set(), is_composed)
}

/// Checks a validating policy.
pub(super) fn check_validating(policy: &Field<'_>, causes: &mut Causes) {
    let spec = policy.child("spec");
    evaluation::compile(spec.object(), || check_validating_spec(policy, causes));
}

fn check_validating_spec(policy: &Field<'_>, causes: &mut Causes) {
    let spec = policy.child("spec");
    check_constraints(&spec, None, causes);
    let mut compiler = compiler(&spec, spec.child("variables").len() > 0);
    check_variables(&spec, &mut compiler, causes);
    let (validations, audits) = (spec.child("validations"), spec.child("auditAnnotations"));
    if validations.len() + audits.len() == 0 {
        for field in [validations, audits] {
            let detail = "validations or auditAnnotations must contain at least one item";
            causes.required(&field, detail);
        }
        return;
    }
    for validation in validations.items() {
        check_validation(&validation, &mut compiler, causes);
    }
    if audits.len() > AUDIT_ANNOTATIONS_MAX {
        let detail = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        let shown = audits.items().map(|audit| {
            json!({
                "Key": audit.child("key").text(),
                "ValueExpression": audit.child("valueExpression").text(),
            })
        });
        let shown: Vec<_> = shown.collect();
        causes.invalid_at(audits.path(), shown, &detail);
    }
    let name = policy.child("metadata").child("name");
    let mut seen = HashSet::new();
    for audit in audits.items() {
        check_audit_annotation(&audit, name.text(), &mut compiler, causes);
        causes.check_unique(&audit.child("key"), &mut seen);
    }
}

fn check_validation(validation: &Field<'_>, compiler: &mut Compiler, causes: &mut Causes) {
    let expression = validation.child("expression");
    if expression.text().trim().is_empty() {
        causes.required(&expression, "expression is not specified");
    } else {
        let program = compiler.compile(expression.text(), Purpose::Decision, &[Type::Bool]);
        check_compiled(&expression, program, causes);
    }
    let computed = validation.child("messageExpression");
    if !computed.text().trim().is_empty() {
        let program = compiler.compile(computed.text(), Purpose::Message, &[Type::String]);
        check_compiled(&computed, program, causes);
    } else if !computed.text().is_empty() {
        causes.invalid(&computed, "must be non-empty if specified");
    }
    let message = validation.child("message");
    let trimmed = message.text().trim();
    if !message.text().is_empty() && trimmed.is_empty() {
        causes.invalid(&message, "must be non-empty if specified");
    } else if trimmed.contains(['\n', '\r']) {
        causes.invalid(&message, "must not contain line breaks");
    }
    let supported = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    causes.check_one_of(&validation.child("reason"), &supported);
}

/// Adds the cause of an expression that cannot be used.
fn check_compiled(field: &Field<'_>, program: Result<Program, Refusal>, causes: &mut Causes) {
    if let Err(refusal) = program {
        refused(field, field.text(), &refusal, causes);
    }
}

fn check_audit_annotation(
    audit: &Field<'_>,
    policy: &str,
    compiler: &mut Compiler,
    causes: &mut Causes,
) {
    let key = audit.child("key");
    if policy.is_empty() {
        causes.invalid(&key, "requires metadata.name be non-empty");
    } else {
        let full = format!("{policy}/{}", key.text());
        // An empty one has two causes.
        let second = key.text().is_empty().then_some("-");
        for name in [Some(&*full), second].into_iter().flatten() {
            if let Some(detail) = names::qualified_name_error(name) {
                causes.invalid_at(key.path(), &*full, &detail);
            }
        }
    }
    let expression = audit.child("valueExpression");
    let source = expression.text().trim();
    if source.is_empty() {
        causes.required(&expression, "valueExpression is not specified");
    } else if source.len() > VALUE_EXPRESSION_BYTES_MAX {
        let detail = format!("must not exceed {VALUE_EXPRESSION_BYTES_MAX} bytes in length");
        causes.required(&expression, &detail);
    } else {
        let expected = [Type::String, Type::Null];
        if let Err(refusal) = compiler.compile(source, Purpose::Decision, &expected) {
            refused(&expression, expression.text(), &refusal, causes);
        }
    }
}

/// Checks a mutating policy.
pub(super) fn check_mutating(policy: &Field<'_>, causes: &mut Causes) {
    let spec = policy.child("spec");
    evaluation::compile(spec.object(), || check_mutating_spec(policy, causes));
}

fn check_mutating_spec(policy: &Field<'_>, causes: &mut Causes) {
    let spec = policy.child("spec");
    check_constraints(&spec, Some(&MUTABLE_OPERATIONS), causes);
    let mut compiler = compiler(&spec, true);
    check_variables(&spec, &mut compiler, causes);
    let mutations = spec.child("mutations");
    if mutations.len() == 0 {
        let detail = "mutations must contain at least one item";
        causes.required(&mutations, detail);
    }
    for mutation in mutations.items() {
        check_mutation(&mutation, &mut compiler, causes);
    }
    let reinvocation = spec.child("reinvocationPolicy");
    causes.check_required_one_of(&reinvocation, &["IfNeeded", "Never"]);
}

fn check_mutation(mutation: &Field<'_>, compiler: &mut Compiler, causes: &mut Causes) {
    let kind = mutation.child("patchType");
    causes.check_required_one_of(&kind, &["ApplyConfiguration", "JSONPatch"]);
    let (own, other, of) = match kind.text() {
        "JSONPatch" => (
            "jsonPatch",
            "applyConfiguration",
            Type::list(Type::object(JSON_PATCH_TYPE)),
        ),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Type::object(OBJECT_TYPE)),
        _ => return,
    };
    let (own, other) = (mutation.child(own), mutation.child(other));
    let when = format!("when patchType is {}", kind.text());
    if own.is_set() {
        let expression = own.child("expression");
        let source = expression.text().trim();
        if source.is_empty() {
            causes.required(&expression, "");
        } else if let Err(refusal) = compiler.compile(source, Purpose::Patch, &[of]) {
            refused(&expression, source, &refusal, causes);
        }
    } else {
        causes.required(&own, &format!("must be specified {when}"));
    }
    if other.is_set() {
        let value = match kind.text() {
            "JSONPatch" => "{applyConfiguration}",
            _ => "{jsonPatch}",
        };
        causes.invalid_at(
            other.path(),
            value,
            &format!("must not be specified {when}"),
        );
    }
}

/// Checks the parts that the bindings of validating and mutating policies have in common.
fn check_binding(spec: &Field<'_>, operations: Option<&[&str]>, causes: &mut Causes) {
    let name = spec.child("policyName");
    if causes.check_required(&name) {
        causes.check_text(&name, names::subdomain_error);
    }
    let parameter = spec.child("paramRef");
    if parameter.is_set() {
        check_param_ref(&parameter, causes);
    }
    let matched = spec.child("matchResources");
    if matched.is_set() {
        check_match(&matched, causes);
        check_operations(&matched.child("resourceRules"), operations, causes);
    }
}

fn check_param_ref(of: &Field<'_>, causes: &mut Causes) {
    let (name, selector) = (of.child("name"), of.child("selector"));
    let has_both = !name.text().is_empty() && selector.is_set();
    let exclusive = "name and selector are mutually exclusive";
    causes.check_text(&name, names::path_segment_error);
    if has_both {
        causes.forbidden(&name, exclusive);
    }
    causes.check_selector(&selector);
    if has_both {
        causes.forbidden(&selector, exclusive);
    }
    if name.text().is_empty() && !selector.is_set() {
        causes.required(of, "one of name or selector must be specified");
    }
    let action = of.child("parameterNotFoundAction");
    causes.check_required_one_of(&action, &["Deny", "Allow"]);
}

/// Checks the binding of a mutating policy.
pub(super) fn check_mutating_binding(binding: &Field<'_>, causes: &mut Causes) {
    check_binding(&binding.child("spec"), Some(&MUTABLE_OPERATIONS), causes);
}

/// Checks the binding of a validating policy.
pub(super) fn check_validating_binding(binding: &Field<'_>, causes: &mut Causes) {
    let spec = binding.child("spec");
    check_binding(&spec, None, causes);
    let actions = spec.child("validationActions");
    let mut seen = HashSet::new();
    for action in actions.items() {
        causes.check_one_of(&action, &["Audit", "Deny", "Warn"]);
        causes.check_unique(&action, &mut seen);
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        causes.push(StatusCause::invalid(
            actions.path(),
            actions.value(),
            "must not contain both Deny and Warn (repeating the same validation failure information in \
             the API response and headers serves no purpose)",
        ));
    }
    if actions.len() == 0 {
        causes.required(&actions, "at least one validation action is required");
    }
}
