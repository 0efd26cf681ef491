//! The tokens of an expression.

/// A token: its kind, and the range of its characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// The number of characters before it.
    pub(super) offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// An operator or a bracket.
    Symbol,
    Ident,
    /// An identifier in backticks.
    Escaped,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    /// `true`, `false`, `null` and `in`.
    Word,
    End,
}

/// Splits a text. Errors are the offset and the text that is no token.
pub(super) fn tokens(source: &str) -> (Vec<Token<'_>>, Vec<(u32, String)>) {
    let mut lexer = Lexer {
        rest: source,
        offset: 0,
        tokens: Vec::new(),
        errors: Vec::new(),
    };
    while !lexer.rest.is_empty() {
        lexer.next();
    }
    lexer.push(TokenKind::End, 0);
    (lexer.tokens, lexer.errors)
}

struct Lexer<'a> {
    rest: &'a str,
    offset: u32,
    tokens: Vec<Token<'a>>,
    errors: Vec<(u32, String)>,
}

const SYMBOLS: [&str; 26] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/", "%", "&", "|",
];

impl<'a> Lexer<'a> {
    fn push(&mut self, kind: TokenKind, bytes: usize) {
        let (text, rest) = self.rest.split_at(bytes);
        self.tokens.push(Token {
            kind,
            text,
            offset: self.offset,
        });
        self.skip(text, rest);
    }

    fn skip(&mut self, text: &str, rest: &'a str) {
        self.offset += u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        self.rest = rest;
    }

    fn fail(&mut self, bytes: usize) {
        let (text, rest) = self.rest.split_at(bytes);
        self.errors.push((
            self.offset,
            format!("token recognition error at: '{}'", shown(text)),
        ));
        self.skip(text, rest);
    }

    fn next(&mut self) {
        let bytes = self.rest.as_bytes();
        match bytes[0] {
            b' ' | b'\t' | b'\r' | b'\n' | 0x0c => {
                let end = run(bytes, 0, |byte| {
                    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0c)
                });
                let (text, rest) = self.rest.split_at(end);
                self.skip(text, rest);
            }
            b'/' if bytes.get(1) == Some(&b'/') => {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                let (text, rest) = self.rest.split_at(end);
                self.skip(text, rest);
            }
            b'0'..=b'9' => self.number(),
            b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => self.number(),
            b'"' | b'\'' => self.string(0, TokenKind::String),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(),
            b'`' => {
                let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/ ".contains(&byte);
                let end = run(bytes, 1, is_part);
                if end > 1 && bytes.get(end) == Some(&b'`') {
                    self.push(TokenKind::Escaped, end + 1);
                } else {
                    self.fail(end);
                }
            }
            _ => {
                let symbol = SYMBOLS
                    .iter()
                    .find(|symbol| self.rest.starts_with(**symbol));
                match symbol {
                    Some(symbol) if *symbol != "&" && *symbol != "|" => {
                        self.push(TokenKind::Symbol, symbol.len());
                    }
                    _ => {
                        let letter = self.rest.chars().next().map_or(1, char::len_utf8);
                        let end = match symbol {
                            // The lexer has already looked at the character behind it.
                            Some(_) => self.rest[1..]
                                .chars()
                                .next()
                                .map_or(1, |it| 1 + it.len_utf8()),
                            None => letter,
                        };
                        self.fail(end);
                    }
                }
            }
        }
    }

    fn number(&mut self) {
        let bytes = self.rest.as_bytes();
        let mut kind = TokenKind::Int;
        let mut end = run(bytes, 0, |byte| byte.is_ascii_digit());
        if bytes[0] == b'0' && bytes.get(1) == Some(&b'x') {
            let digits = run(bytes, 2, |byte| byte.is_ascii_hexdigit());
            if digits > 2 {
                end = digits;
            }
        } else {
            if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
                kind = TokenKind::Float;
                end = run(bytes, end + 1, |byte| byte.is_ascii_digit());
            }
            if matches!(bytes.get(end), Some(b'e' | b'E')) {
                let signed = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
                if bytes.get(signed).is_some_and(u8::is_ascii_digit) {
                    kind = TokenKind::Float;
                    end = run(bytes, signed, |byte| byte.is_ascii_digit());
                }
            }
        }
        if kind == TokenKind::Int && matches!(bytes.get(end), Some(b'u' | b'U')) {
            kind = TokenKind::Uint;
            end += 1;
        }
        self.push(kind, end);
    }

    fn word(&mut self) {
        let bytes = self.rest.as_bytes();
        // The prefixes of strings: `r`, `b` and `br`.
        let is_quote = |index: usize| matches!(bytes.get(index), Some(b'"' | b'\''));
        match (bytes[0] | 32, bytes.get(1).map(|byte| byte | 32)) {
            (b'r', _) if is_quote(1) => return self.string(1, TokenKind::String),
            (b'b', _) if is_quote(1) => return self.string(1, TokenKind::Bytes),
            (b'b', Some(b'r')) if is_quote(2) => return self.string(2, TokenKind::Bytes),
            _ => {}
        }
        let end = run(bytes, 0, |byte| {
            byte.is_ascii_alphanumeric() || byte == b'_'
        });
        let kind = match &self.rest[..end] {
            "true" | "false" | "null" | "in" => TokenKind::Word,
            _ => TokenKind::Ident,
        };
        self.push(kind, end);
    }

    /// Reads a string behind a prefix of some bytes.
    fn string(&mut self, prefix: usize, kind: TokenKind) {
        let bytes = self.rest.as_bytes();
        let quote = bytes[prefix];
        let is_raw = prefix > 0 && bytes[prefix - 1] | 32 == b'r';
        let triple = [quote; 3];
        let is_triple = bytes[prefix..].starts_with(&triple)
            && closing(&bytes[prefix + 3..], &triple, is_raw, true).is_ok();
        let width = if is_triple { 3 } else { 1 };
        let open = prefix + width;
        match closing(&bytes[open..], &triple[..width], is_raw, is_triple) {
            Ok(end) => self.push(kind, open + end + width),
            Err(end) => {
                let mut end = (open + end).min(self.rest.len());
                while !self.rest.is_char_boundary(end) {
                    end += 1;
                }
                self.fail(end);
            }
        }
    }
}

/// Returns where the quotes are that end a string, or where the string stops to be one.
fn closing(bytes: &[u8], quotes: &[u8], is_raw: bool, is_triple: bool) -> Result<usize, usize> {
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index..].starts_with(quotes) {
            return Ok(index);
        }
        match bytes[index] {
            b'\n' | b'\r' if !is_triple => return Err(index + 1),
            b'\\' if !is_raw => index += escape_length(&bytes[index..]).ok_or(index + 2)?,
            _ => index += 1,
        }
    }
    Err(bytes.len())
}

/// Returns the length of an escape sequence, if it is one.
fn escape_length(bytes: &[u8]) -> Option<usize> {
    let digits = |count: usize, is_digit: fn(&u8) -> bool| {
        let digits = bytes.get(2..2 + count)?;
        digits.iter().all(is_digit).then_some(2 + count)
    };
    match bytes.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => {
            Some(2)
        }
        b'x' | b'X' => digits(2, u8::is_ascii_hexdigit),
        b'u' => digits(4, u8::is_ascii_hexdigit),
        b'U' => digits(8, u8::is_ascii_hexdigit),
        b'0'..=b'3' => digits(2, |byte| matches!(byte, b'0'..=b'7')),
        _ => None,
    }
}

/// Returns the end of a run of bytes of one kind.
fn run(bytes: &[u8], from: usize, is_part: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|byte| is_part(**byte)).count()
}

/// Returns a text with the escapes of line ends.
fn shown(text: &str) -> String {
    text.replace('\n', "\\n")
        .replace('\r', "\\r")
        .replace('\t', "\\t")
}
