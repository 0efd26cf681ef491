//! Label selectors of configurations.

use serde_json::{Map, Value};

/// A `LabelSelector`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Reads a selector; none selects everything.
    ///
    /// # Errors
    /// An operator is unknown.
    pub(super) fn parse(selector: Option<&Value>) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let Some(selector) = selector else {
            return Ok(Self::default());
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            requirements.extend(labels.iter().map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::In(vec![text(value)]),
            }));
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.map(text).collect();
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In(values),
                "NotIn" => Operator::NotIn(values),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            requirements.push(Requirement {
                key: text(&expression["key"]),
                operator,
            });
        }
        Ok(Self(requirements))
    }

    /// Returns whether everything is selected.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether labels are selected.
    pub(super) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.0.iter().all(|requirement| {
            let found = labels
                .and_then(|labels| labels.get(&requirement.key))
                .and_then(Value::as_str);
            let is_in =
                |values: &[String]| found.is_some_and(|found| values.iter().any(|it| it == found));
            match &requirement.operator {
                Operator::In(values) => is_in(values),
                Operator::NotIn(values) => !is_in(values),
                Operator::Exists => found.is_some(),
                Operator::DoesNotExist => found.is_none(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Selector;

    #[test]
    fn selectors_are_those_of_kubernetes() {
        let labels = json!({"a": "1", "b": "2"});
        let matches = |selector: serde_json::Value| {
            let selector = Selector::parse(Some(&selector)).unwrap();
            selector.matches(labels.as_object())
        };
        let one = |operator: &str, key: &str, values: &[&str]| {
            matches(
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}),
            )
        };
        assert!(matches(json!({})) && Selector::parse(None).unwrap().is_empty());
        assert!(matches(json!({"matchLabels": {"a": "1"}})));
        assert!(!matches(json!({"matchLabels": {"a": "1", "b": "1"}})));
        assert!(one("In", "a", &["0", "1"]) && !one("In", "c", &["1"]));
        assert!(one("NotIn", "a", &["0"]) && one("NotIn", "c", &["1"]));
        assert!(one("Exists", "a", &[]) && one("DoesNotExist", "c", &[]));
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]});
        assert!(Selector::parse(Some(&unknown)).is_err());
    }
}
