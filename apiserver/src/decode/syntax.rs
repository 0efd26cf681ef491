//! The text of the error about malformed JSON. It is only looked for after a parser has failed.

/// The text about a body that ends too early.
const UNEXPECTED_END: &str = "unexpected end of JSON input";

/// Returns the text of Go's JSON parser about the first error in a text, or `None` if there is none that
/// it would notice.
pub(super) fn error(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner {
        rest: text,
        open: Vec::new(),
    };
    scanner.document().err()
}

type Step = Result<(), String>;

/// A reader of JSON text without recursion.
struct Scanner<'a> {
    rest: &'a [u8],
    /// The brackets that are open: `true` for objects.
    open: Vec<bool>,
}

impl Scanner<'_> {
    fn document(&mut self) -> Step {
        loop {
            // At the beginning of a value.
            if self.value()? {
                continue;
            }
            // After a value: closing brackets, and then a comma or the end.
            loop {
                let Some(is_object) = self.open.last().copied() else {
                    self.space();
                    return match self.rest.first() {
                        None => Ok(()),
                        Some(byte) => Err(invalid(*byte, "after top-level value")),
                    };
                };
                self.space();
                match (self.next()?, is_object) {
                    (b',', true) => {
                        self.space();
                        self.key()?;
                        break;
                    }
                    (b',', false) => break,
                    (b'}', true) | (b']', false) => {
                        self.open.pop();
                    }
                    (byte, true) => return Err(invalid(byte, "after object key:value pair")),
                    (byte, false) => return Err(invalid(byte, "after array element")),
                }
            }
        }
    }

    /// Reads a scalar, or an opening bracket. Returns whether another value follows at once, as the first
    /// item or after the first key.
    fn value(&mut self) -> Result<bool, String> {
        const CONTEXT: &str = "looking for beginning of value";
        self.space();
        match self.next()? {
            b'{' => {
                self.space();
                if self.rest.first() == Some(&b'}') {
                    self.rest = &self.rest[1..];
                    return Ok(false);
                }
                self.open.push(true);
                self.key()?;
                return Ok(true);
            }
            b'[' => {
                self.space();
                if self.rest.first() == Some(&b']') {
                    self.rest = &self.rest[1..];
                    return Ok(false);
                }
                self.open.push(false);
                return Ok(true);
            }
            b'"' => self.string()?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            b'-' => match self.next_or_space() {
                byte if byte.is_ascii_digit() => self.number(byte)?,
                byte => return Err(invalid(byte, "in numeric literal")),
            },
            byte if byte.is_ascii_digit() => self.number(byte)?,
            byte => return Err(invalid(byte, CONTEXT)),
        }
        Ok(false)
    }

    /// Reads a key with its colon.
    fn key(&mut self) -> Step {
        match self.next()? {
            b'"' => self.string()?,
            byte => return Err(invalid(byte, "looking for beginning of object key string")),
        }
        self.space();
        match self.next()? {
            b':' => Ok(()),
            byte => Err(invalid(byte, "after object key")),
        }
    }

    /// Reads a string after its opening quote.
    fn string(&mut self) -> Step {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next_or_space() {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next_or_space();
                            if !byte.is_ascii_hexdigit() {
                                return Err(invalid(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(invalid(byte, "in string escape code")),
                },
                byte if byte < b' ' => return Err(invalid(byte, "in string literal")),
                _ => {}
            }
        }
    }

    /// Reads the rest of `true`, `false` or `null`.
    fn literal(&mut self, literal: &str) -> Step {
        for expected in literal.chars().skip(1) {
            let byte = self.next_or_space();
            if char::from(byte) != expected {
                let context = format!("in literal {literal} (expecting '{expected}')");
                return Err(invalid(byte, &context));
            }
        }
        Ok(())
    }

    /// Reads a number after its first digit.
    fn number(&mut self, first: u8) -> Step {
        if first != b'0' {
            self.digits();
        }
        if self.rest.first() == Some(&b'.') {
            self.rest = &self.rest[1..];
            self.digit("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.rest.first() {
            self.rest = &self.rest[1..];
            if let Some(b'+' | b'-') = self.rest.first() {
                self.rest = &self.rest[1..];
            }
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// Reads at least one digit.
    fn digit(&mut self, context: &str) -> Step {
        match self.next_or_space() {
            byte if byte.is_ascii_digit() => {
                self.digits();
                Ok(())
            }
            byte => Err(invalid(byte, context)),
        }
    }

    fn digits(&mut self) {
        self.rest = self.rest.trim_ascii_digits();
    }

    fn space(&mut self) {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Returns the next byte where space is an error; the end counts as a space.
    fn next_or_space(&mut self) -> u8 {
        self.next().unwrap_or(b' ')
    }

    fn next(&mut self) -> Result<u8, String> {
        let (byte, rest) = self.rest.split_first().ok_or(UNEXPECTED_END)?;
        self.rest = rest;
        Ok(*byte)
    }
}

/// Removes digits from the beginning of a text.
trait TrimDigits {
    fn trim_ascii_digits(self) -> Self;
}

impl TrimDigits for &[u8] {
    fn trim_ascii_digits(mut self) -> Self {
        while let [b'0'..=b'9', rest @ ..] = self {
            self = rest;
        }
        self
    }
}

fn invalid(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\n' => "'\\n'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        b'\\' => "'\\\\'".to_owned(),
        0..b' ' | 0x7f => format!("'\\x{byte:02x}'"),
        // Go shows single bytes, also those of longer letters, as the letter with that number.
        byte => format!("'{}'", char::from(byte)),
    };
    format!("invalid character {shown} {context}")
}

#[cfg(test)]
mod tests {
    use super::error;

    // Each text and error is from Go 1.26.
    #[test]
    fn errors_have_the_texts_of_go() {
        for (text, message) in [
            ("{\"apiVersion\":", "unexpected end of JSON input"),
            ("", "unexpected end of JSON input"),
            (" ", "unexpected end of JSON input"),
            ("[1,", "unexpected end of JSON input"),
            ("\"a", "unexpected end of JSON input"),
            (
                "{bad",
                "invalid character 'b' looking for beginning of object key string",
            ),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1 \"b\"}",
                "invalid character '\"' after object key:value pair",
            ),
            (
                "fal",
                "invalid character ' ' in literal false (expecting 's')",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1}", "invalid character '}' after array element"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            ("{} x", "invalid character 'x' after top-level value"),
            ("01", "invalid character '1' after top-level value"),
            (
                "a: b",
                "invalid character 'a' looking for beginning of value",
            ),
            (
                "'a'",
                "invalid character '\\'' looking for beginning of value",
            ),
            ("-x", "invalid character 'x' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            (
                "1ex",
                "invalid character 'x' in exponent of numeric literal",
            ),
            (
                "tru\n",
                "invalid character '\\n' in literal true (expecting 'e')",
            ),
            (
                "nul1",
                "invalid character '1' in literal null (expecting 'l')",
            ),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            (
                "\"\\u00g0\"",
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("é", "invalid character 'Ã' looking for beginning of value"),
        ] {
            assert_eq!(error(text.as_bytes()).as_deref(), Some(message), "{text}");
        }
        for text in [
            "{}",
            "[]",
            "[[],{}]",
            "{\"a\":{\"b\":[1,-2.5e+3]}}",
            "null ",
        ] {
            assert_eq!(error(text.as_bytes()), None, "{text}");
        }
    }
}
