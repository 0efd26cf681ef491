//! Functions of strings.

use super::{Context, Function, Outcome, format_string};
use crate::fault::{EvaluationError, fail, no_such_overload};
use crate::values::{List, Value};

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "contains" => |_, args| test(args, |text, part| text.contains(part)),
        "startsWith" => |_, args| test(args, |text, part| text.starts_with(part)),
        "endsWith" => |_, args| test(args, |text, part| text.ends_with(part)),
        "charAt" => char_at,
        "indexOf" => |context, args| match args {
            [Value::List(list), item] => index_in(context, list, item, false),
            [Value::String(text), Value::String(part)] => index_of(text, part, 0),
            [Value::String(text), Value::String(part), Value::Int(from)] => {
                index_of(text, part, *from)
            }
            _ => Err(no_such_overload()),
        },
        "lastIndexOf" => |context, args| match args {
            [Value::List(list), item] => index_in(context, list, item, true),
            [Value::String(text), Value::String(part)] => last_index_of(text, part, None),
            [Value::String(text), Value::String(part), Value::Int(from)] => {
                last_index_of(text, part, Some(*from))
            }
            _ => Err(no_such_overload()),
        },
        "lowerAscii" => |_, args| map(args, str::to_ascii_lowercase),
        "upperAscii" => |_, args| map(args, str::to_ascii_uppercase),
        "trim" => |_, args| map(args, |text| text.trim_matches(is_space).to_owned()),
        "strings.quote" => |_, args| map(args, quote),
        "jsonpatch.escapeKey" => {
            |_, args| map(args, |text| text.replace('~', "~0").replace('/', "~1"))
        }
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "format" => |context, args| match args {
            [Value::String(text), Value::List(list)] => {
                format_string::format(context, text, list).map(Value::from)
            }
            _ => Err(no_such_overload()),
        },
        _ => return None,
    })
}

/// The white space of Unicode.
fn is_space(letter: char) -> bool {
    letter.is_whitespace()
}

fn test(args: &[Value], holds: fn(&str, &str) -> bool) -> Outcome {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(holds(text, part))),
        _ => Err(no_such_overload()),
    }
}

fn map(args: &[Value], convert: fn(&str) -> String) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::from(convert(text))),
        _ => Err(no_such_overload()),
    }
}

fn out_of_range<T>(index: i64) -> Result<T, EvaluationError> {
    fail(format!("index out of range: {index}"))
}

fn int(value: usize) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn char_at(_: &mut Context, args: &[Value]) -> Outcome {
    let [Value::String(text), Value::Int(index)] = args else {
        return Err(no_such_overload());
    };
    let Ok(place) = usize::try_from(*index) else {
        return out_of_range(*index);
    };
    match text.chars().nth(place) {
        Some(letter) => Ok(Value::from(letter.to_string())),
        None if place == text.chars().count() => Ok(Value::from("")),
        None => out_of_range(*index),
    }
}

/// Returns the byte where a character begins, if there are as many.
fn byte_of(text: &str, index: usize) -> Option<usize> {
    let mut starts = text.char_indices().map(|(byte, _)| byte);
    starts.nth(index)
}

fn index_of(text: &str, part: &str, from: i64) -> Outcome {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let Ok(from_index) = usize::try_from(from) else {
        return out_of_range(from);
    };
    let found = byte_of(text, from_index).and_then(|start| {
        text[start..]
            .find(part)
            .map(|byte| text[..start + byte].chars().count())
    });
    Ok(found.map_or(Value::Int(-1), int))
}

fn last_index_of(text: &str, part: &str, from: Option<i64>) -> Outcome {
    let length = text.chars().count();
    if part.is_empty() {
        return Ok(from.map_or_else(|| int(length), Value::Int));
    }
    if from.is_none() && text.len() < part.len() {
        return Ok(Value::Int(-1));
    }
    let last = from.unwrap_or(i64::try_from(length).unwrap_or(i64::MAX) - 1);
    let Ok(last) = usize::try_from(last) else {
        return out_of_range(last);
    };
    if last >= length {
        return Ok(Value::Int(-1));
    }
    // The match may begin at the last place.
    let start = byte_of(text, last).unwrap_or(0);
    let end = (start + part.len()).min(text.len());
    let end = (end..=text.len())
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(end);
    let mut head = &text[..end];
    loop {
        match head.rfind(part) {
            Some(byte) if byte > start => {
                let cut = byte + part.len() - 1;
                let cut = (0..=cut)
                    .rev()
                    .find(|cut| head.is_char_boundary(*cut))
                    .unwrap_or(0);
                head = &head[..cut];
            }
            Some(byte) => return Ok(int(text[..byte].chars().count())),
            None => return Ok(Value::Int(-1)),
        }
    }
}

/// Returns the place of an item in a list.
fn index_in(context: &mut Context, list: &List, item: &Value, is_last: bool) -> Outcome {
    let mut found = -1;
    for (index, own) in (0..).zip(list.iter()) {
        if own.equals(item, &mut context.work)? {
            found = index;
            if !is_last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

/// Returns a text as a literal.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

fn replace(context: &mut Context, args: &[Value]) -> Outcome {
    let (text, from, to, count) = match args {
        [Value::String(text), Value::String(from), Value::String(to)] => (text, from, to, -1),
        [
            Value::String(text),
            Value::String(from),
            Value::String(to),
            Value::Int(count),
        ] => (text, from, to, *count),
        _ => return Err(no_such_overload()),
    };
    // The result can be much longer than the text, which is what the cost counts.
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let places = text.matches(&**from).take(count).count();
    context.work.spend(places.saturating_mul(to.len()))?;
    Ok(Value::from(text.replacen(&**from, to, count)))
}

fn split(_: &mut Context, args: &[Value]) -> Outcome {
    let (text, separator, count) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [
            Value::String(text),
            Value::String(separator),
            Value::Int(count),
        ] => (text, separator, *count),
        _ => return Err(no_such_overload()),
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let parts: Vec<Value> = if count == 0 {
        Vec::new()
    } else if separator.is_empty() {
        let mut parts = Vec::new();
        let mut rest = &**text;
        while let Some(letter) = rest.chars().next() {
            let end = if parts.len() + 1 >= count {
                rest.len()
            } else {
                letter.len_utf8()
            };
            parts.push(Value::from(&rest[..end]));
            rest = &rest[end..];
        }
        parts
    } else {
        text.splitn(count, &**separator).map(Value::from).collect()
    };
    Ok(Value::list(parts))
}

fn substring(_: &mut Context, args: &[Value]) -> Outcome {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(no_such_overload()),
    };
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let until = end.unwrap_or(length);
    if end.is_some_and(|end| start > end) {
        return fail(format!(
            "invalid substring range. start: {start}, end: {until}"
        ));
    }
    for index in [start, until] {
        if !(0..=length).contains(&index) {
            return out_of_range(index);
        }
    }
    let byte = |index: i64| {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        byte_of(text, index).unwrap_or(text.len())
    };
    Ok(Value::from(&text[byte(start)..byte(until)]))
}

fn join(context: &mut Context, args: &[Value]) -> Outcome {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(no_such_overload()),
    };
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        let Value::String(text) = &item else {
            return fail(format!("join: invalid input: {item}"));
        };
        context
            .work
            .spend(1 + (text.len() + separator.len()) / 16)?;
        out.push_str(text);
    }
    Ok(Value::from(out))
}
