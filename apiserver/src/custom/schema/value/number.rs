//! The checks of numbers.

use revstore_watch_cache::status::StatusCause;
use serde_json::{Number, Value};

use crate::custom::schema::node::Schema;
use crate::custom::schema::path::Path;
use crate::custom::schema::value::Outcome;
use crate::custom::schema::value::format::Format;
use crate::custom::text::float;

/// The largest whole number up to which each one is a floating-point number.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;
/// The relative difference up to which a number counts as whole.
const WHOLE_DIFFERENCE: f64 = 1e-9;
/// The limits of 64-bit integers: the upper one is excluded.
const INTEGER_END: f64 = 9_223_372_036_854_775_808.0;

/// Returns whether a number is whole, and not too large to be exact.
pub(in crate::custom::schema) fn is_whole(number: f64) -> bool {
    let difference = (number - number.round()).abs();
    number.abs() <= WHOLE_MAX && difference <= number.abs() * WHOLE_DIFFERENCE
}

/// Returns a number without its fraction, if it is in the range of integers.
fn truncated(number: f64) -> Option<i64> {
    let number = number.trunc();
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (-INTEGER_END..INTEGER_END)
        .contains(&number)
        .then_some(number as i64)
}

/// Returns a number as an integer, if it is one exactly.
pub(crate) fn exact(number: f64) -> Option<i64> {
    truncated(number).filter(|_| number.fract() == 0.0)
}

/// A number to check, with the type and the format that the schema gives to numbers.
struct Checked<'a> {
    kind: &'a str,
    format: Option<Format>,
    integer: Option<i64>,
    value: f64,
    shown: Value,
    path: &'a Path<'a>,
}

pub(in crate::custom::schema) fn check(
    schema: &Schema,
    format: Option<Format>,
    number: &Number,
    path: &Path<'_>,
    outcome: &mut Outcome,
) {
    let kind = match schema.types() {
        [kind @ ("integer" | "number")] => kind,
        _ => "",
    };
    let checked = Checked {
        kind,
        format: format.filter(|_| !kind.is_empty()),
        integer: number.as_i64(),
        value: number.as_f64().unwrap_or_default(),
        shown: Value::Number(number.clone()),
        path,
    };
    checked.check_range(
        "Checked",
        checked.integer,
        checked.value,
        &schema.checks.format,
        outcome,
    );
    checked.check_multiple(schema, outcome);
    checked.check_bounds(schema, outcome);
    outcome.matches += 2;
}

impl Checked<'_> {
    /// Checks that a number fits into the type. Returns whether it does.
    fn check_range(
        &self,
        what: &str,
        integer: Option<i64>,
        value: f64,
        format: &str,
        outcome: &mut Outcome,
    ) -> bool {
        let integer = integer.or_else(|| exact(value));
        let fits = match (self.kind, self.format) {
            ("integer", Some(Format::Int32)) => {
                integer.is_some_and(|integer| i32::try_from(integer).is_ok())
            }
            ("integer", _) => integer.is_some(),
            (_, Some(Format::Float)) => value.abs() <= f64::from(f32::MAX),
            _ => true,
        };
        if !fits {
            let name = self.path.below_root();
            let format = match self.format {
                Some(_) => format!("with format {format}"),
                None => "(default format)".to_owned(),
            };
            outcome.fail_object(
                self.path,
                &format!(
                    "{what} value must be of type {} {format} in {name}",
                    self.kind
                ),
            );
        }
        fits
    }

    fn fail(&self, detail: &str, outcome: &mut Outcome) {
        let detail = format!("{} in body should be {detail}", self.path.below_root());
        outcome.fail(StatusCause::invalid(
            self.path.field(),
            self.shown.clone(),
            &detail,
        ));
    }

    /// Checks `multipleOf`. For an integer the factor loses its fraction, as in Kubernetes.
    fn check_multiple(&self, schema: &Schema, outcome: &mut Outcome) {
        let Some(factor) = schema.checks.multiple_of else {
            return;
        };
        let fits = self.check_range("MultipleOf", None, factor, &schema.checks.format, outcome);
        let (is_positive, is_multiple, shown) = match (self.integer, truncated(factor)) {
            (Some(integer), Some(factor)) if fits => (
                factor > 0,
                factor > 0 && integer % factor == 0,
                Value::from(factor),
            ),
            _ => {
                let times = if factor < 1.0 {
                    1.0 / factor * self.value
                } else {
                    self.value / factor
                };
                (factor > 0.0, is_whole(times), Value::from(factor))
            }
        };
        let text = match &shown {
            Value::Number(number) if number.is_f64() => float(factor),
            other => other.to_string(),
        };
        if !is_positive {
            let name = self.path.below_root();
            let detail = format!("factor MultipleOf declared for {name} must be positive: {text}");
            outcome.fail(StatusCause::invalid(self.path.field(), shown, &detail));
        } else if !is_multiple {
            self.fail(&format!("a multiple of {text}"), outcome);
        }
    }

    fn check_bounds(&self, schema: &Schema, outcome: &mut Outcome) {
        let checks = &schema.checks;
        if let Some(max) = checks.maximum {
            let fits = self.check_range("Maximum boundary", None, max, &checks.format, outcome);
            let (is_above, is_equal, shown) = match (self.integer, truncated(max)) {
                (Some(integer), Some(max)) if fits => {
                    (integer > max, integer == max, max.to_string())
                }
                _ => (self.value > max, is_same(self.value, max), float(max)),
            };
            if is_above || checks.exclusive_maximum && is_equal {
                let bound = if checks.exclusive_maximum {
                    "less than"
                } else {
                    "less than or equal to"
                };
                self.fail(&format!("{bound} {shown}"), outcome);
            }
        }
        if let Some(min) = checks.minimum {
            let fits = self.check_range("Minimum boundary", None, min, &checks.format, outcome);
            let (is_below, is_equal, shown) = match (self.integer, truncated(min)) {
                (Some(integer), Some(min)) if fits => {
                    (integer < min, integer == min, min.to_string())
                }
                _ => (self.value < min, is_same(self.value, min), float(min)),
            };
            if is_below || checks.exclusive_minimum && is_equal {
                let bound = if checks.exclusive_minimum {
                    "greater than"
                } else {
                    "greater than or equal to"
                };
                self.fail(&format!("{bound} {shown}"), outcome);
            }
        }
    }
}

fn is_same(one: f64, other: f64) -> bool {
    one.partial_cmp(&other)
        .is_some_and(std::cmp::Ordering::is_eq)
}
