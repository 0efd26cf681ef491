//! Validation: which values a schema allows.

pub(super) mod format;
mod list_type;
pub(super) mod number;
pub(super) mod pattern;

use std::collections::{HashMap, HashSet};

use revstore_watch_cache::status::StatusCause;
use serde_json::{Map, Value};

use self::format::Format;
use self::list_type::keys_of;
use super::causes::{CAUSES_MAX, Causes, not_supported};
use super::node::{Additional, Schema};
use super::path::Path;
use crate::custom::text::quoted;

/// The maximum cost of one validation: about the number of checks of single values.
pub const VALIDATION_COST_MAX: u64 = 10_000_000;
/// The cost of a cause.
const CAUSE_COST: u64 = 100;
/// The cost of a value in the text of a cause.
const SHOWN_COST: u64 = 10;
/// The number of characters of a text that a pattern of weight 1 or a format matches at the cost of 1.
const LETTERS_PER_COST: u64 = 8;

impl Schema {
    /// Returns why a new object is invalid.
    pub fn validate(&self, object: &Value) -> Vec<StatusCause> {
        self.validate_at("", object, None)
    }

    /// Returns why a new version of an object is invalid. Parts that are invalid and have not changed are
    /// allowed.
    pub fn validate_update(&self, new: &Value, old: &Value) -> Vec<StatusCause> {
        self.validate_at("", new, Some(old))
    }

    /// Returns why a value is invalid that stands at the path `root` of its object.
    pub(crate) fn validate_at(
        &self,
        root: &str,
        new: &Value,
        old: Option<&Value>,
    ) -> Vec<StatusCause> {
        let path = Path::root(root);
        let mut validator = Validator {
            left: VALIDATION_COST_MAX,
        };
        let mut outcome = validator.ratcheted(self, new, &path, old);
        if validator.left == 0 {
            let detail = "the object is too costly to validate against its schema";
            outcome
                .causes
                .push(StatusCause::invalid(path.field(), "", detail));
        }
        outcome.causes.into_unique()
    }
}

struct Validator {
    /// The cost that is left.
    left: u64,
}

/// The result of checking one value.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) causes: Causes,
    /// The number of checks that were made, by which the best of several alternatives is chosen.
    pub(super) matches: u64,
}

impl Outcome {
    fn is_valid(&self) -> bool {
        self.causes.is_empty()
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        self.causes.append(other.causes);
    }

    pub(super) fn fail(&mut self, cause: StatusCause) {
        self.causes.push(cause);
    }

    /// Adds a cause about the value as a whole, which Kubernetes reports without its field.
    pub(super) fn fail_object(&mut self, path: &Path<'_>, detail: &str) {
        self.causes
            .push(StatusCause::invalid(path.top().field(), "", detail));
    }
}

/// Returns the error of a value that has the wrong type or format.
fn type_invalid(path: &Path<'_>, expected: &str, found: &str) -> StatusCause {
    let detail = format!(
        "{} in body must be of type {expected}: {}",
        path.below_root(),
        quoted(found)
    );
    StatusCause::type_invalid(path.field(), found, &detail)
}

impl Validator {
    /// Pays for checks. Returns `false` if there is nothing left.
    fn spend(&mut self, cost: u64) -> bool {
        self.left = self.left.saturating_sub(cost);
        self.left > 0
    }

    /// Checks a value, and forgives what is wrong with it if it has not changed.
    fn ratcheted(
        &mut self,
        schema: &Schema,
        value: &Value,
        path: &Path<'_>,
        old: Option<&Value>,
    ) -> Outcome {
        let mut outcome = self.node(schema, value, path, old);
        if !outcome.is_valid() && old.is_some_and(|old| is_unchanged(schema, value, old)) {
            outcome.causes.clear();
        }
        outcome
    }

    /// Checks a value. Parts of it are compared with those of `old`.
    fn node(
        &mut self,
        schema: &Schema,
        value: &Value,
        path: &Path<'_>,
        old: Option<&Value>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let checks = &schema.checks;
        let cost = 1 + checks.enumeration.len() + checks.required.len();
        if !self.spend(u64::try_from(cost).unwrap_or(u64::MAX)) {
            return outcome;
        }
        let format = schema.format();
        if !schema.types().is_empty() || format.is_some() || value.is_null() {
            check_type(schema, format, value, path, &mut outcome);
            outcome.matches += 1;
        }
        if value.is_null() {
            check_enum(schema, value, path, &mut outcome);
            return outcome;
        }
        self.combinations(schema, value, path, &mut outcome);
        outcome.matches += 1;
        match value {
            Value::String(text) => self.text(schema, format, text, path, &mut outcome),
            Value::Number(found) => number::check(schema, format, found, path, &mut outcome),
            Value::Array(list) => self.list(schema, list, path, old, &mut outcome),
            Value::Object(map) => self.map(schema, map, path, old, &mut outcome),
            _ => {}
        }
        if !check_enum(schema, value, path, &mut outcome) {
            let shown = checks.enumeration.len().min(CAUSES_MAX);
            self.spend(SHOWN_COST * u64::try_from(shown).unwrap_or_default());
        }
        outcome.matches += 2;
        let failures = u64::try_from(outcome.causes.len()).unwrap_or(u64::MAX);
        self.spend(failures.saturating_mul(CAUSE_COST));
        outcome
    }

    /// Checks `anyOf`, `oneOf`, `allOf` and `not`. Nothing is forgiven below them.
    fn combinations(
        &mut self,
        schema: &Schema,
        value: &Value,
        path: &Path<'_>,
        outcome: &mut Outcome,
    ) {
        let checks = &schema.checks;
        let name = || quoted(&path.below_root());
        if !checks.any_of.is_empty() {
            let results = checks
                .any_of
                .iter()
                .map(|any| self.node(any, value, path, None));
            match first_valid(results) {
                Ok(valid) => outcome.merge(valid),
                Err(best) => {
                    let detail = format!("{} must validate at least one schema (anyOf)", name());
                    outcome.fail_object(path, &detail);
                    outcome.merge(best);
                }
            }
        }
        if !checks.one_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut valid = Vec::new();
            for one in &checks.one_of {
                let result = self.node(one, value, path, None);
                if result.is_valid() {
                    valid.push(result);
                } else if best
                    .as_ref()
                    .is_none_or(|best| result.matches > best.matches)
                {
                    best = Some(result);
                }
            }
            if valid.len() == 1 {
                for valid in valid {
                    outcome.merge(valid);
                }
            } else {
                let found = match valid.len() {
                    0 => "Found none valid".to_owned(),
                    count => format!("Found {count} valid alternatives"),
                };
                let detail = format!(
                    "{} must validate one and only one schema (oneOf). {found}",
                    name()
                );
                outcome.fail_object(path, &detail);
                if valid.is_empty() {
                    outcome.merge(best.unwrap_or_default());
                }
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for all in &checks.all_of {
                let result = self.node(all, value, path, None);
                valid += usize::from(result.is_valid());
                outcome.merge(result);
            }
            if valid != checks.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.fail_object(
                    path,
                    &format!("{} must validate all the schemas (allOf){none}", name()),
                );
            }
        }
        if let Some(not) = &checks.not
            && self.node(not, value, path, None).is_valid()
        {
            outcome.fail_object(
                path,
                &format!("{} must not validate the schema (not)", name()),
            );
        }
        outcome.matches += 1;
    }

    fn text(
        &mut self,
        schema: &Schema,
        format: Option<Format>,
        text: &str,
        path: &Path<'_>,
        outcome: &mut Outcome,
    ) {
        let checks = &schema.checks;
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let name = || path.below_root();
        outcome.matches += 1;
        if let Some(max) = checks.max_length
            && length > max
        {
            let max = usize::try_from(max).unwrap_or_default();
            outcome.fail(StatusCause::too_long(path.field(), max));
        } else if let Some(min) = checks.min_length
            && length < min
        {
            let detail = format!("{} in body should be at least {min} chars long", name());
            outcome.fail(StatusCause::invalid(path.field(), text, &detail));
        } else if let Some(pattern) = &checks.pattern {
            if !self.spend(bytes.saturating_mul(pattern.weight()) / LETTERS_PER_COST) {
                return;
            }
            if !pattern.is_match(text) {
                let detail = format!("{} in body should match '{}'", name(), pattern.text());
                outcome.fail(StatusCause::invalid(path.field(), text, &detail));
            }
        }
        if let Some(Format::Text(is_valid)) = format {
            outcome.matches += 1;
            if self.spend(bytes / LETTERS_PER_COST) && !is_valid(text) {
                outcome.fail(type_invalid(path, &checks.format, text));
            }
        }
    }

    fn list(
        &mut self,
        schema: &Schema,
        list: &[Value],
        path: &Path<'_>,
        old: Option<&Value>,
        outcome: &mut Outcome,
    ) {
        let checks = &schema.checks;
        let name = || path.below_root();
        let old_items = match old {
            Some(Value::Array(old)) if schema.list_type.as_deref() == Some("map") => {
                by_keys(schema, old)
            }
            _ => HashMap::new(),
        };
        if let Some(items) = &schema.items {
            for (index, item) in list.iter().enumerate() {
                let old = if old_items.is_empty() {
                    None
                } else {
                    old_items.get(&keys_of(schema, item).to_string()).copied()
                };
                let result = self.ratcheted(items, item, &path.index(index), old);
                outcome.merge(result);
                if self.left == 0 || outcome.causes.is_full() {
                    return;
                }
            }
        }
        let size = i64::try_from(list.len()).unwrap_or(i64::MAX);
        if let Some(min) = checks.min_items
            && size < min
        {
            let detail = format!("{} in body should have at least {min} items", name());
            outcome.fail(StatusCause::invalid(path.field(), size, &detail));
        }
        if let Some(max) = checks.max_items
            && size > max
        {
            let max = usize::try_from(max).unwrap_or_default();
            outcome.fail(StatusCause::too_many(path.field(), list.len(), max));
        }
        if checks.unique_items {
            let mut seen = HashSet::new();
            if !list.iter().all(|item| seen.insert(item.to_string())) {
                let detail = format!("{} in body shouldn't contain duplicates", name());
                outcome.fail(StatusCause::invalid(path.field(), "", &detail));
            }
        }
        outcome.matches += 2;
    }

    fn map(
        &mut self,
        schema: &Schema,
        map: &Map<String, Value>,
        path: &Path<'_>,
        old: Option<&Value>,
        outcome: &mut Outcome,
    ) {
        let checks = &schema.checks;
        let size = i64::try_from(map.len()).unwrap_or(i64::MAX);
        let name = || path.below_root();
        outcome.matches += 1;
        if let Some(min) = checks.min_properties
            && size < min
        {
            let detail = format!("{} in body should have at least {min} properties", name());
            outcome.fail(StatusCause::invalid(path.field(), size, &detail));
        }
        if let Some(max) = checks.max_properties
            && size > max
        {
            let max = usize::try_from(max).unwrap_or_default();
            outcome.fail(StatusCause::too_many(path.field(), map.len(), max));
        }
        for (key, value) in map {
            let child = match (schema.properties.get(key), &schema.additional) {
                (Some(property), _) => property,
                (None, Additional::Schema(additional)) => additional,
                (None, Additional::Allowed(false)) => {
                    let detail = format!("{}.{key} in body is a forbidden property", name());
                    outcome.fail(StatusCause::invalid(path.field(), key.as_str(), &detail));
                    continue;
                }
                (None, _) => continue,
            };
            // The type of an object itself is that of the request, not that of the stored version.
            let is_type = path.is_root() && ["apiVersion", "kind"].contains(&key.as_str());
            let old = old.filter(|_| !is_type).and_then(|old| old.get(key));
            let result = self.ratcheted(child, value, &path.child(key), old);
            outcome.merge(result);
            if self.left == 0 || outcome.causes.is_full() {
                return;
            }
        }
        for key in &checks.required {
            if !map.contains_key(key) {
                outcome.fail(StatusCause::required(path.child(key).field(), ""));
            }
        }
    }
}

/// Returns whether a value has not changed, as far as parts of it can be compared by the schema: fields
/// without a schema count as changes, and the order of items with keys does not.
fn is_unchanged(schema: &Schema, value: &Value, old: &Value) -> bool {
    match (value, old) {
        (Value::Object(map), Value::Object(old)) => {
            let is_equal =
                |(name, value): (&String, &Value)| match (schema.of_field(name), old.get(name)) {
                    (Some(schema), Some(old)) => is_unchanged(schema, value, old),
                    _ => false,
                };
            map.len() == old.len() && map.iter().all(is_equal)
        }
        (Value::Array(list), Value::Array(old)) => {
            let Some(items) = schema.items.as_deref() else {
                return list == old;
            };
            if schema.list_type.as_deref() != Some("map") {
                return list == old;
            }
            let (items_by_key, old_items) = (by_keys(schema, list), by_keys(schema, old));
            if items_by_key.len() != list.len() || old_items.len() != old.len() {
                return list == old;
            }
            let is_equal = |item: &Value| {
                let old = old_items.get(&keys_of(schema, item).to_string());
                old.is_some_and(|old| is_unchanged(items, item, old))
            };
            list.len() == old.len() && list.iter().all(is_equal)
        }
        _ => value == old,
    }
}

/// Returns the first valid result, or the best one.
fn first_valid(results: impl Iterator<Item = Outcome>) -> Result<Outcome, Outcome> {
    let mut best: Option<Outcome> = None;
    for result in results {
        if result.is_valid() {
            return Ok(result);
        }
        if best
            .as_ref()
            .is_none_or(|best| result.matches > best.matches)
        {
            best = Some(result);
        }
    }
    Err(best.unwrap_or_default())
}

/// Returns the items of a list of type `map` by their keys.
fn by_keys<'a>(schema: &Schema, list: &'a [Value]) -> HashMap<String, &'a Value> {
    list.iter()
        .rev()
        .map(|item| (keys_of(schema, item).to_string(), item))
        .collect()
}

fn check_type(
    schema: &Schema,
    format: Option<Format>,
    value: &Value,
    path: &Path<'_>,
    outcome: &mut Outcome,
) {
    let types = schema.types();
    let has = |kind: &str| types.contains(&kind);
    if value.is_null() {
        if !types.is_empty() && !schema.nullable {
            outcome.fail(type_invalid(path, &types.join(","), "null"));
        }
        return;
    }
    let (found, found_format) = match value {
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(found) if found.is_i64() => ("integer", "int64"),
        _ => ("number", "float64"),
    };
    let is_whole =
        found == "number" && has("integer") && value.as_f64().is_some_and(number::is_whole);
    let fits = has(found) || is_whole || found == "integer" && has("number");
    let is_text_or_list = value.is_string() || value.is_array();
    let format_name = &schema.checks.format;
    if format.is_some() && !is_text_or_list && !fits && found_format != format_name {
        outcome.fail(type_invalid(path, format_name, found_format));
    } else if format.is_some() && is_text_or_list && !has("number") && !has("integer") {
        // As in Kubernetes, whose check of a format includes that of the type.
        outcome.matches += 1;
    } else if fits {
        outcome.matches += 1;
    } else {
        outcome.fail(type_invalid(path, &types.join(","), found));
    }
}

/// Checks `enum`. Returns whether it has the value.
fn check_enum(schema: &Schema, value: &Value, path: &Path<'_>, outcome: &mut Outcome) -> bool {
    let allowed = &schema.checks.enumeration;
    let is_equal = |one: &Value| match (one, value) {
        (Value::Number(one), Value::Number(value)) => one.as_f64() == value.as_f64(),
        _ => one == value,
    };
    if allowed.is_empty() || !value.is_null() && allowed.iter().any(is_equal) {
        return true;
    }
    let texts: Vec<String> = allowed
        .iter()
        .take(CAUSES_MAX)
        .map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    outcome.fail(not_supported(path.field(), value, &texts));
    false
}
