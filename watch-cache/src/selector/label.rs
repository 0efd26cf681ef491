//! Label selectors: requirements `k=v`, `k!=v`, `k in (..)`, `k notin (..)`, `k`, `!k`, `k>1` and
//! `k<1`, separated by commas. [`LabelSelector`] corresponds to `labels.Selector` of Kubernetes'
//! apimachinery, [`LabelRequirement`] to `labels.Requirement`, and [`LabelOperator`] to
//! `selection.Operator`.

use crate::api::status::RequestError;

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
        let mut parser = Parser { text, offset: 0 };
        let requirements = parser.selector().map_err(|reason| {
            RequestError::BadRequest(format!("unable to parse requirement: {reason}"))
        })?;
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

/// A recursive-descent parser of label selectors.
struct Parser<'a> {
    text: &'a str,
    /// The offset of the next character.
    offset: usize,
}

/// The characters that end a word, in addition to spaces.
const SPECIAL: [char; 7] = ['=', '!', '<', '>', '(', ')', ','];

impl<'a> Parser<'a> {
    fn selector(&mut self) -> Result<Vec<LabelRequirement>, String> {
        let mut requirements = Vec::new();
        self.skip_space();
        if self.rest().is_empty() {
            return Ok(requirements);
        }
        loop {
            requirements.push(self.requirement()?);
            if self.rest().is_empty() {
                return Ok(requirements);
            }
            self.expect(",")?;
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        if self.take("!") {
            let key = self.key()?;
            return Ok(LabelRequirement {
                key,
                operator: LabelOperator::DoesNotExist,
            });
        }
        let key = self.key()?;
        let operator = if self.rest().is_empty() || self.rest().starts_with(',') {
            LabelOperator::Exists
        } else if self.take("!=") {
            LabelOperator::NotIn(vec![self.value()?])
        } else if self.take("==") || self.take("=") {
            LabelOperator::In(vec![self.value()?])
        } else if self.take(">") {
            LabelOperator::GreaterThan(self.number()?)
        } else if self.take("<") {
            LabelOperator::LessThan(self.number()?)
        } else {
            match self.word() {
                "in" => LabelOperator::In(self.values()?),
                "notin" => LabelOperator::NotIn(self.values()?),
                other => {
                    return Err(format!(
                        "found '{other}', expected: in, notin, =, ==, !=, >, <"
                    ));
                }
            }
        };
        Ok(LabelRequirement { key, operator })
    }

    fn key(&mut self) -> Result<String, String> {
        let word = self.word();
        let legal = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
        if word.is_empty() || !word.chars().all(legal) {
            return Err(format!("found '{word}', expected: !, identifier, or ','"));
        }
        Ok(word.to_owned())
    }

    fn value(&mut self) -> Result<String, String> {
        let word = self.word();
        let legal = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if !word.chars().all(legal) {
            return Err(format!("values: Invalid value: \"{word}\""));
        }
        Ok(word.to_owned())
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        self.expect("(")?;
        let mut values = vec![self.value()?];
        while self.take(",") {
            values.push(self.value()?);
        }
        self.expect(")")?;
        Ok(values)
    }

    fn number(&mut self) -> Result<i64, String> {
        let word = self.word();
        word.parse().map_err(|_| {
            format!("for 'Gt', 'Lt' operators, the value must be an integer: '{word}'")
        })
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|letter: char| letter.is_whitespace() || SPECIAL.contains(&letter))
            .unwrap_or(rest.len());
        self.offset += end;
        self.skip_space();
        &rest[..end]
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) {
            return Ok(());
        }
        Err(format!("found '{}', expected: '{token}'", self.rest()))
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.offset += token.len();
            self.skip_space();
        }
        found
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.offset += rest.len() - rest.trim_start().len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.offset..]
    }
}

#[cfg(test)]
mod tests {
    use super::LabelSelector;

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
    fn wc_353_invalid_label_selectors_return_400() {
        for invalid in [
            "k in a", "k in (a", "=a", "k~a", "k=a,,", "k>x", "!", "k=a b", "k in ()x",
        ] {
            let error = LabelSelector::parse(invalid).unwrap_err();
            assert_eq!(error.code(), 400, "{invalid}");
        }
    }
}
