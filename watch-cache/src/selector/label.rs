//! Label selectors: requirements `k=v`, `k!=v`, `k in (..)`, `k notin (..)`, `k`, `!k`, `k>1` and
//! `k<1`, separated by commas. [`LabelSelector`] corresponds to `labels.Selector` of Kubernetes'
//! apimachinery, [`LabelRequirement`] to `labels.Requirement`, and [`LabelOperator`] to
//! `selection.Operator`.

use std::iter::Peekable;

use crate::api::status::RequestError;
use crate::encode::object::StoredObject;
use crate::names;
use crate::status::{FieldPath, StatusCause};

/// A label selector: a list of requirements, which must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// The requirements, in the order of the text.
    pub requirements: Vec<LabelRequirement>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The key of the label.
    pub key: String,
    /// The operator, with its operands.
    pub operator: LabelOperator,
}

/// The operator of a [`LabelRequirement`], with its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label exists and has one of these values. `=` and `==` have one value.
    In(Vec<String>),
    /// The label does not exist, or has none of these values. `!=` has one value.
    NotIn(Vec<String>),
    /// The value of the label is an integer greater than the operand.
    GreaterThan(i64),
    /// The value of the label is an integer less than the operand.
    LessThan(i64),
}

impl LabelSelector {
    /// Returns whether an object has matching labels. The labels of an object that cannot be decoded
    /// are unknown, and count as absent.
    ///
    /// ```
    /// use revstore_watch_cache::selector::LabelSelector;
    /// use revstore_watch_cache::{JsonKind, Object, ObjectRef, Revision};
    ///
    /// let value = r#"{"metadata":{"labels":{"app":"web"}}}"#;
    /// let kind = JsonKind::new("v1", "Pod");
    /// let pod = Object::from_parts(&ObjectRef::namespaced("ns", "a"), Revision(1), value, &kind);
    /// assert!(LabelSelector::parse("app in (web, api)")?.matches(&pod));
    /// assert!(!LabelSelector::parse("app!=web")?.matches(&pod));
    /// # Ok::<(), revstore_watch_cache::RequestError>(())
    /// ```
    pub fn matches(&self, object: &StoredObject) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(object.label(&requirement.key)))
    }

    /// Returns a selector that requires one label to have a value.
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            requirements: vec![LabelRequirement {
                key: key.into(),
                operator: LabelOperator::In(vec![value.into()]),
            }],
        }
    }

    /// Parses a selector.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if the text is not a valid selector.
    ///
    /// ```
    /// use revstore_watch_cache::selector::{LabelOperator, LabelSelector};
    /// let selector = LabelSelector::parse("app in (web, api),!old,tier!=db")?;
    /// assert_eq!(selector.requirements.len(), 3);
    /// assert_eq!(selector.requirements[2].operator, LabelOperator::NotIn(vec!["db".into()]));
    /// assert!(LabelSelector::parse("app in web").is_err());
    /// # Ok::<(), revstore_watch_cache::RequestError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let parser = Parser {
            rest: Lexer { rest: text }.peekable(),
        };
        let requirements = parser.selector().map_err(RequestError::BadRequest)?;
        Ok(Self { requirements })
    }
}

impl LabelRequirement {
    /// Returns whether the requirement matches the value of the label, which is `None` if the object
    /// does not have the label. Corresponds to `Requirement.Matches`.
    pub(crate) fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::In(values) => {
                value.is_some_and(|value| values.iter().any(|v| v == value))
            }
            LabelOperator::NotIn(values) => {
                value.is_none_or(|value| values.iter().all(|v| v != value))
            }
            LabelOperator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            LabelOperator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// The symbols of selectors. A symbol stands before its prefixes.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "<", ">", "(", ")", ","];

/// Splits a selector into symbols and words. Spaces separate words.
struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Lexer<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let is_space = |letter| matches!(letter, ' ' | '\t' | '\r' | '\n');
        let rest = self.rest.trim_start_matches(is_space);
        let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
        let end = match symbol {
            Some(symbol) => symbol.len(),
            None => rest
                .find(|letter| is_space(letter) || "=!<>(),".contains(letter))
                .unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(end);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !SYMBOLS.contains(&token)
}

/// A parser of label selectors with the error texts of Kubernetes. The end of the text is the empty
/// token.
struct Parser<'a> {
    rest: Peekable<Lexer<'a>>,
}

impl<'a> Parser<'a> {
    fn selector(mut self) -> Result<Vec<LabelRequirement>, String> {
        let mut requirements = Vec::new();
        loop {
            let token = self.peek();
            if token.is_empty() {
                return Ok(requirements);
            }
            if !is_word(token) && token != "!" {
                return Err(format!(
                    "found '{token}', expected: !, identifier, or 'end of string'"
                ));
            }
            let requirement = self.requirement();
            requirements.push(
                requirement.map_err(|reason| format!("unable to parse requirement: {reason}"))?,
            );
            match self.next() {
                "" => return Ok(requirements),
                "," => {
                    let token = self.peek();
                    if !is_word(token) && token != "!" {
                        return Err(format!("found '{token}', expected: identifier after ','"));
                    }
                }
                token => {
                    return Err(format!("found '{token}', expected: ',' or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let negated = self.peek() == "!";
        if negated {
            self.next();
        }
        let key = self.next();
        if !is_word(key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        check_key(key)?;
        let operator = if negated {
            LabelOperator::DoesNotExist
        } else if matches!(self.peek(), "" | ",") {
            LabelOperator::Exists
        } else {
            match self.next() {
                "in" => LabelOperator::In(self.values(key)?),
                "notin" => LabelOperator::NotIn(self.values(key)?),
                "=" | "==" => LabelOperator::In(vec![self.value(key)?]),
                "!=" => LabelOperator::NotIn(vec![self.value(key)?]),
                ">" => LabelOperator::GreaterThan(self.number(key)?),
                "<" => LabelOperator::LessThan(self.number(key)?),
                token => {
                    return Err(format!(
                        "found '{token}', expected: in, notin, =, ==, !=, gt, lt"
                    ));
                }
            }
        };
        Ok(LabelRequirement {
            key: key.to_owned(),
            operator,
        })
    }

    /// Parses one value, which may be absent.
    fn value(&mut self, key: &str) -> Result<String, String> {
        let value = self.one_value()?;
        check_value(key, 0, value)?;
        Ok(value.to_owned())
    }

    fn one_value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek(), "" | ",") {
            return Ok("");
        }
        let token = self.next();
        if is_word(token) {
            return Ok(token);
        }
        Err(format!("found '{token}', expected: identifier"))
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let value = self.one_value()?;
        let number = value.parse().map_err(|_| {
            let reason = "for 'Gt', 'Lt' operators, the value must be an integer";
            StatusCause::invalid(FieldPath::new("values").index(0), value, reason).to_string()
        })?;
        check_value(key, 0, value)?;
        Ok(number)
    }

    /// Parses a list of values in parentheses. Absent values are empty.
    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let token = self.next();
        if token != "(" {
            return Err(format!("found '{token}' expected: '('"));
        }
        let token = self.peek();
        if !is_word(token) && !matches!(token, "," | ")") {
            return Err(format!("found '{token}', expected: ',', ')' or identifier"));
        }
        let mut values = Vec::new();
        loop {
            let value = match self.peek() {
                "," | ")" => "",
                token if is_word(token) => self.next(),
                token => return Err(format!("found '{token}', expected: ',', or identifier")),
            };
            check_value(key, values.len(), value)?;
            values.push(value.to_owned());
            match self.next() {
                "," => {}
                ")" => return Ok(values),
                token => return Err(format!("found '{token}', expected: ',' or ')'")),
            }
        }
    }

    fn peek(&mut self) -> &'a str {
        self.rest.peek().copied().unwrap_or_default()
    }

    fn next(&mut self) -> &'a str {
        self.rest.next().unwrap_or_default()
    }
}

/// Checks that the key of a requirement can be the key of a label.
fn check_key(key: &str) -> Result<(), String> {
    match names::qualified_name_error(key) {
        None => Ok(()),
        Some(reason) => Err(StatusCause::invalid("key", key, &reason).to_string()),
    }
}

/// Checks that a value of a requirement can be the value of a label.
fn check_value(key: &str, index: usize, value: &str) -> Result<(), String> {
    let path = || FieldPath::new("values").index(index).key(key);
    match names::label_value_error(value) {
        None => Ok(()),
        Some(reason) => Err(StatusCause::invalid(path(), value, &reason).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{LabelOperator, LabelSelector};

    fn check(selector: &str, value: Option<&str>, expected: bool) {
        let parsed = LabelSelector::parse(selector).unwrap();
        let matches = parsed.requirements.iter().all(|r| r.matches(value));
        assert_eq!(matches, expected, "{selector} on {value:?}");
    }

    #[test]
    fn wc_353_label_operators_match_as_in_kubernetes() {
        for (selector, absent, a, b) in [
            ("k=a", false, true, false),
            ("k==a", false, true, false),
            ("k!=a", true, false, true),
            ("k in (a,b)", false, true, true),
            ("k in ( a )", false, true, false),
            ("k notin (a)", true, false, true),
            ("k", false, true, true),
            ("!k", true, false, false),
            ("k, k!=b", false, true, false),
            ("", true, true, true),
        ] {
            check(selector, None, absent);
            check(selector, Some("a"), a);
            check(selector, Some("b"), b);
        }
        check("k>1", Some("2"), true);
        check("k>1", Some("x"), false);
        check("k<1", Some("0"), true);
        check("k=", Some(""), true);
    }

    #[test]
    fn wc_353_invalid_label_selectors_return_400_with_the_texts_of_kubernetes() {
        for (invalid, text) in [
            (
                "==",
                "found '==', expected: !, identifier, or 'end of string'",
            ),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a in (",
                "unable to parse requirement: found '', expected: ',', ')' or identifier",
            ),
            (
                "a in",
                "unable to parse requirement: found '' expected: '('",
            ),
            (
                "a in b",
                "unable to parse requirement: found 'b' expected: '('",
            ),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            (
                "a in (b,",
                "unable to parse requirement: found '', expected: ',', or identifier",
            ),
            (
                "a=bad value!",
                "found 'value', expected: ',' or 'end of string'",
            ),
            (
                "n>abc",
                "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' \
                 operators, the value must be an integer",
            ),
            ("a,,b", "found ',', expected: identifier after ','"),
            ("a,", "found '', expected: identifier after ','"),
            (
                "!",
                "unable to parse requirement: found '', expected: identifier",
            ),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            ("k in ()x", "found 'x', expected: ',' or 'end of string'"),
        ] {
            let error = LabelSelector::parse(invalid).unwrap_err();
            assert_eq!(
                (error.code(), error.to_string().as_str()),
                (400, text),
                "{invalid}"
            );
        }
        let long = "x".repeat(64);
        for invalid in [
            "k~a",
            "/a",
            "a/",
            "A.b/c",
            "a/b/c",
            "-a",
            "a.",
            "a=-1",
            "a=b.",
            "n>-1",
            "é",
            &format!("{long}=a"),
            &format!("a={long}"),
            &format!("a in (b,{long})"),
        ] {
            let error = LabelSelector::parse(invalid).unwrap_err();
            assert!(
                error.to_string().contains("Invalid value: "),
                "{invalid}: {error}"
            );
            assert_eq!(error.code(), 400, "{invalid}");
        }
    }

    #[test]
    fn wc_353_values_may_be_absent_and_keywords_may_be_keys() {
        for (selector, values) in [
            ("k in ()", &[""][..]),
            ("k in (a,,b)", &["a", "", "b"]),
            ("k in (,)", &["", ""]),
            ("in=in", &["in"]),
            ("notin in (notin)", &["notin"]),
            ("example.com/k==v", &["v"]),
        ] {
            let parsed = LabelSelector::parse(selector).unwrap();
            let LabelOperator::In(found) = &parsed.requirements[0].operator else {
                panic!("{parsed:?}");
            };
            assert_eq!(found, values, "{selector}");
        }
    }
}
