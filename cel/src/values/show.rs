//! Values as text, in one form for each.

use std::fmt::{self, Write};

use super::Value;

/// The text of a value in tests and logs. Maps are in the order of the texts of their entries.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Int(value) => write!(out, "{value}"),
            Self::Uint(value) => write!(out, "{value}u"),
            Self::Double(value) => write!(out, "f{}", double_text(*value)),
            Self::String(text) => out.write_str(&go_quote(text, true)),
            Self::Bytes(bytes) => {
                out.write_char('b')?;
                bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
            }
            Self::Duration(nanos) => write!(out, "duration({nanos})"),
            Self::Timestamp(time) => write!(out, "timestamp({}.{})", time.seconds, time.nanos),
            Self::List(list) => {
                let parts: Vec<_> = list.iter().map(|item| item.to_string()).collect();
                write!(out, "[{}]", parts.join(", "))
            }
            Self::Map(map) => {
                let mut parts: Vec<_> = map
                    .iter()
                    .map(|(key, value)| format!("{}: {value}", key.to_value()))
                    .collect();
                parts.sort();
                write!(out, "{{{}}}", parts.join(", "))
            }
            Self::Object(object) => {
                write!(
                    out,
                    "{}{}",
                    object.name(),
                    Self::Map(object.fields().clone())
                )
            }
            Self::Type(name) => write!(out, "type({name})"),
            Self::Optional(None) => out.write_str("none"),
            Self::Optional(Some(value)) => write!(out, "optional({value})"),
            Self::Quantity(quantity) => write!(out, "quantity({quantity})"),
            Self::Ip(address) => write!(out, "ip({address})"),
            Self::Cidr(cidr) => write!(out, "cidr({cidr})"),
            Self::Url(url) => write!(out, "url({url})"),
            Self::Semver(version) => write!(out, "semver({version})"),
            Self::Unknown(_) => out.write_str("other(unknown)"),
            Self::Invalid(message) => write!(out, "invalid({message})"),
            Self::Format(_) | Self::Authorization(_) => {
                write!(out, "other({})", self.type_name())
            }
        }
    }
}

/// Returns the shortest text of a number, with an exponent if it is very small or large.
pub(crate) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Returns a text in quotes as Go writes it.
pub(crate) fn go_quote(text: &str, is_ascii: bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' '..='~' => out.push(letter),
            letter if !is_ascii && !letter.is_control() => out.push(letter),
            letter => {
                let code = u32::from(letter);
                let _ = match code {
                    0..0x80 => write!(out, "\\x{code:02x}"),
                    0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push('"');
    out
}
