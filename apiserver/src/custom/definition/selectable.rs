//! The schemas of selectable fields.

use crate::custom::schema::Schema;

/// Returns the schema of the field at a path such as `.spec.color`.
///
/// # Errors
/// What is wrong with the path.
pub(super) fn find_field<'a>(path: &str, schema: &'a Schema) -> Result<&'a Schema, String> {
    let mut tokens = Tokens { rest: path };
    let mut at = schema;
    while let Some(token) = tokens.next() {
        match token {
            "[" => return Err("array notation is not allowed".into()),
            "." => {}
            other => return Err(format!("expected [ or . but got: {other}")),
        }
        let Some(name) = tokens.next() else {
            return Err("unexpected end of JSON path".into());
        };
        let below = if at.properties.is_empty() {
            at.additional.schema()
        } else {
            at.properties.get(name)
        };
        at = below.ok_or("does not refer to a valid field")?;
    }
    Ok(at)
}

/// The delimiters of a path, and the texts between them.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = self.rest.chars().next()?;
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => self.rest[1..]
                .find('\'')
                .map_or(self.rest.len(), |end| end + 2),
            _ => self.rest.find(['.', '[', ']']).unwrap_or(self.rest.len()),
        };
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(token)
    }
}
