//! The syntax of JSON paths.

use super::json_path::{Node, Slice};

/// What is left of a path.
pub(super) struct Parser<'a> {
    pub(super) rest: &'a str,
}

fn is_terminator(letter: char) -> bool {
    " \t\r\n.,[]$@{}".contains(letter)
}

impl Parser<'_> {
    pub(super) fn nodes(&mut self) -> Result<Vec<Node>, String> {
        let mut nodes = Vec::new();
        while let Some(letter) = self.rest.chars().next() {
            if self.rest.starts_with("[?(") {
                nodes.push(self.filter()?);
            } else if let Some(rest) = self.rest.strip_prefix("..") {
                if nodes.last() == Some(&Node::Recursive) {
                    return Err("invalid multiple recursive descent".into());
                }
                self.rest = rest;
                nodes.push(Node::Recursive);
                if rest.starts_with(|next: char| next == '_' || next.is_alphanumeric()) {
                    nodes.push(self.field());
                }
            } else {
                match letter {
                    ' ' | '@' | '$' => self.rest = &self.rest[1..],
                    '[' => nodes.extend(self.brackets()?),
                    '"' | '\'' => {
                        let text = self.quoted(letter)?;
                        nodes.push(Node::Literal(text.into()));
                    }
                    '.' => {
                        self.rest = &self.rest[1..];
                        nodes.push(self.field());
                    }
                    '+' | '-' | '0'..='9' => nodes.push(self.number()?),
                    letter if letter == '_' || letter.is_alphanumeric() => nodes.push(self.word()?),
                    '\r' | '\n' | '}' => return Err("unclosed action".into()),
                    other => return Err(format!("unrecognized character in action: {other}")),
                }
            }
        }
        Ok(nodes)
    }

    /// Reads the name of a field.
    fn field(&mut self) -> Node {
        let mut name = String::new();
        let mut letters = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, letter)) = letters.next() {
            if letter == '\\' {
                name.extend(
                    letters
                        .next()
                        .map(|(_, letter)| letter)
                        .filter(|letter| *letter != '\\'),
                );
            } else if is_terminator(letter) {
                end = at;
                break;
            } else {
                name.push(letter);
            }
        }
        let is_wildcard = &self.rest[..end] == "*";
        self.rest = &self.rest[end..];
        if is_wildcard {
            Node::Wildcard
        } else {
            Node::Field(name)
        }
    }

    fn word(&mut self) -> Result<Node, String> {
        let end = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "true" | "false" => Ok(Node::Literal((word == "true").into())),
            other => Err(format!("unrecognized identifier {other}")),
        }
    }

    fn number(&mut self) -> Result<Node, String> {
        let digits = self.rest.strip_prefix(['+', '-']).unwrap_or(self.rest);
        let is_end = |letter: char| letter != '.' && !letter.is_ascii_digit();
        let length = digits.find(is_end).unwrap_or(digits.len());
        let (number, rest) = self.rest.split_at(self.rest.len() - digits.len() + length);
        self.rest = rest;
        let plain = number.trim_start_matches('+');
        if let Ok(integer) = plain.parse::<i64>() {
            return Ok(Node::Literal(integer.into()));
        }
        let float = plain
            .parse::<f64>()
            .map_err(|_| format!("cannot parse number {number}"))?;
        Ok(Node::Literal(float.into()))
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => text.extend(letters.next().map(|(_, letter)| letter)),
                '\n' => break,
                letter if letter == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(text);
                }
                letter => text.push(letter),
            }
        }
        Err("unterminated quoted string".into())
    }

    /// Reads an index, a slice, a name in quotes, or several of them.
    fn brackets(&mut self) -> Result<Vec<Node>, String> {
        let Some((inner, rest)) = self.rest[1..].split_once(']') else {
            return Err("unterminated array".into());
        };
        self.rest = rest;
        let mut parts = inner.split(',');
        if let (Some(_), Some(_)) = (parts.next(), parts.next()) {
            let alternatives = inner
                .split(',')
                .map(|part| bracket(part.trim_matches(' ')).map(|node| vec![node]));
            return Ok(vec![Node::Union(alternatives.collect::<Result<_, _>>()?)]);
        }
        bracket(inner).map(|node| vec![node])
    }

    fn filter(&mut self) -> Result<Node, String> {
        let text = &self.rest["[?(".len()..];
        let mut quote = None;
        let mut before = ' ';
        let mut is_closed = false;
        let mut end = None;
        for (at, letter) in text.char_indices() {
            match letter {
                '\n' => break,
                '"' | '\'' if quote.is_none() => quote = Some(letter),
                letter if quote == Some(letter) && before != '\\' => is_closed = true,
                ')' if quote.is_some() == is_closed => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
            before = letter;
        }
        let Some(end) = end else {
            return Err("unterminated filter".into());
        };
        let inner = &text[..end];
        self.rest = text[end + 1..]
            .strip_prefix(']')
            .ok_or("unclosed array expect ]")?;
        let is_operator = |letter: char| "!<>=".contains(letter);
        let parse = |text: &str| Parser { rest: text }.nodes();
        match inner.find(is_operator) {
            Some(start) if start > 0 => {
                let right = inner[start..].trim_start_matches(is_operator);
                let operator = &inner[start..inner.len() - right.len()];
                Ok(Node::Filter(
                    parse(&inner[..start])?,
                    operator.to_owned(),
                    parse(right)?,
                ))
            }
            _ => Ok(Node::Filter(parse(inner)?, "exists".to_owned(), Vec::new())),
        }
    }
}

/// Parses the text in brackets.
fn bracket(text: &str) -> Result<Node, String> {
    if text == "*" {
        return Ok(Node::Slice(Slice::default()));
    }
    if let Some(name) = text
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
    {
        return Ok(Node::Field(name.replace('\\', "")));
    }
    let mut numbers = text.split(':').map(|part| match part.trim() {
        "" => Ok(None),
        number => number
            .parse::<i64>()
            .map(Some)
            .map_err(|_| format!("invalid array index {text}")),
    });
    let slice = Slice {
        start: numbers.next().transpose()?.flatten(),
        end: numbers.next().transpose()?.flatten(),
        step: numbers.next().transpose()?.flatten(),
        is_index: !text.contains(':'),
    };
    if text.is_empty() || numbers.next().is_some() {
        return Err(format!("invalid array index {text}"));
    }
    Ok(Node::Slice(slice))
}
