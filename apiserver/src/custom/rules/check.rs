//! The check of rules when a definition is written.

use revstore_cel::{Declared, max_cardinality};
use revstore_watch_cache::status::{CauseReason, FieldPath, StatusCause};
use serde_json::Value;

use super::rule::Rule;
use super::tree::{TYPE, keys_of, kind_of};
use super::{RULE_ESTIMATE_MAX, SCHEMA_ESTIMATE_MAX, field_path};
use crate::custom::schema::{Causes, Path};
use crate::evaluation;

/// The number of rules that are named if all together cost too much.
const EXPENSIVE_MAX: usize = 4;

/// Adds what is wrong with the rules of a schema. Those of a node with other errors are not compiled.
pub(crate) fn check(schema: &Value, root: &str, causes: &mut Causes) {
    let wrong: Vec<String> = causes.iter().map(|cause| cause.field.clone()).collect();
    let mut checker = Checker {
        wrong,
        total: 0,
        expensive: Vec::new(),
        causes,
    };
    let place = Place {
        is_root: true,
        count: Some(1),
        uncorrelatable: None,
    };
    evaluation::compile(schema.as_object(), || {
        checker.node(schema, &Path::root(root), &place);
        checker.finish(root);
    });
}

/// Where a schema is.
#[derive(Clone)]
struct Place {
    is_root: bool,
    /// How often values of it can be in an object, if that is bounded.
    count: Option<u64>,
    /// The nearest schema above whose items have no old version.
    uncorrelatable: Option<String>,
}

struct Checker<'c> {
    /// The fields that are wrong otherwise.
    wrong: Vec<String>,
    total: u64,
    expensive: Vec<(u64, FieldPath)>,
    causes: &'c mut Causes,
}

/// Returns the text of a cost that is too large.
fn too_costly(what: &str, cost: u64, cost_max: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "only shown")]
    let factor = cost as f64 / cost_max as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

impl Checker<'_> {
    fn node(&mut self, schema: &Value, path: &Path<'_>, place: &Place) {
        let rules = schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array);
        for (index, rule) in rules.into_iter().flatten().enumerate() {
            self.field_path(
                rule,
                schema,
                &path.child("x-kubernetes-validations").index(index),
            );
        }
        let number = |name: &str| {
            schema
                .get(name)
                .and_then(Value::as_i64)
                .map(|number| number.max(0).cast_unsigned())
        };
        let values = schema
            .get("additionalProperties")
            .filter(|inner| inner.is_object());
        let factor = match kind_of(schema) {
            "object" if values.is_some() => number("maxProperties"),
            "array" => number("maxItems"),
            _ => Some(1),
        };
        let below = |inner: &Value| Place {
            is_root: inner["x-kubernetes-embedded-resource"] == true,
            count: place
                .count
                .zip(factor)
                .map(|(count, factor)| count.saturating_mul(factor)),
            uncorrelatable: place.uncorrelatable.clone(),
        };
        for (name, inner) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            self.node(inner, &path.child("properties").key(name), &below(inner));
        }
        if let Some(inner) = values {
            self.node(inner, &path.child("additionalProperties"), &below(inner));
        }
        if let Some(inner) = schema.get("items").filter(|inner| inner.is_object()) {
            let mut place = below(inner);
            if keys_of(schema).is_none() && place.uncorrelatable.is_none() {
                place.uncorrelatable = Some(path.to_string());
            }
            self.node(inner, &path.child("items"), &place);
        }
        let Some(rules) = rules.filter(|rules| !rules.is_empty()) else {
            return;
        };
        let own = path.to_string();
        if self.wrong.iter().any(|field| field.starts_with(&own)) {
            return;
        }
        let rules_path = path.child("x-kubernetes-validations");
        let Some(declared) = Declared::from_schema(schema, TYPE, place.is_root) else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: \
                          unable to convert structural schema to CEL declarations";
            self.causes
                .push(StatusCause::internal(rules_path.field(), detail));
            return;
        };
        let count = place.count.unwrap_or_else(|| max_cardinality(&declared));
        for (index, source) in rules.iter().enumerate() {
            let rule = Rule::compile(source, schema, &declared);
            self.rule(source, &rule, &rules_path.index(index), count, place);
        }
    }

    fn field_path(&mut self, rule: &Value, schema: &Value, path: &Path<'_>) {
        let text = rule
            .get("fieldPath")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !text.trim().is_empty() && field_path::normalize(text, schema).is_none() {
            let field = path.child("fieldPath").field();
            self.wrong.push(path.to_string());
            self.causes
                .push(StatusCause::invalid(field, text, "must be a valid path"));
        }
    }

    fn rule(&mut self, source: &Value, rule: &Rule, path: &Path<'_>, count: u64, place: &Place) {
        let field = path.child("rule");
        match &rule.program {
            Some(Ok(program)) => {
                let cost = program.estimate().max.saturating_mul(count);
                self.cost("estimated rule cost", cost, &field);
            }
            Some(Err(error)) => {
                self.causes.push(refused(field.field(), source, error));
            }
            None => {}
        }
        let message = path.child("messageExpression");
        match &rule.message_program {
            Some(Ok(program)) => {
                self.cost(
                    "estimated messageExpression cost",
                    program.estimate().max,
                    &message,
                );
            }
            Some(Err(error)) => {
                self.causes.push(refused(message.field(), source, error));
            }
            None => {}
        }
        if rule.uses_old() {
            if let Some(within) = &place.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                );
                self.causes.push(StatusCause::invalid(
                    field.field(),
                    rule.text.as_str(),
                    &detail,
                ));
            }
        } else if let Some(optional) = source.get("optionalOldSelf").filter(|it| !it.is_null()) {
            let detail = "may not be set if oldSelf is not used in rule";
            let field = path.child("optionalOldSelf").field();
            self.causes
                .push(StatusCause::invalid(field, optional.clone(), detail));
        }
    }

    fn cost(&mut self, what: &str, cost: u64, path: &Path<'_>) {
        if cost > RULE_ESTIMATE_MAX {
            let detail = too_costly(what, cost, RULE_ESTIMATE_MAX);
            self.causes
                .push(StatusCause::forbidden(path.field(), &detail));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_ESTIMATE_MAX / 100 {
            self.expensive.push((cost, path.field()));
            self.expensive
                .sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(EXPENSIVE_MAX);
        }
    }

    fn finish(self, root: &str) {
        if self.total <= SCHEMA_ESTIMATE_MAX {
            return;
        }
        for (_, path) in self.expensive {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.causes.push(StatusCause::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = too_costly(what, self.total, SCHEMA_ESTIMATE_MAX);
        self.causes
            .push(StatusCause::forbidden(FieldPath::new(root), &detail));
    }
}

/// Returns the error of a rule, which shows all of it.
fn refused(field: FieldPath, rule: &Value, detail: &str) -> StatusCause {
    let value = |name: &str, default: Value| rule.get(name).cloned().unwrap_or(default);
    let text = |name: &str| value(name, "".into());
    let message = format!(
        "Invalid value: {{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\
         \"OptionalOldSelf\":{}}}: {detail}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        value("reason", Value::Null),
        text("fieldPath"),
        value("optionalOldSelf", Value::Null),
    );
    StatusCause {
        field: field.into(),
        ..StatusCause::new(CauseReason::INVALID, message)
    }
}
