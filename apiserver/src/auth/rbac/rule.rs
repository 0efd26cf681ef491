//! A rule of a role: verbs on resources, or on paths.

use revstore_watch_cache::status::quoted;
use serde_json::{Map, Value, json};

use crate::auth::Attributes;

/// What stands for everything in a list of a rule.
pub(super) const ALL: &str = "*";

/// A rule of a role. Corresponds to `rbac/v1.PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) groups: Vec<String>,
    /// Plurals, each also with `/` and a subresource.
    pub(crate) resources: Vec<String>,
    /// The objects; none for all of them.
    pub(crate) names: Vec<String>,
    /// Paths that are not resources; a `*` at the end stands for any text.
    pub(crate) paths: Vec<String>,
}

impl Rule {
    /// Reads a rule of an object.
    pub(crate) fn parse(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let items = rule[field].as_array().into_iter().flatten();
            items
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect()
        };
        Self {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            paths: texts("nonResourceURLs"),
        }
    }

    /// Reads the rules of a role.
    pub(crate) fn parse_all(rules: Option<&Value>) -> Vec<Self> {
        let rules = rules.and_then(Value::as_array).into_iter().flatten();
        rules.map(Self::parse).collect()
    }

    /// Returns a rule that allows everything on resources, and one that allows it on paths.
    pub(crate) fn everything() -> [Self; 2] {
        let all = || vec![ALL.to_owned()];
        [
            Self {
                verbs: all(),
                groups: all(),
                resources: all(),
                ..Self::default()
            },
            Self {
                verbs: all(),
                paths: all(),
                ..Self::default()
            },
        ]
    }

    /// Returns whether the rule allows a request.
    pub(crate) fn allows(&self, attributes: Attributes<'_>) -> bool {
        match attributes {
            Attributes::Path { verb, path } => {
                has(&self.verbs, verb) && self.paths.iter().any(|pattern| matches(pattern, path))
            }
            Attributes::Resource {
                verb,
                group,
                resource,
                subresource,
                name,
                ..
            } => {
                has(&self.verbs, verb)
                    && has(&self.groups, group)
                    && self
                        .resources
                        .iter()
                        .any(|own| is_resource(own, resource, subresource))
                    && (self.names.is_empty() || self.names.iter().any(|own| own == name))
            }
        }
    }

    /// Returns the rules with one verb on one resource, name or path each that together allow what this one allows.
    fn parts(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for verb in &self.verbs {
            for group in &self.groups {
                for resource in &self.resources {
                    let part = Self {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    parts.extend(self.names.iter().map(|name| Self {
                        names: one(name),
                        ..part.clone()
                    }));
                }
            }
            parts.extend(self.paths.iter().map(|path| Self {
                verbs: one(verb),
                paths: one(path),
                ..Self::default()
            }));
        }
        parts
    }

    /// Returns whether the rule allows everything that another one allows, which is one of [`parts`](Self::parts).
    fn covers(&self, part: &Self) -> bool {
        let all = |own: &[String], asked: &[String]| asked.iter().all(|text| has(own, text));
        let covers_resource = |asked: &String| {
            let subresource = asked.split_once('/').map(|(_, sub)| sub);
            self.resources.iter().any(|own| {
                own == ALL
                    || own == asked
                    || subresource.is_some_and(|sub| own.strip_prefix("*/") == Some(sub))
            })
        };
        all(&self.verbs, &part.verbs)
            && all(&self.groups, &part.groups)
            && part.resources.iter().all(covers_resource)
            && (self.names.is_empty()
                || !part.names.is_empty()
                    && part.names.iter().all(|name| self.names.contains(name)))
            && part
                .paths
                .iter()
                .all(|path| self.paths.iter().any(|own| matches(own, path)))
    }

    /// Returns whether the rule is about paths that are not resources.
    pub(crate) fn is_of_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Returns the rule as in a review of rules.
    pub(crate) fn to_json(&self) -> Value {
        let mut rule = Map::new();
        for (field, texts) in [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ] {
            if !texts.is_empty() {
                rule.insert(field.to_owned(), json!(texts));
            }
        }
        Value::Object(rule)
    }

    /// Returns the rule as in messages.
    pub(crate) fn describe(&self) -> String {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.iter().filter(|(_, texts)| !texts.is_empty());
        let parts = parts.map(|(name, texts)| format!("{name}:{}", list(texts)));
        format!("{{{}}}", parts.collect::<Vec<_>>().join(", "))
    }
}

/// Returns the rules that are missing in `owned` to allow what `wanted` allows; those of one resource with all of their
/// verbs.
pub(crate) fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut missing: Vec<Rule> = Vec::new();
    let parts = wanted.iter().flat_map(Rule::parts);
    for part in parts.filter(|part| !owned.iter().any(|own| own.covers(part))) {
        let same = |known: &&mut Rule| {
            part.paths.is_empty()
                && known.paths.is_empty()
                && (&known.groups, &known.resources, &known.names)
                    == (&part.groups, &part.resources, &part.names)
        };
        match missing.iter_mut().find(same) {
            Some(known) => known.verbs.extend(part.verbs),
            None => missing.push(part),
        }
    }
    missing
}

/// Returns texts as Go prints a list of them.
pub(crate) fn list(texts: &[String]) -> String {
    let items: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", items.join(" "))
}

fn has(texts: &[String], text: &str) -> bool {
    texts.iter().any(|own| own == ALL || own == text)
}

/// Returns whether a text is the path, or ends in `*` and the rest is the beginning of the path.
fn matches(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.ends_with(ALL) && path.starts_with(pattern.trim_end_matches(ALL))
}

/// Returns whether a resource of a rule is the one of a request.
fn is_resource(own: &str, resource: &str, subresource: &str) -> bool {
    if own == ALL {
        return true;
    }
    match own.split_once('/') {
        None => subresource.is_empty() && own == resource,
        Some((ALL, sub)) => !subresource.is_empty() && sub == subresource,
        Some((plural, sub)) => plural == resource && sub == subresource && !sub.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &Value) -> Rule {
        Rule::parse(json)
    }

    fn resource<'a>(verb: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes::Resource {
            verb,
            group: "",
            namespace: "a",
            resource,
            subresource,
            name,
        }
    }

    #[test]
    fn rules_name_resources_subresources_and_objects() {
        let cases = [
            ("pods", "pods", true),
            ("pods", "pods/status", false),
            ("pods/status", "pods/status", true),
            ("pods/status", "pods", false),
            ("*/status", "pods/status", true),
            ("*/status", "pods", false),
            ("*", "pods/log", true),
            ("pods/*", "pods/log", false),
            ("pods/", "pods", false),
        ];
        for (own, asked, expected) in cases {
            let rule = rule(&json!({"verbs": ["get"], "apiGroups": [""], "resources": [own]}));
            let allowed = rule.allows(resource("get", asked, "p"));
            assert_eq!(allowed, expected, "{own} {asked}");
            assert!(!rule.allows(resource("list", asked, "p")));
        }
        let named = rule(
            &json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["pods"], "resourceNames": ["p"]}),
        );
        assert!(named.allows(resource("delete", "pods", "p")));
        assert!(!named.allows(resource("delete", "pods", "q")));
        assert!(!named.allows(resource("list", "pods", "")));
        let path = |path| Attributes::Path { verb: "get", path };
        assert!(!named.allows(path("/metrics")));
        let paths = rule(&json!({"verbs": ["get"], "nonResourceURLs": ["/healthz/*", "/version"]}));
        for (asked, expected) in [
            ("/healthz/a/b", true),
            ("/healthz", false),
            ("/version", true),
            ("/version/", false),
        ] {
            assert_eq!(paths.allows(path(asked)), expected, "{asked}");
        }
    }

    #[test]
    fn missing_rules_are_those_that_no_owned_one_covers() {
        let owned = [rule(
            &json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/scale"]}),
        )];
        let check = |wanted: &Value, expected: &[&str]| {
            let missing = missing(&owned, &[rule(wanted)]);
            let described: Vec<_> = missing.iter().map(Rule::describe).collect();
            assert_eq!(described, expected, "{wanted}");
        };
        check(
            &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}),
            &[],
        );
        check(
            &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["x/scale"]}),
            &[],
        );
        check(
            &json!({"verbs": ["get", "watch", "delete"], "apiGroups": [""], "resources": ["pods"]}),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}"#],
        );
        check(
            &json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#],
        );
        check(
            &json!({"verbs": ["get"], "nonResourceURLs": ["/a"]}),
            &[r#"{NonResourceURLs:["/a"], Verbs:["get"]}"#],
        );
        assert!(missing(&Rule::everything(), &owned).is_empty());
        // A rule for some objects does not cover one for all of them.
        let named = Rule {
            names: vec!["p".to_owned()],
            ..owned[0].clone()
        };
        assert!(!missing(&[named], &owned).is_empty());
    }
}
