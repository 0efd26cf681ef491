//! The evaluation of rules.

use revstore_cel::{CALL_COST_MAX, Evaluation, EvaluationError, Program, Value as Data, to_value};
use revstore_watch_cache::status::{CauseReason, FieldPath, StatusCause};
use serde_json::Value;

use super::OBJECT_COST_MAX;
use super::rule::Rule;
use super::tree::{Node, Rules};
use crate::custom::schema::{Causes, Path};
use crate::evaluation::{WORKER_COST_MAX, beside_tasks};

/// The maximum length of a computed message.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

impl Rules {
    /// Adds the errors of the rules for an object.
    pub(crate) fn validate(&self, new: &Value, old: Option<&Value>, causes: &mut Causes) {
        if is_blocked(causes) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            causes.push(StatusCause::invalid(
                Path::root("").field(),
                Value::Null,
                detail,
            ));
            return;
        }
        let Some(root) = self.root() else {
            return;
        };
        let mut validator = Validator {
            left: OBJECT_COST_MAX,
            causes,
        };
        let ratchet = Ratchet {
            own: old,
            parent: None,
        };
        // The error is that the budget is used up, which is among the causes.
        let _ = validator.node(root, &Path::root(""), new, old, ratchet);
    }
}

impl Node {
    /// Adds the errors of the rules for a default that stands at `path`: as an update that changes nothing, and, if that is
    /// valid, as a new value. Returns what is left of the cost `left`; less than 0 if further rules may not be evaluated.
    pub(crate) fn validate_default(
        &self,
        default: &Value,
        path: &Path<'_>,
        left: i64,
        causes: &mut Causes,
    ) -> i64 {
        if !self.is_evaluated() {
            return left;
        }
        let mut least = left;
        for old in [Some(default), None] {
            let mut found = Causes::default();
            let mut validator = Validator {
                left,
                causes: &mut found,
            };
            let ratchet = Ratchet {
                own: None,
                parent: None,
            };
            let validated = validator.node(self, path, default, old, ratchet);
            least = least.min(validated.map_or(-1, |()| validator.left));
            if !found.is_empty() {
                causes.append(found);
                break;
            }
        }
        least
    }
}

/// Returns whether an object is too wrong for its rules.
fn is_blocked(causes: &Causes) -> bool {
    let blocking = [
        CauseReason::NOT_SUPPORTED,
        CauseReason::REQUIRED,
        CauseReason::TOO_LONG,
        CauseReason::TOO_MANY,
        CauseReason::TYPE_INVALID,
    ];
    causes.iter().any(|cause| blocking.contains(&cause.reason))
}

/// The value before an update by which an error is forgiven if nothing has changed.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    own: Option<&'a Value>,
    /// The nearest value above that has an old one: both.
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> Ratchet<'a> {
    fn forgives(self, new: &Value) -> bool {
        match (self.own, self.parent) {
            (Some(old), _) => old == new,
            (None, Some((new, old))) => new == old,
            (None, None) => false,
        }
    }

    fn below(self, new: &'a Value, own: Option<&'a Value>) -> Self {
        match self.own {
            Some(old) => Self {
                own,
                parent: Some((new, old)),
            },
            None => self,
        }
    }
}

/// The budget is used up: no further rules are evaluated.
struct Exhausted;

struct Validator<'c> {
    left: i64,
    causes: &'c mut Causes,
}

impl Validator<'_> {
    fn node<'a>(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        new: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
    ) -> Result<(), Exhausted> {
        if new.is_null() || self.causes.is_full() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, path, new, old, ratchet)?;
        for part in &node.all_of {
            let ratchet = Ratchet {
                own: None,
                parent: ratchet.parent,
            };
            self.node(part, path, new, old, ratchet)?;
        }
        match new {
            Value::Array(list) => {
                let Some(inner) = &node.items else {
                    return Ok(());
                };
                let old_list = old.and_then(Value::as_array);
                let old_items = OldItems::new(node, old_list.map_or(&[], Vec::as_slice));
                for (index, item) in list.iter().enumerate() {
                    let own = old_items.get(item);
                    self.node(
                        inner,
                        &path.index(index),
                        item,
                        own,
                        ratchet.below(new, own),
                    )?;
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    let own = old.and_then(|old| old.get(name));
                    let ratchet = ratchet.below(new, own);
                    if let Some(inner) = &node.values {
                        self.node(inner, &path.key(name), value, own, ratchet)?;
                    }
                    if let Some(inner) = node.properties.get(name) {
                        self.node(inner, &path.child(name), value, own, ratchet)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn invalid(&mut self, node: &Node, path: &Path<'_>, detail: &str) {
        self.causes.push(StatusCause::invalid(
            path.field(),
            node.kind.as_str(),
            detail,
        ));
    }

    fn rules(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
    ) -> Result<(), Exhausted> {
        if node.rules.is_empty() {
            return Ok(());
        }
        let data = to_value(new, &node.schema, node.is_root);
        let uses_old = node.rules.iter().any(Rule::uses_old);
        let old_data = old
            .filter(|_| uses_old)
            .map(|old| to_value(old, &node.schema, node.is_root));
        for rule in &node.rules {
            let program = match &rule.program {
                Some(Ok(program)) => program,
                Some(Err(error)) => {
                    self.invalid(node, path, &format!("rule compile error: {error}"));
                    continue;
                }
                None => continue,
            };
            if rule.uses_old() && old.is_none() && !rule.is_optional_old {
                continue;
            }
            let mut variables = vec![("self", data.clone())];
            match (&old_data, rule.is_optional_old) {
                (Some(old), true) => variables.push(("oldSelf", Data::some(old.clone()))),
                (None, true) => variables.push(("oldSelf", Data::Optional(None))),
                (Some(old), false) => variables.push(("oldSelf", old.clone())),
                (None, false) => {}
            }
            let holds = self.evaluate(node, path, rule, program, &variables)?;
            if holds != Some(false) {
                continue;
            }
            let message = self.message(node, path, rule, &variables)?;
            if !rule.uses_old() && ratchet.forgives(new) {
                continue;
            }
            self.causes.push(failure(node, path, rule, new, &message));
        }
        Ok(())
    }

    /// Evaluates an expression, beside other tasks if it takes long.
    fn run(&self, program: &Program, variables: &[(&str, Data)]) -> Evaluation {
        let spent = OBJECT_COST_MAX.saturating_sub(self.left);
        let left = WORKER_COST_MAX.saturating_sub(u64::try_from(spent).unwrap_or_default());
        let evaluation = program.evaluate(variables, left.min(CALL_COST_MAX));
        match evaluation.result {
            Err(EvaluationError::CostLimit) => {
                beside_tasks(|| program.evaluate(variables, CALL_COST_MAX))
            }
            _ => evaluation,
        }
    }

    /// Pays for an evaluation.
    fn pay(&mut self, cost: u64) -> bool {
        self.left = self
            .left
            .saturating_sub(i64::try_from(cost).unwrap_or(i64::MAX));
        self.left >= 0
    }

    /// Returns whether a rule holds. `None`: it failed, which is among the causes.
    fn evaluate(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        rule: &Rule,
        program: &Program,
        variables: &[(&str, Data)],
    ) -> Result<Option<bool>, Exhausted> {
        let evaluation = self.run(program, variables);
        let name = rule.name();
        if !self.pay(evaluation.cost) {
            let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.invalid(node, path, detail);
            return Err(Exhausted);
        }
        match evaluation.result {
            Ok(value) => Ok(Some(value.as_bool().unwrap_or(false))),
            Err(error @ EvaluationError::CostLimit) => {
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                );
                self.invalid(node, path, &detail);
                Err(Exhausted)
            }
            Err(EvaluationError::Failed(error)) if error.starts_with("no such overload") => {
                let detail = format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for \
                     rule: {name}"
                );
                self.invalid(node, path, &detail);
                Ok(None)
            }
            Err(EvaluationError::Failed(error)) => {
                self.invalid(node, path, &format!("{error} evaluating rule: {name}"));
                Ok(None)
            }
        }
    }

    /// Returns the message of a rule that does not hold.
    fn message(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        rule: &Rule,
        variables: &[(&str, Data)],
    ) -> Result<String, Exhausted> {
        let default = || {
            if rule.message.is_empty() {
                format!("failed rule: {}", rule.text)
            } else {
                rule.message.clone()
            }
        };
        let Some(Ok(program)) = &rule.message_program else {
            return Ok(default());
        };
        let evaluation = self.run(program, variables);
        if !self.pay(evaluation.cost) {
            let detail = "messageExpression evaluation failed due to running out of cost budget, no further \
                          validation rules will be run";
            self.invalid(node, path, detail);
            return Err(Exhausted);
        }
        match evaluation.result {
            Err(EvaluationError::CostLimit) => {
                let detail = "no further validation rules will be run due to call cost exceeds limit for \
                              messageExpression";
                self.invalid(node, path, detail);
                Err(Exhausted)
            }
            Err(EvaluationError::Failed(_)) => Ok(default()),
            Ok(value) => {
                let text = value.as_str().unwrap_or_default().trim().to_owned();
                let is_fine =
                    !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
                Ok(if is_fine { text } else { default() })
            }
        }
    }
}

/// Returns the cause of a rule that does not hold.
fn failure(node: &Node, path: &Path<'_>, rule: &Rule, new: &Value, message: &str) -> StatusCause {
    let field = match (&rule.field, path.to_string()) {
        (None, _) => path.field(),
        (Some(field), path) if path.is_empty() => FieldPath::new(field.clone()),
        (Some(field), path) => FieldPath::new(format!("{path}.{field}")),
    };
    // Objects and lists are not shown.
    let is_shown = !matches!(node.kind.as_str(), "object" | "array");
    let without_value = |reason: CauseReason, message: String| StatusCause {
        field: field.clone().into(),
        ..StatusCause::new(reason, message)
    };
    match rule.reason.as_str() {
        "FieldValueForbidden" => StatusCause::forbidden(field, message),
        "FieldValueRequired" => StatusCause::required(field, message),
        "FieldValueDuplicate" if is_shown => StatusCause::duplicate(field, new.clone()),
        "FieldValueDuplicate" => {
            without_value(CauseReason::DUPLICATE, "Duplicate value".to_owned())
        }
        _ if is_shown => StatusCause::invalid(field, new.clone(), message),
        _ => without_value(CauseReason::INVALID, format!("Invalid value: {message}")),
    }
}

/// The items of an old list by their keys, if it is a map.
struct OldItems<'a> {
    keys: &'a [String],
    items: std::collections::HashMap<String, &'a Value>,
}

impl<'a> OldItems<'a> {
    fn new<'n: 'a>(node: &'n Node, list: &'a [Value]) -> Self {
        let keys = node.keys.as_deref().unwrap_or_default();
        let list = if keys.is_empty() { &[] } else { list };
        Self {
            keys,
            items: list.iter().map(|item| (key_of(item, keys), item)).collect(),
        }
    }

    fn get(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() {
            return None;
        }
        self.items.get(&key_of(item, self.keys)).copied()
    }
}

/// Returns the values of the keys of an item.
fn key_of(item: &Value, keys: &[String]) -> String {
    let values: Vec<_> = keys.iter().map(|key| &item[key]).collect();
    serde_json::to_string(&values).unwrap_or_default()
}
