//! The function `format`.

use std::fmt::Write;

use super::Context;
use crate::fault::{EvaluationError, fail};
use crate::types::Type;
use crate::values::{Key, List, Value, double_text, duration_text, go_quote};

/// The digits behind the dot where a clause does not say how many.
const PRECISION: usize = 6;
/// The maximum number of digits behind the dot.
const PRECISION_MAX: usize = 1_000;

/// A clause of a format, such as `%.3f`.
struct Clause {
    letter: char,
    precision: Option<usize>,
}

/// Reads the next clause behind its percent sign. Returns its length.
fn clause(rest: &str) -> Result<(Clause, usize), String> {
    let context = "could not parse formatting clause: ";
    let mut length = 0;
    let mut precision = None;
    if let Some(after) = rest.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits == after.len() {
            return Err(format!(
                "{context}error while parsing precision: could not find end of precision specifier"
            ));
        }
        let number = after[..digits].parse::<usize>().map_err(|_| {
            format!(
                "{context}error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {}: invalid syntax",
                go_quote(&after[..digits], false)
            )
        })?;
        precision = Some(number);
        length = 1 + digits;
    }
    let letter = rest[length..].chars().next().unwrap_or(' ');
    if !"sdfebxXo".contains(letter) {
        // A letter that is not ASCII is cut to its first byte.
        let shown = char::from(rest.as_bytes()[length]);
        return Err(format!(
            "{context}unrecognized formatting clause \"{shown}\""
        ));
    }
    Ok((Clause { letter, precision }, length + 1))
}

/// Calls a function with each text and each clause with the index of its argument.
fn each(
    text: &str,
    size: usize,
    mut visit: impl FnMut(Result<&str, (Clause, usize)>) -> Result<(), EvaluationError>,
) -> Result<usize, EvaluationError> {
    let mut rest = text;
    let mut index = 0;
    while let Some(mark) = rest.find('%') {
        visit(Ok(&rest[..mark]))?;
        rest = &rest[mark + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            visit(Ok("%"))?;
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return fail(if index < size {
                "unexpected end of string".to_owned()
            } else {
                format!("index {index} out of range")
            });
        }
        if index >= size {
            return fail(format!("index {index} out of range"));
        }
        let (clause, length) = clause(rest)?;
        visit(Err((clause, index)))?;
        rest = &rest[length..];
        index += 1;
    }
    visit(Ok(rest))?;
    Ok(index)
}

/// Checks a format before it is used. The error is that of an argument, if it has an index.
pub(crate) fn check(text: &str, types: &[&Type]) -> Result<(), (Option<usize>, String)> {
    let mut at = None;
    let used = each(text, types.len(), |part| {
        let Err((clause, index)) = part else {
            return Ok(());
        };
        let of = types[index];
        let is_fine = of.is_dyn()
            || match clause.letter {
                's' => !matches!(of, Type::Struct(_) | Type::Opaque(..)),
                'd' | 'o' => matches!(of, Type::Int | Type::Uint),
                'f' | 'e' => matches!(of, Type::Double | Type::String),
                'b' => matches!(of, Type::Int | Type::Uint | Type::Bool),
                _ => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
            };
        if is_fine {
            return Ok(());
        }
        at = Some(index);
        fail(format!(
            "error during formatting: {}",
            refusal(clause.letter, of.name())
        ))
    });
    match used {
        Ok(used) if used < types.len() => Err((
            None,
            format!(
                "too many arguments supplied to string.format (expected {used}, got {})",
                types.len()
            ),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err((at, error.to_string())),
    }
}

fn refusal(letter: char, name: &str) -> String {
    let reason = match letter {
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    };
    format!("{reason}, was given {name}")
}

/// Formats values.
pub(super) fn format(
    context: &mut Context,
    text: &str,
    list: &List,
) -> Result<String, EvaluationError> {
    let mut out = String::new();
    each(text, list.len(), |part| {
        let (clause, index) = match part {
            Ok(text) => {
                out.push_str(text);
                return Ok(());
            }
            Err(clause) => clause,
        };
        let value = list.get(index).unwrap_or(Value::Null);
        let before = out.len();
        write(context, &clause, &value, &mut out).map_err(|error| match error {
            EvaluationError::Failed(reason) => {
                EvaluationError::Failed(format!("error during formatting: {reason}"))
            }
            limit @ EvaluationError::CostLimit => limit,
        })?;
        context.work.spend((out.len() - before) / 16)?;
        Ok(())
    })?;
    Ok(out)
}

fn write(
    context: &mut Context,
    clause: &Clause,
    value: &Value,
    out: &mut String,
) -> Result<(), EvaluationError> {
    let refuse = || fail(refusal(clause.letter, value.type_name()));
    let written = match (clause.letter, value) {
        ('s', value) => return string(context, value, out, true),
        ('d', Value::Int(value)) => write!(out, "{value}"),
        ('d', Value::Uint(value)) => write!(out, "{value}"),
        ('o', Value::Int(value)) => signed(*value, out, |value| format!("{value:o}")),
        ('o', Value::Uint(value)) => write!(out, "{value:o}"),
        ('b', Value::Int(value)) => signed(*value, out, |value| format!("{value:b}")),
        ('b', Value::Uint(value)) => write!(out, "{value:b}"),
        ('b', Value::Bool(value)) => write!(out, "{}", u8::from(*value)),
        ('x', Value::Int(value)) => signed(*value, out, |value| format!("{value:x}")),
        ('X', Value::Int(value)) => signed(*value, out, |value| format!("{value:X}")),
        ('x', Value::Uint(value)) => write!(out, "{value:x}"),
        ('X', Value::Uint(value)) => write!(out, "{value:X}"),
        ('x' | 'X', Value::String(text)) => hex(text.as_bytes(), clause.letter, out),
        ('x' | 'X', Value::Bytes(bytes)) => hex(bytes, clause.letter, out),
        ('f' | 'e', value) => {
            let number = match value {
                Value::Double(number) => *number,
                Value::String(text) => match &**text {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return refuse(),
                },
                _ => return refuse(),
            };
            let precision = clause.precision.unwrap_or(PRECISION);
            if precision > PRECISION_MAX {
                return fail("precision is too large");
            }
            number_text(number, precision, clause.letter, out)
        }
        _ => return refuse(),
    };
    written.map_err(|error| error.to_string().into())
}

fn signed(value: i64, out: &mut String, digits: fn(u64) -> String) -> std::fmt::Result {
    out.write_str(if value < 0 { "-" } else { "" })?;
    out.write_str(&digits(value.unsigned_abs()))
}

fn hex(bytes: &[u8], letter: char, out: &mut String) -> std::fmt::Result {
    bytes.iter().try_for_each(|byte| match letter {
        'x' => write!(out, "{byte:02x}"),
        _ => write!(out, "{byte:02X}"),
    })
}

/// Writes a number as it is written in English.
fn number_text(number: f64, precision: usize, letter: char, out: &mut String) -> std::fmt::Result {
    if number.is_nan() {
        return out.write_str("NaN");
    }
    if number.is_infinite() {
        return out.write_str(if number > 0.0 {
            "\u{221e}"
        } else {
            "-\u{221e}"
        });
    }
    if letter == 'e' {
        // The precision of this form is fixed.
        let text = format!("{number:.PRECISION$e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let raised = raised(exponent);
        return write!(out, "{digits}\u{d7}10{raised}");
    }
    let text = format!("{number:.precision$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    out.push_str(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        write!(out, ".{fraction}")?;
    }
    Ok(())
}

/// Returns an exponent in raised letters.
fn raised(exponent: i32) -> String {
    let mut out = String::new();
    if exponent < 0 {
        out.push('\u{207b}');
    }
    for digit in format!("{:02}", exponent.abs()).chars() {
        out.push(match digit {
            '1' => '\u{b9}',
            '2' => '\u{b2}',
            '3' => '\u{b3}',
            digit => char::from_u32(0x2070 + u32::from(digit) - 48).unwrap_or(digit),
        });
    }
    out
}

/// Writes a time, as a call outside of which it is no text.
fn push_literal(name: &str, text: &str, is_outer: bool, out: &mut String) {
    if is_outer {
        out.push_str(text);
    } else {
        for part in [name, "(\"", text, "\")"] {
            out.push_str(part);
        }
    }
}

/// Writes a value as a text. Texts in lists and maps are in quotes.
fn string(
    context: &mut Context,
    value: &Value,
    out: &mut String,
    is_outer: bool,
) -> Result<(), EvaluationError> {
    context.work.spend(1)?;
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Uint(value) => out.push_str(&value.to_string()),
        Value::Double(value) if is_outer => out.push_str(&double_text(*value)),
        Value::Double(value) if value.is_finite() => {
            let text = format!("{value:.PRECISION$}");
            out.push_str(&text);
        }
        Value::Double(value) => out.push_str(&go_quote(&double_text(*value), false)),
        Value::String(text) if is_outer => out.push_str(text),
        Value::String(text) => out.push_str(&go_quote(text, false)),
        Value::Bytes(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            if is_outer {
                out.push_str(&text);
            } else {
                out.push('b');
                out.push_str(&go_quote(&text, false));
            }
        }
        Value::Duration(nanos) => {
            let text = duration_text(*nanos);
            push_literal("duration", &text, is_outer, out);
        }
        Value::Timestamp(time) => {
            let text = time.to_string();
            push_literal("timestamp", &text, is_outer, out);
        }
        Value::Type(name) => out.push_str(name),
        Value::List(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                string(context, &item, out, false)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.iter() {
                if let Key::Double(_) = key {
                    return fail("no formatting function for map key of type double");
                }
                let mut entry = (String::new(), String::new());
                string(context, &key.to_value(), &mut entry.0, false)?;
                string(context, value, &mut entry.1, false)?;
                entries.push(entry);
            }
            entries.sort();
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                out.push_str(key);
                out.push(':');
                out.push_str(value);
            }
            out.push('}');
        }
        _ if is_outer => return fail(refusal('s', value.type_name())),
        _ => return fail(format!("no formatting function for {}", value.type_name())),
    }
    Ok(())
}
