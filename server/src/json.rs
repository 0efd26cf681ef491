//! Strings of JSON, which is all the JSON that the log and the HTTP endpoints have to make.

use std::fmt::{self, Write};

/// Displays a text as a JSON string, quotes included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Displays texts as a JSON array of strings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts<'a>(pub(crate) &'a [String]);

impl fmt::Display for Texts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (index, text) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", Text(text))?;
        }
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(Text(text).to_string(), expected);
    }

    #[test]
    fn what_would_end_the_string_is_escaped() {
        check("", r#""""#);
        check("a\"b\\c", r#""a\"b\\c""#);
        check("a\nb\tc\u{1}", r#""a\nb\u0009c\u0001""#);
        check("grüße", "\"grüße\"");
    }

    #[test]
    fn arrays() {
        assert_eq!(Texts(&[]).to_string(), "[]");
        let texts = ["a".to_owned(), "\"".to_owned()];
        assert_eq!(Texts(&texts).to_string(), r#"["a","\""]"#);
    }
}
