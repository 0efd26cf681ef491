//! JSON paths: the subset of Kubernetes' templates that columns and selectable fields use.

use std::borrow::Cow;
use std::cmp::Ordering;

use revstore_watch_cache::registry::JsonObject;
use serde_json::Value;

use super::json_path_parser::Parser;

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
pub(super) enum Node {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Node>>),
    Filter(Vec<Node>, String, Vec<Node>),
    Literal(Value),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    pub(super) step: Option<i64>,
    /// Whether the slice is one index.
    pub(super) is_index: bool,
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

    /// Returns the first value that the path finds in an object.
    pub fn first_of<'a>(&self, object: &'a JsonObject) -> Option<Cow<'a, Value>> {
        let found = if let Some((Node::Field(name), rest)) = self.0.split_first() {
            evaluate(rest, vec![Cow::Borrowed(object.get(name)?)])
        } else {
            let object = Value::Object(object.clone());
            evaluate(&self.0, vec![Cow::Owned(object)])
        };
        found.ok()?.into_iter().next()
    }

    /// Returns the first value that the path finds.
    pub fn first<'a>(&self, object: &'a Value) -> Option<Cow<'a, Value>> {
        let found = evaluate(&self.0, vec![Cow::Borrowed(object)]).ok()?;
        found.into_iter().next()
    }
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
        Cow::Owned(Value::Array(list)) => list.iter().cloned().map(Cow::Owned).collect(),
        Cow::Owned(Value::Object(map)) => map.values().cloned().map(Cow::Owned).collect(),
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
