//! The check of the expressions of a validating policy against the types of the objects that it is for.
//!
//! Expressions are evaluated without these types, so what is found here is a warning in the status of the policy. See
//! `TypeChecker` in upstream's `admission/plugin/policy/validating`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use revstore_cel::Declared;
use serde_json::{Value, json};

use super::definition::{ParamKind, items, text};
use super::expression::Compiler;
use crate::catalog::{Groups, Resource};

/// The number of kinds that one rule of a policy may name until no more are looked for.
const RULE_KINDS_MAX: usize = 10;
/// The bytes of the expressions that are checked against kinds, each kind counted: some tenths of a second.
const CHECKED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes of the warnings of a policy.
const WARNINGS_BYTES_MAX: usize = 256 * 1024;

/// A kind of objects that a policy is for, with the schema of its objects.
pub(crate) struct Checked {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) schema: Value,
}

/// Returns the resources that a policy is for, by group, version and kind. Rules with wildcards name none.
pub(crate) fn resources_of(groups: &Groups, spec: &Value) -> Vec<Arc<Resource>> {
    let mut found = BTreeMap::new();
    for rule in items(&spec["matchConstraints"]["resourceRules"]) {
        let mut count = 0;
        for resource in named_by(groups, rule) {
            let names = &resource.names;
            let key = (
                names.group.clone(),
                names.version.clone(),
                names.kind.clone(),
            );
            found.insert(key, resource);
            count += 1;
            if count == RULE_KINDS_MAX {
                return found.into_values().collect();
            }
        }
    }
    found.into_values().collect()
}

/// Returns the resources that a rule names, some of them several times.
fn named_by(groups: &Groups, rule: &Value) -> impl Iterator<Item = Arc<Resource>> {
    let words = |field: &str| -> BTreeSet<String> { items(&rule[field]).map(text).collect() };
    let (mut named_groups, mut versions) = (words("apiGroups"), words("apiVersions"));
    let mut plurals = words("resources");
    for all in [&mut named_groups, &mut versions] {
        if all.iter().any(|word| word.contains('*')) {
            all.clear();
        }
    }
    plurals.retain(|plural| !plural.contains(['*', '/']));
    let mut resources = Vec::new();
    for group in &named_groups {
        for version in &versions {
            for plural in &plurals {
                let plural = plural.to_lowercase();
                // The core group is looked up as one that is not named: there are others with the same resources.
                let known = groups
                    .iter()
                    .filter(|(known, _)| group.is_empty() || *known == group);
                let known = known.flat_map(|(_, group)| &group.versions);
                for known in known.filter(|known| known.name == *version) {
                    let mut all = known.resources.values();
                    resources.extend(
                        all.find(|resource| {
                            let names = &resource.names;
                            names.plural == plural || names.singular == plural
                        })
                        .cloned(),
                    );
                }
            }
        }
    }
    resources.into_iter()
}

/// Returns the kind of the parameters of a policy.
pub(crate) fn param_kind(spec: &Value) -> Option<ParamKind> {
    ParamKind::read(&spec["paramKind"])
}

/// Returns the warnings for the status of a policy.
///
/// `params` is the schema of its parameters, if that is known. Takes as long as the expressions are
/// long, for each kind.
pub(crate) fn warnings(spec: &Value, kinds: &[Checked], params: Option<&Value>) -> Vec<Value> {
    let declared = |schema: &Value, kind: &str| {
        // The digit keeps the name apart from those of other types.
        Declared::from_schema(schema, &format!("{kind}0"), true)
    };
    let kind = param_kind(spec);
    let params = kind.as_ref().zip(params);
    let params = params.and_then(|(kind, schema)| declared(schema, &kind.kind));
    let expressions = expressions(spec);
    let variables: Vec<(String, String)> = items(&spec["variables"])
        .map(|variable| (text(&variable["name"]), text(&variable["expression"])))
        .collect();
    let lengths = expressions.iter().chain(&variables);
    let bytes: usize = lengths.map(|(_, source)| source.len()).sum();
    let kinds_max = CHECKED_BYTES_MAX / bytes.max(1);
    let mut messages = vec![Vec::new(); expressions.len()];
    let mut left = WARNINGS_BYTES_MAX;
    for checked in kinds.iter().take(kinds_max) {
        let Some(object) = declared(&checked.schema, &checked.kind) else {
            continue;
        };
        let mut compiler = Compiler::typed(&object, kind.is_some(), params.as_ref());
        for (name, source) in &variables {
            let _ = compiler.add_variable(name, source);
        }
        for ((_, source), messages) in expressions.iter().zip(&mut messages) {
            let Some(issues) = compiler.issues(source) else {
                continue;
            };
            let Checked {
                group,
                version,
                kind,
                ..
            } = checked;
            let message = format!("{group}/{version}, Kind={kind}: {issues}\n");
            left = left.saturating_sub(message.len());
            if left > 0 {
                messages.push(message);
            }
        }
    }
    let found = expressions.iter().zip(messages);
    let found = found.filter(|(_, messages)| !messages.is_empty());
    found
        .map(|((field, _), messages)| json!({"fieldRef": field, "warning": messages.join("\n")}))
        .collect()
}

/// Returns the expressions of the validations with their places.
fn expressions(spec: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (index, validation) in items(&spec["validations"]).enumerate() {
        for name in ["expression", "messageExpression"] {
            let source = text(&validation[name]);
            if name == "expression" || !source.is_empty() {
                all.push((format!("spec.validations[{index}].{name}"), source));
            }
        }
    }
    all
}
