//! The field that the errors of a rule name, such as `.spec.size` or `.labels['a']`.

use serde_json::Value;

/// Returns the path as errors show it, if the schema has the field.
pub(super) fn normalize(path: &str, schema: &Value) -> Option<String> {
    let mut schema = schema;
    let mut rest = path;
    let mut out = String::new();
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            name = after[..end].to_owned();
            rest = &after[end..];
        } else {
            (name, rest) = bracket(rest)?;
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        if let Some(properties) = properties {
            schema = properties.get(&name)?;
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
        } else {
            schema = schema
                .get("additionalProperties")
                .filter(|it| it.is_object())?;
            out.extend(["[", &name, "]"]);
        }
    }
    Some(out)
}

/// Reads `['name']`. Returns the name and the rest.
fn bracket(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut letters = text.strip_prefix("['")?.char_indices();
    let inner = &text[2..];
    while let Some((index, letter)) = letters.next() {
        match letter {
            '\'' => return Some((name, inner[index + 1..].strip_prefix(']')?)),
            '\\' => name.push(match letters.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                letter @ ('\'' | '\\') => letter,
                _ => return None,
            }),
            letter => name.push(letter),
        }
    }
    None
}
