//! Regular expressions in Go's syntax, translated for the engine.

use std::iter::Peekable;
use std::str::Chars;

/// The maximum length of a pattern.
pub const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// The maximum weight of a pattern: about the number of states of its automaton.
pub const PATTERN_WEIGHT_MAX: u64 = 20_000;
/// The maximum depth of groups.
const GROUPS_MAX: usize = 200;
/// The maximum count in a repetition, as in Go.
const REPEAT_MAX: u64 = 1000;
/// The weight of a class that is not ASCII.
const CLASS_WEIGHT: u64 = 8;
/// The weight of a class of Unicode's properties.
const UNICODE_WEIGHT: u64 = 200;

/// Returns a pattern of Go in the syntax of the engine, and its weight.
///
/// # Errors
///
/// The pattern is no valid one, or too large.
pub fn translate(text: &str) -> Result<(String, u64), String> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err("error parsing regexp: expression is too large".into());
    }
    let mut translator = Translator {
        rest: text.chars().peekable(),
        out: String::with_capacity(text.len() + 16),
        depth: 0,
    };
    let weight = translator
        .alternatives()
        .map_err(|error| format!("error parsing regexp: {error}"))?;
    if translator.rest.peek().is_some() {
        return Err(format!("error parsing regexp: unexpected ): `{text}`"));
    }
    Ok((translator.out, weight))
}

struct Translator<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    depth: usize,
}

/// The classes of Perl, as the contents of brackets. Only ASCII, as in Go.
const DIGITS: &str = "0-9";
const WORDS: &str = "0-9A-Za-z_";
const SPACES: &str = "\\t\\n\\f\\r ";
/// The names of classes such as `[:alpha:]`.
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

impl Translator<'_> {
    /// Translates up to the end of the group. Returns the weight.
    fn alternatives(&mut self) -> Result<u64, String> {
        let mut total: u64 = 1;
        // The last item, if it can be repeated: its weight.
        let mut last: Option<u64> = None;
        while let Some(&letter) = self.rest.peek() {
            if letter == ')' {
                break;
            }
            self.rest.next();
            if let Some(counts) = self.repetition(letter)? {
                let Some(weight) = last else {
                    return Err(format!(
                        "missing argument to repetition operator: `{letter}`"
                    ));
                };
                total = total.saturating_add(weight.saturating_mul(counts.saturating_sub(1)));
                if total > PATTERN_WEIGHT_MAX {
                    return Err("expression is too large".into());
                }
                last = None;
                continue;
            }
            let weight = match letter {
                '|' | '^' | '$' => {
                    self.out.push(letter);
                    None
                }
                '(' => self.group()?,
                '[' => Some(self.class()?),
                '\\' => self.escape()?,
                '.' => {
                    self.out.push('.');
                    Some(CLASS_WEIGHT)
                }
                other => {
                    self.literal(other);
                    Some(1)
                }
            };
            total = total.saturating_add(weight.unwrap_or_default());
            if total > PATTERN_WEIGHT_MAX {
                return Err("expression is too large".into());
            }
            last = match letter {
                '|' => None,
                // Go repeats also what is empty.
                _ => Some(weight.unwrap_or_default()),
            };
        }
        Ok(total)
    }

    fn literal(&mut self, letter: char) {
        let mut buffer = [0; 4];
        self.out
            .push_str(&regex::escape(letter.encode_utf8(&mut buffer)));
    }

    /// Translates a repetition operator that begins with `letter`, if it is one. Returns how often it
    /// copies what it repeats.
    fn repetition(&mut self, letter: char) -> Result<Option<u64>, String> {
        let copies = match letter {
            '*' | '+' | '?' => {
                self.out.push(letter);
                1
            }
            '{' => match self.counts()? {
                Some((text, copies)) => {
                    self.out.push_str(&text);
                    copies
                }
                // Not a count, so it is a brace.
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        if self.rest.peek() == Some(&'?') {
            self.rest.next();
            self.out.push('?');
        }
        match self.rest.peek() {
            Some(next @ ('*' | '+' | '?')) => Err(format!(
                "invalid nested repetition operator: `{letter}{next}`"
            )),
            _ => Ok(Some(copies)),
        }
    }

    /// Reads the rest of `{n}`, `{n,}` or `{n,m}`. Returns it and how often it copies what it repeats.
    fn counts(&mut self) -> Result<Option<(String, u64)>, String> {
        let mut ahead = self.rest.clone();
        let mut inner = String::new();
        loop {
            match ahead.next() {
                Some('}') => break,
                Some(letter) if letter.is_ascii_digit() || letter == ',' => inner.push(letter),
                _ => return Ok(None),
            }
            if inner.len() > 16 {
                return Err(format!("invalid repeat count: `{{{inner}`"));
            }
        }
        let (low, high) = match inner.split_once(',') {
            Some((low, high)) => (low, Some(high)),
            None => (inner.as_str(), None),
        };
        if low.is_empty() || high.is_some_and(|high| high.contains(',')) {
            return Ok(None);
        }
        let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        let (low, high) = match high {
            None => (number(low), number(low)),
            Some("") => (number(low), number(low).max(1)),
            Some(high) => (number(low), number(high)),
        };
        if low > REPEAT_MAX || high > REPEAT_MAX || low > high {
            return Err(format!("invalid repeat count: `{{{inner}}}`"));
        }
        self.rest = ahead;
        Ok(Some((format!("{{{inner}}}"), high)))
    }

    /// Translates a group, after its `(`. Returns no weight for flags alone.
    fn group(&mut self) -> Result<Option<u64>, String> {
        self.depth += 1;
        if self.depth > GROUPS_MAX {
            return Err("expression nests too deeply".into());
        }
        self.out.push('(');
        if self.rest.peek() == Some(&'?') {
            self.rest.next();
            self.out.push('?');
            loop {
                let Some(letter) = self.rest.next() else {
                    return Err("missing closing ): `(?`".into());
                };
                match letter {
                    'i' | 'm' | 's' | 'U' | '-' => self.out.push(letter),
                    'P' | '<' => {
                        self.out.push(letter);
                        self.group_name()?;
                        break;
                    }
                    ':' => {
                        self.out.push(letter);
                        break;
                    }
                    ')' => {
                        self.out.push(letter);
                        self.depth -= 1;
                        return Ok(None);
                    }
                    other => {
                        return Err(format!("invalid or unsupported Perl syntax: `(?{other}`"));
                    }
                }
            }
        }
        let weight = self.alternatives()?;
        if self.rest.next() != Some(')') {
            return Err("missing closing )".into());
        }
        self.out.push(')');
        self.depth -= 1;
        Ok(Some(weight))
    }

    /// Reads the name of a group, with its brackets.
    fn group_name(&mut self) -> Result<(), String> {
        for letter in self.rest.by_ref() {
            match letter {
                '<' | '_' => self.out.push(letter),
                letter if letter.is_ascii_alphanumeric() => self.out.push(letter),
                '>' => {
                    self.out.push('>');
                    return Ok(());
                }
                _ => break,
            }
        }
        Err("invalid named capture".into())
    }

    /// Translates an escape outside of brackets, after its backslash.
    fn escape(&mut self) -> Result<Option<u64>, String> {
        let Some(letter) = self.rest.next() else {
            return Err("trailing backslash at end of expression".into());
        };
        let perl = match letter {
            'A' | 'z' => {
                self.out.extend(['\\', letter]);
                return Ok(None);
            }
            'b' => {
                self.out.push_str("(?-u:\\b)");
                return Ok(None);
            }
            'B' => {
                self.out.push_str("(?-u:\\B)");
                return Ok(None);
            }
            'Q' => {
                self.quoted();
                return Ok(Some(1));
            }
            'd' => ("", DIGITS),
            'D' => ("^", DIGITS),
            'w' => ("", WORDS),
            'W' => ("^", WORDS),
            's' => ("", SPACES),
            'S' => ("^", SPACES),
            'p' | 'P' => {
                self.property(letter)?;
                return Ok(Some(UNICODE_WEIGHT));
            }
            other => {
                let literal = self.escaped(other)?;
                self.literal(literal);
                return Ok(Some(1));
            }
        };
        let (negation, class) = perl;
        self.out.push('[');
        self.out.push_str(negation);
        self.out.push_str(class);
        self.out.push(']');
        Ok(Some(if negation.is_empty() { 1 } else { CLASS_WEIGHT }))
    }

    /// Translates a literal text up to `\E`.
    fn quoted(&mut self) {
        while let Some(letter) = self.rest.next() {
            if letter == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.literal(letter);
        }
    }

    /// Translates a property of Unicode, after `\p` or `\P`.
    fn property(&mut self, letter: char) -> Result<(), String> {
        let mut name = String::new();
        let mut negated = letter == 'P';
        match self.rest.next() {
            Some('{') => {
                if self.rest.peek() == Some(&'^') {
                    self.rest.next();
                    negated = !negated;
                }
                for letter in self.rest.by_ref() {
                    if letter == '}' {
                        break;
                    }
                    name.push(letter);
                }
            }
            Some(letter) => name.push(letter),
            None => {}
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!(
                "invalid character class range: `\\{letter}{{{name}}}`"
            ));
        }
        self.out.push_str(if negated { "\\P{" } else { "\\p{" });
        self.out.push_str(&name);
        self.out.push('}');
        Ok(())
    }

    /// Returns the character that an escape stands for, after its backslash and `letter`.
    fn escaped(&mut self, letter: char) -> Result<char, String> {
        let invalid = || format!("invalid escape sequence: `\\{letter}`");
        let code = match letter {
            'a' => 7,
            'f' => 12,
            't' => 9,
            'n' => 10,
            'r' => 13,
            'v' => 11,
            '0'..='7' => {
                let mut code = u32::from(letter) - u32::from('0');
                let mut digits = 0;
                while let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8))
                    && digits < 2
                {
                    self.rest.next();
                    code = code * 8 + digit;
                    digits += 1;
                }
                if letter != '0' && digits == 0 {
                    return Err(invalid());
                }
                code
            }
            'x' => self.hex().ok_or_else(invalid)?,
            other if other.is_ascii_alphanumeric() || !other.is_ascii() => return Err(invalid()),
            other => return Ok(other),
        };
        char::from_u32(code).ok_or_else(invalid)
    }

    fn hex(&mut self) -> Option<u32> {
        let mut code: u32 = 0;
        if self.rest.peek() == Some(&'{') {
            self.rest.next();
            let mut digits = 0;
            loop {
                match self.rest.next()? {
                    '}' if digits > 0 => return Some(code),
                    letter => code = code.checked_mul(16)?.checked_add(letter.to_digit(16)?)?,
                }
                digits += 1;
            }
        }
        for _ in 0..2 {
            code = code * 16 + self.rest.next()?.to_digit(16)?;
        }
        Some(code)
    }

    /// Translates a class in brackets, after its `[`. Returns its weight.
    fn class(&mut self) -> Result<u64, String> {
        let mut weight = 1;
        self.out.push('[');
        if self.rest.peek() == Some(&'^') {
            self.rest.next();
            self.out.push('^');
            weight = CLASS_WEIGHT;
        }
        let mut is_first = true;
        loop {
            let Some(letter) = self.rest.next() else {
                return Err("missing closing ]".into());
            };
            if letter == ']' && !is_first {
                self.out.push(']');
                return Ok(weight);
            }
            is_first = false;
            weight += u64::from(!letter.is_ascii());
            if letter == '[' && self.rest.peek() == Some(&':') && self.posix_class()? {
                continue;
            }
            let Some(low) = self.class_item(letter, &mut weight)? else {
                continue;
            };
            let mut ahead = self.rest.clone();
            let high = match (ahead.next(), ahead.next()) {
                (Some('-'), Some(next)) if next != ']' => {
                    self.rest = ahead;
                    if next == '\\' {
                        let Some(letter) = self.rest.next() else {
                            return Err("missing closing ]".into());
                        };
                        self.escaped(letter)?
                    } else {
                        next
                    }
                }
                _ => low,
            };
            if high < low {
                return Err(format!("invalid character class range: `{low}-{high}`"));
            }
            weight += if high.is_ascii() { 0 } else { 4 };
            self.class_literal(low);
            if high != low {
                self.out.push('-');
                self.class_literal(high);
            }
        }
    }

    /// Translates an item of a class. Returns its character, unless it is a class of its own.
    fn class_item(&mut self, letter: char, weight: &mut u64) -> Result<Option<char>, String> {
        if letter != '\\' {
            return Ok(Some(letter));
        }
        let Some(letter) = self.rest.next() else {
            return Err("missing closing ]".into());
        };
        let class = match letter {
            'd' => DIGITS,
            'w' => WORDS,
            's' => SPACES,
            'D' => "[^0-9]",
            'W' => "[^0-9A-Za-z_]",
            'S' => "[^\\t\\n\\f\\r ]",
            'p' | 'P' => {
                *weight += UNICODE_WEIGHT;
                self.property(letter)?;
                return Ok(None);
            }
            other => return self.escaped(other).map(Some),
        };
        *weight += if class.starts_with('[') {
            CLASS_WEIGHT
        } else {
            0
        };
        self.out.push_str(class);
        Ok(None)
    }

    /// Translates a class such as `[:alpha:]`, after its `[`. Returns `false` if it is none.
    fn posix_class(&mut self) -> Result<bool, String> {
        let mut ahead = self.rest.clone();
        let mut name = String::from("[");
        loop {
            match ahead.next() {
                Some(']') => break,
                Some(letter @ (':' | '^')) => name.push(letter),
                Some(letter) if letter.is_ascii_lowercase() => name.push(letter),
                _ => return Ok(false),
            }
        }
        if !name.ends_with(':') {
            return Ok(false);
        }
        let class = name.trim_matches(['[', ':', '^']);
        let is_known = POSIX_CLASSES.contains(&class);
        name.push(']');
        if !is_known {
            return Err(format!("invalid character class range: `{name}`"));
        }
        self.out.push_str(&name);
        self.rest = ahead;
        Ok(true)
    }

    fn class_literal(&mut self, letter: char) {
        if letter.is_ascii()
            && !letter.is_ascii_alphanumeric()
            && !letter.is_ascii_control()
            && letter != ' '
        {
            self.out.push('\\');
        }
        self.out.push(letter);
    }
}
