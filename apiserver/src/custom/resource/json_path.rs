//! JSON paths: the subset of Kubernetes' templates that columns and selectable fields use.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// The maximum length of a path.
pub const PATH_BYTES_MAX: usize = 4096;
/// The maximum number of values that a path finds.
pub const PATH_RESULTS_MAX: usize = 10_000;

/// A path to values in an object, such as `.status.conditions[?(@.type=="Ready")].status`.
///
/// ```
/// use revstore_apiserver::custom::resource::JsonPath;
/// use serde_json::json;
///
/// let path = JsonPath::parse(".spec.ports[0].name")?;
/// let object = json!({"spec": {"ports": [{"name": "http"}]}});
/// assert_eq!(path.first(&object).as_deref(), Some(&json!("http")));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Node>);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Node>>),
    Filter(Vec<Node>, String, Vec<Node>),
    Literal(Value),
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    /// Whether the slice is one index.
    is_index: bool,
}

/// The values that a path finds.
type Found<'a> = Vec<Cow<'a, Value>>;

impl JsonPath {
    /// Parses a path.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(path: &str) -> Result<Self, String> {
        if path.len() > PATH_BYTES_MAX {
            return Err("the path is too long".into());
        }
        Parser { rest: path }.nodes().map(Self)
    }

    /// Returns the first value that the path finds.
    pub fn first<'a>(&self, object: &'a Value) -> Option<Cow<'a, Value>> {
        let found = evaluate(&self.0, vec![Cow::Borrowed(object)]).ok()?;
        found.into_iter().next()
    }
}

struct Parser<'a> {
    rest: &'a str,
}

fn is_terminator(letter: char) -> bool {
    " \t\r\n.,[]$@{}".contains(letter)
}

impl Parser<'_> {
    fn nodes(&mut self) -> Result<Vec<Node>, String> {
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

/// The path does not fit the object, or finds too much.
struct Mismatch;

fn evaluate<'a>(nodes: &[Node], input: Found<'a>) -> Result<Found<'a>, Mismatch> {
    let mut current = input;
    for node in nodes {
        current = step(node, current)?;
        if current.len() > PATH_RESULTS_MAX {
            return Err(Mismatch);
        }
    }
    Ok(current)
}

fn step<'a>(node: &Node, input: Found<'a>) -> Result<Found<'a>, Mismatch> {
    let mut found = Vec::new();
    match node {
        Node::Literal(value) => found.push(Cow::Owned(value.clone())),
        Node::Field(name) => {
            let field = |value| select(value, |value| value.get(name.as_str()));
            found.extend(input.into_iter().filter_map(field));
        }
        Node::Wildcard => input
            .into_iter()
            .for_each(|value| found.extend(children(&value))),
        Node::Recursive => {
            for value in input {
                descend(value, &mut found)?;
            }
        }
        Node::Slice(slice) => {
            for value in input {
                if value.is_null() {
                    continue;
                }
                let length = value.as_array().ok_or(Mismatch)?.len();
                for index in slice.indexes(length)? {
                    found.extend(select(value.clone(), |value| value.get(index)));
                }
            }
        }
        Node::Union(alternatives) => {
            for alternative in alternatives {
                found.extend(evaluate(alternative, input.clone())?);
            }
        }
        Node::Filter(left, operator, right) => {
            for value in input {
                let length = value.as_array().ok_or(Mismatch)?.len();
                for index in 0..length {
                    let Some(item) = select(value.clone(), |value| value.get(index)) else {
                        continue;
                    };
                    if passes(&item, left, operator, right)? {
                        found.push(item);
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Returns a part of a value, without a copy if the value is borrowed.
fn select(
    value: Cow<'_, Value>,
    part: impl Fn(&Value) -> Option<&Value>,
) -> Option<Cow<'_, Value>> {
    match value {
        Cow::Borrowed(value) => part(value).map(Cow::Borrowed),
        Cow::Owned(value) => part(&value).cloned().map(Cow::Owned),
    }
}

fn children<'a>(value: &Cow<'a, Value>) -> Found<'a> {
    match value {
        Cow::Borrowed(Value::Array(list)) => list.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        _ => Vec::new(),
    }
}

/// Adds a value and all below it that have parts.
fn descend<'a>(value: Cow<'a, Value>, found: &mut Found<'a>) -> Result<(), Mismatch> {
    let below = children(&value);
    if below.is_empty() {
        return Ok(());
    }
    if found.len() >= PATH_RESULTS_MAX {
        return Err(Mismatch);
    }
    found.push(value);
    below
        .into_iter()
        .try_for_each(|value| descend(value, found))
}

fn passes(item: &Value, left: &[Node], operator: &str, right: &[Node]) -> Result<bool, Mismatch> {
    let lefts = evaluate(left, vec![Cow::Borrowed(item)])?;
    if operator == "exists" {
        return Ok(!lefts.is_empty());
    }
    let rights = evaluate(right, vec![Cow::Borrowed(item)])?;
    let (left, right) = match (lefts.as_slice(), rights.as_slice()) {
        ([], _) | (_, []) => return Ok(false),
        ([left], [right]) => (left, right),
        _ => return Err(Mismatch),
    };
    let order = match (&**left, &**right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) if ["==", "!="].contains(&operator) => {
            left.cmp(right)
        }
        (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
            left.as_f64().partial_cmp(&right.as_f64()).ok_or(Mismatch)?
        }
        _ => return Err(Mismatch),
    };
    match operator {
        "==" => Ok(order == Ordering::Equal),
        "!=" => Ok(order != Ordering::Equal),
        "<" => Ok(order == Ordering::Less),
        ">" => Ok(order == Ordering::Greater),
        "<=" => Ok(order != Ordering::Greater),
        ">=" => Ok(order != Ordering::Less),
        _ => Err(Mismatch),
    }
}

impl Slice {
    /// Returns the indexes in a list of a length.
    fn indexes(&self, length: usize) -> Result<Vec<usize>, Mismatch> {
        let length = i64::try_from(length).map_err(|_| Mismatch)?;
        let from_end = |at: i64| {
            if at < 0 {
                at.saturating_add(length)
            } else {
                at
            }
        };
        let start = from_end(self.start.unwrap_or(0));
        let end = match self.end {
            _ if self.is_index => start.saturating_add(1),
            end => from_end(end.unwrap_or(length)),
        };
        if start == end {
            return Ok(Vec::new());
        }
        let step = self.step.unwrap_or(1);
        if !(0..length).contains(&start) || end > length || start > end || step <= 0 {
            return Err(Mismatch);
        }
        let step = usize::try_from(step).map_err(|_| Mismatch)?;
        let at = |at: i64| usize::try_from(at).map_err(|_| Mismatch);
        Ok((at(start)?..at(end)?).step_by(step).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::JsonPath;

    fn first(path: &str) -> Value {
        let object = json!({
            "spec": {"s": "x", "arr": ["p", "q"], "a.b": 1, "ports": [{"n": "a", "p": 1}, {"n": "b", "p": 2}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "No"}]},
        });
        let path = JsonPath::parse(path).unwrap();
        path.first(&object)
            .map_or(json!("<none>"), std::borrow::Cow::into_owned)
    }

    #[test]
    fn paths_find_what_they_find_in_kubernetes() {
        for (path, expected) in [
            (".spec.s", json!("x")),
            ("$.spec.s", json!("x")),
            (".spec.nope", json!("<none>")),
            (".spec.arr", json!(["p", "q"])),
            (".spec.arr[0]", json!("p")),
            (".spec.arr[-1]", json!("q")),
            (".spec.arr[1:]", json!("q")),
            (".spec.arr[5]", json!("<none>")),
            (".spec.arr[*]", json!("p")),
            (".spec.s[0]", json!("<none>")),
            (".spec['s']", json!("x")),
            (".spec.a\\.b", json!(1)),
            (".spec.ports[1,0].n", json!("b")),
            (".spec.ports[?(@.p>1)].n", json!("b")),
            (".spec.ports[?(@.p>=\"1\")].n", json!("<none>")),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                json!("True"),
            ),
            (".status.conditions[?(@.type=='Other')].status", json!("No")),
            (".status.conditions[?(@.nope)].status", json!("<none>")),
            ("..conditions[0].type", json!("Ready")),
            (".spec.*", json!(1)),
        ] {
            assert_eq!(first(path), expected, "{path}");
        }
        for path in [
            ".a[",
            ".a[x]",
            ".a[?(@.b",
            "....a",
            ".a[?(@.b)",
            "x",
            &".a".repeat(4000),
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        let path = JsonPath::parse("..a..a..a..a").unwrap();
        let mut deep = json!({});
        for _ in 0..80 {
            deep = json!({"a": deep, "b": {"a": {"c": 1}}});
        }
        assert_eq!(path.first(&deep), None, "it finds too much");
    }
}
