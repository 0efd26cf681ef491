//! Label selectors: requirements `k=v`, `k!=v`, `k in (..)`, `k notin (..)`, `k`, `!k`, `k>1` and
//! `k<1`, separated by commas.

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
    /// The operator, with its values.
    pub op: LabelOp,
}

/// The operator of a [`LabelRequirement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelOp {
    /// The label exists.
    Exists,
    /// The label does not exist.
    Absent,
    /// The label exists and has one of these values. `=` and `==` have one value.
    In(Vec<String>),
    /// The label does not exist, or has none of these values. `!=` has one value.
    NotIn(Vec<String>),
    /// The label is a number greater than this one.
    Greater(i64),
    /// The label is a number less than this one.
    Less(i64),
}

impl LabelSelector {
    /// Returns a selector that requires one label to have a value.
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            requirements: vec![LabelRequirement {
                key: key.into(),
                op: LabelOp::In(vec![value.into()]),
            }],
        }
    }

    /// Parses a selector.
    ///
    /// # Errors
    /// 400 if the text cannot be parsed.
    ///
    /// ```
    /// use revstore_watch_cache::selector::{LabelOp, LabelSelector};
    /// let selector = LabelSelector::parse("app in (web, api),!old,tier!=db")?;
    /// assert_eq!(selector.requirements.len(), 3);
    /// assert_eq!(selector.requirements[2].op, LabelOp::NotIn(vec!["db".into()]));
    /// assert!(LabelSelector::parse("app in web").is_err());
    /// # Ok::<(), revstore_watch_cache::RequestError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let mut parser = Parser { text, at: 0 };
        let requirements = parser.selector().map_err(|why| {
            RequestError::BadRequest(format!("unable to parse requirement: {why}"))
        })?;
        Ok(Self { requirements })
    }
}

impl LabelRequirement {
    pub(crate) fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.op {
            LabelOp::Exists => value.is_some(),
            LabelOp::Absent => value.is_none(),
            LabelOp::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            LabelOp::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
            LabelOp::Greater(bound) => number().is_some_and(|number| number > *bound),
            LabelOp::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// A recursive-descent parser; `at` is the offset of the next character.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// Characters that end a word, besides spaces.
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
                op: LabelOp::Absent,
            });
        }
        let key = self.key()?;
        let op = if self.rest().is_empty() || self.rest().starts_with(',') {
            LabelOp::Exists
        } else if self.take("!=") {
            LabelOp::NotIn(vec![self.value()?])
        } else if self.take("==") || self.take("=") {
            LabelOp::In(vec![self.value()?])
        } else if self.take(">") {
            LabelOp::Greater(self.number()?)
        } else if self.take("<") {
            LabelOp::Less(self.number()?)
        } else {
            match self.word() {
                "in" => LabelOp::In(self.values()?),
                "notin" => LabelOp::NotIn(self.values()?),
                other => {
                    return Err(format!(
                        "found '{other}', expected: in, notin, =, ==, !=, >, <"
                    ));
                }
            }
        };
        Ok(LabelRequirement { key, op })
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
        self.at += end;
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
            self.at += token.len();
            self.skip_space();
        }
        found
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use super::LabelSelector;

    fn check(selector: &str, value: Option<&str>, expected: bool) {
        let parsed = LabelSelector::parse(selector).unwrap();
        let holds = parsed.requirements.iter().all(|r| r.holds(value));
        assert_eq!(holds, expected, "{selector} on {value:?}");
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
    fn wc_353_bad_label_selectors_are_bad_requests() {
        for bad in [
            "k in a", "k in (a", "=a", "k~a", "k=a,,", "k>x", "!", "k=a b", "k in ()x",
        ] {
            let error = LabelSelector::parse(bad).unwrap_err();
            assert_eq!(error.code(), 400, "{bad}");
        }
    }
}
