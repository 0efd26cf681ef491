//! One rule: its checks, and its text.

use std::collections::BTreeSet;
use std::fmt;

use super::action::{Action, Failure, HTTP_ERRORS};
use super::selector::{FrontSelector, KeySelector, Selector};
use super::trigger::Trigger;
use crate::call::{Method, MethodKind, is_named};
use crate::key_text::escape;

/// The number of a rule. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u64);

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What happens to which calls. Its text has the flags of the command line.
///
/// ```
/// use revstore_control::fault::{Action, Preset, Rule, Selector, Trigger};
/// let selector = Selector { methods: vec!["Put".into()], ..Selector::default() };
/// let rule = Rule { selector, trigger: Trigger::Next(1), action: Action::Preset(Preset::NoLeader) };
/// assert_eq!(rule.to_string(), "--method Put --next 1 --preset no-leader");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The calls that the rule is about.
    pub selector: Selector,
    /// For which of them it fires.
    pub trigger: Trigger,
    /// What happens to those.
    pub action: Action,
}

/// The maximum length of the text of an error, which is sent in a header.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// The verbs of requests for resources.
const FRONT_VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// The verbs of requests for other paths that resources do not have.
const PATH_VERBS: [&str; 4] = ["head", "post", "put", "options"];

/// A rule was not added, or not found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// No method has this name.
    #[error(
        "unknown method {0:?}: it must be a method of the server, such as Put or etcdserverpb.KV/Put"
    )]
    UnknownMethod(String),
    /// The range of keys contains none.
    #[error("the range of keys is empty")]
    EmptyRange,
    /// The methods have no keys.
    #[error("no selected method has requests for keys")]
    NoKeys,
    /// The trigger cannot fire.
    #[error("the trigger never fires: {0}")]
    NeverFires(&'static str),
    /// The probability is not above 0 and at most 1.
    #[error("invalid probability {0}: it must be above 0 and at most 1")]
    InvalidProbability(f64),
    /// The action does not apply to what the rule selects.
    #[error("{action} applies to {applies_to}, which the selector excludes")]
    Mismatch {
        /// The flag of the action.
        action: &'static str,
        /// What it applies to.
        applies_to: &'static str,
    },
    /// The server has no HTTP front.
    #[error("{0} applies to a Kubernetes API, which this server does not have")]
    NoFront(&'static str),
    /// The server is a Kubernetes API.
    #[error("{0} applies to etcd's API, and rules of this server are for its Kubernetes API")]
    OnlyEtcd(&'static str),
    /// No request has this verb.
    #[error("unknown verb {0:?}: it must be one of {verbs}, or a method of HTTP in lower case for paths that are not those of resources", verbs = FRONT_VERBS.join(", "))]
    UnknownVerb(String),
    /// No request has all of what the selector wants.
    #[error("the selector never holds: {0}")]
    NeverHolds(&'static str),
    /// The HTTP status is no error.
    #[error("invalid status {0}: it must be from 400 to 599")]
    InvalidStatus(u16),
    /// The time to wait is no time, which no header has.
    #[error("invalid time 0 of Retry-After: it must be above 0, or left out")]
    InvalidRetryAfter,
    /// The error to answer with is no error.
    #[error("an error needs a code other than OK")]
    NotAnError,
    /// The text of the error is too long.
    #[error("the text of the error has {0} bytes, more than {TEXT_BYTES_MAX}")]
    TextTooLong(usize),
    /// There are too many rules.
    #[error("there are {0} rules, the maximum; clear some")]
    TooMany(usize),
    /// No rule has this number.
    #[error("there is no fault rule {0}")]
    NotFound(RuleId),
}

impl Rule {
    /// Checks the parts of the rule, and returns the positions of its methods; empty for all.
    pub(crate) fn check(&self, methods: &[Method]) -> Result<Vec<usize>, RuleError> {
        let positions = positions(&self.selector.methods, methods)?;
        let selected = |kind| {
            let mut positions = positions.iter();
            positions.is_empty_or(|position: &usize| methods[*position].kind == kind)
        };
        if let Some(keys) = &self.selector.keys {
            let range = keys.to_range();
            if range.is_empty() {
                return Err(RuleError::EmptyRange);
            }
            if !selected(MethodKind::Keys) && !selected(MethodKind::Watch) {
                return Err(RuleError::NoKeys);
            }
        }
        self.check_trigger()?;
        let mismatch = |action, applies_to| Err(RuleError::Mismatch { action, applies_to });
        match &self.action {
            Action::Error(failure) | Action::ErrorAfter(failure) => {
                failure.check()?;
                if failure.http.is_some() {
                    return Err(RuleError::NoFront("an error with a status of HTTP"));
                }
            }
            Action::Hold | Action::Cut | Action::CancelCompacted
                if !selected(MethodKind::Watch) =>
            {
                return mismatch(self.action_flag(), "watches");
            }
            Action::LoseKeepAlive if self.selector.keys.is_some() => {
                return mismatch(self.action_flag(), "keep-alives of leases, without keys");
            }
            Action::LoseKeepAlive if !selected(MethodKind::KeepAlive) => {
                return mismatch(self.action_flag(), "keep-alives of leases");
            }
            Action::Refuse if self.selector != Selector::default() => {
                return mismatch(
                    self.action_flag(),
                    "new connections, of which nothing is known",
                );
            }
            Action::Http { .. } | Action::Stale { .. } => {
                return Err(RuleError::NoFront(self.action_flag()));
            }
            _ => {}
        }
        if !self.selector.front.is_empty() {
            return Err(RuleError::NoFront(
                "a selector by verb, resource, namespace or name",
            ));
        }
        Ok(positions)
    }

    /// Checks the parts of a rule for requests to a Kubernetes API with these resources in no namespace.
    pub(crate) fn check_front(&self, cluster_scoped: &BTreeSet<String>) -> Result<(), RuleError> {
        let selector = &self.selector;
        if !selector.methods.is_empty() {
            return Err(RuleError::OnlyEtcd("--method"));
        }
        if selector.keys.is_some() {
            return Err(RuleError::OnlyEtcd("a selector of keys"));
        }
        selector.front.check()?;
        selector.front.check_namespace(cluster_scoped)?;
        self.check_trigger()?;
        let action = self.action_flag();
        let mismatch = |applies_to| Err(RuleError::Mismatch { action, applies_to });
        let selects = |verbs: &[&str]| {
            let verb = selector.front.verb.as_deref();
            verb.is_none_or(|verb| verbs.contains(&verb))
        };
        match &self.action {
            Action::Error(failure) | Action::ErrorAfter(failure) => failure.check(),
            Action::LoseKeepAlive => Err(RuleError::OnlyEtcd(action)),
            Action::Hold | Action::Cut | Action::CancelCompacted if !selects(&["watch"]) => {
                mismatch("watches")
            }
            Action::Stale { .. } if !selects(&["get", "list"]) => mismatch("gets and lists"),
            Action::Refuse if *selector != Selector::default() => {
                mismatch("new connections, of which nothing is known")
            }
            Action::Http { status, .. } if !HTTP_ERRORS.contains(status) => {
                Err(RuleError::InvalidStatus(*status))
            }
            Action::Http {
                retry_after: Some(0),
                ..
            } => Err(RuleError::InvalidRetryAfter),
            _ => Ok(()),
        }
    }

    fn check_trigger(&self) -> Result<(), RuleError> {
        match self.trigger {
            Trigger::Next(0) => Err(RuleError::NeverFires("the next 0 calls")),
            Trigger::Every(0) => Err(RuleError::NeverFires("every call with the number 0")),
            Trigger::Probability { probability, .. }
                if !(probability > 0.0 && probability <= 1.0) =>
            {
                Err(RuleError::InvalidProbability(probability))
            }
            Trigger::Revisions {
                from: Some(from),
                to: Some(to),
            } if from > to => Err(RuleError::NeverFires(
                "the first revision is after the last",
            )),
            _ => Ok(()),
        }
    }

    fn action_flag(&self) -> &'static str {
        match self.action {
            Action::Error(_) => "--error",
            Action::ErrorAfter(_) => "--error-after",
            Action::Preset(_) => "--preset",
            Action::Delay { .. } => "--delay",
            Action::Reset => "--reset",
            Action::BlackHole => "--black-hole",
            Action::GoAway => "--goaway",
            Action::Refuse => "--refuse",
            Action::Hold => "--hold",
            Action::Cut => "--cut",
            Action::CancelCompacted => "--cancel-compacted",
            Action::LoseKeepAlive => "--lose-keep-alive",
            Action::Http { .. } => "--http",
            Action::Stale { .. } => "--stale",
        }
    }
}

/// Returns the positions of the methods with these names.
pub(super) fn positions(names: &[String], methods: &[Method]) -> Result<Vec<usize>, RuleError> {
    let mut positions = Vec::new();
    for name in names {
        let found = methods.iter().enumerate();
        let found = found.filter(|(_, method)| is_named(method.name, name));
        let before = positions.len();
        positions.extend(found.map(|(position, _)| position));
        if name.is_empty() || positions.len() == before {
            return Err(RuleError::UnknownMethod(name.clone()));
        }
    }
    positions.sort_unstable();
    positions.dedup();
    Ok(positions)
}

/// Checks that each name is the verb of a request to a Kubernetes API.
pub(super) fn check_verbs(names: &[String]) -> Result<(), RuleError> {
    let is_verb = |name: &str| FRONT_VERBS.contains(&name) || PATH_VERBS.contains(&name);
    match names.iter().find(|name| !is_verb(name)) {
        Some(name) => Err(RuleError::UnknownVerb(name.clone())),
        None => Ok(()),
    }
}

impl FrontSelector {
    /// Checks that a request may have all of what the selector wants.
    fn check(&self) -> Result<(), RuleError> {
        let is_path = |resource: &str| resource.starts_with('/');
        let resource = self.resource.as_deref();
        let is_upper = |resource: &str| resource.contains(|c: char| c.is_ascii_uppercase());
        if resource.is_some_and(|resource| !is_path(resource) && is_upper(resource)) {
            return Err(RuleError::NeverHolds(
                "resources have no capital letters, such as deployments.apps",
            ));
        }
        let Some(verb) = self.verb.as_deref() else {
            return self.check_path(resource.is_some_and(is_path));
        };
        if PATH_VERBS.contains(&verb) {
            if resource.is_some_and(|resource| !is_path(resource)) {
                return Err(RuleError::NeverHolds(
                    "requests for resources have another verb",
                ));
            }
            return self.check_path(true);
        }
        if !FRONT_VERBS.contains(&verb) {
            return Err(RuleError::UnknownVerb(verb.to_owned()));
        }
        if verb == "create" && self.name.is_some() && !resource.is_some_and(|it| it.contains('/')) {
            return Err(RuleError::NeverHolds(
                "the path of a create has a name only for a subresource, such as pods/eviction",
            ));
        }
        let is_path = resource.is_some_and(is_path);
        if is_path && !["get", "delete", "patch"].contains(&verb) {
            return Err(RuleError::NeverHolds(
                "a path that is not that of a resource has a method of HTTP as its verb",
            ));
        }
        self.check_path(is_path)
    }

    /// Checks that the resource can be in the namespace.
    fn check_namespace(&self, cluster_scoped: &BTreeSet<String>) -> Result<(), RuleError> {
        let resource = self.resource.as_deref().unwrap_or_default();
        let resource = resource
            .split_once('/')
            .map_or(resource, |(resource, _)| resource);
        if self.namespace.is_some() && cluster_scoped.contains(resource) {
            return Err(RuleError::NeverHolds("the resource is in no namespace"));
        }
        Ok(())
    }

    /// Checks a selector of requests for a path that is not that of a resource, if it is one.
    fn check_path(&self, is_path: bool) -> Result<(), RuleError> {
        if is_path && (self.namespace.is_some() || self.name.is_some()) {
            return Err(RuleError::NeverHolds(
                "a path that is not that of a resource has no namespace and no name",
            ));
        }
        Ok(())
    }
}

impl Failure {
    fn check(&self) -> Result<(), RuleError> {
        if self.code == tonic::Code::Ok {
            return Err(RuleError::NotAnError);
        }
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(RuleError::TextTooLong(self.text.len()));
        }
        Ok(())
    }
}

/// An iterator of which each or any item is asked.
trait EmptyOr: Iterator + Sized {
    /// Returns whether there is no item, or one that holds.
    fn is_empty_or(&mut self, holds: impl Fn(Self::Item) -> bool) -> bool {
        self.next()
            .is_none_or(|first| holds(first) || self.any(&holds))
    }
}

impl<I: Iterator> EmptyOr for I {}

/// A value of a flag, with the quotes of a shell if it needs them.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,@%+=".contains(&byte);
        if !self.0.is_empty() && self.0.bytes().all(is_plain) {
            return f.write_str(self.0);
        }
        write!(f, "'{}'", self.0.replace('\'', r"'\''"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut flag = |name: &str, value: Option<&str>| {
            write!(f, "{separator}--{name}")?;
            separator = " ";
            value.map_or(Ok(()), |value| write!(f, " {}", Quoted(value)))
        };
        let selector = &self.selector;
        if !selector.methods.is_empty() {
            flag("method", Some(&selector.methods.join(",")))?;
        }
        match &selector.keys {
            None => {}
            Some(KeySelector::Prefix(prefix)) => flag("prefix", Some(&escape(prefix, &[])))?,
            Some(KeySelector::Range(start, end)) => {
                let [start, end] = [start, end].map(|key| escape(key, &[':']));
                flag("range", Some(&format!("{start}:{end}")))?;
            }
        }
        let connection = selector.connection.map(|id| id.to_string());
        let texts = [
            ("user", &selector.user),
            ("client", &selector.client),
            ("connection", &connection),
            ("verb", &selector.front.verb),
            ("resource", &selector.front.resource),
            ("namespace", &selector.front.namespace),
            ("name", &selector.front.name),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                flag(name, Some(value))?;
            }
        }
        match self.trigger {
            Trigger::Always => {}
            Trigger::Next(count) => flag("next", Some(&count.to_string()))?,
            Trigger::Every(number) => flag("every", Some(&number.to_string()))?,
            Trigger::Probability { probability, seed } => {
                flag("probability", Some(&probability.to_string()))?;
                flag("seed", Some(&seed.to_string()))?;
            }
            Trigger::Revisions { from, to } => {
                for (name, revision) in [("from-revision", from), ("to-revision", to)] {
                    if let Some(revision) = revision {
                        flag(name, Some(&revision.to_string()))?;
                    }
                }
            }
        }
        let name = &self.action_flag()[2..];
        match &self.action {
            Action::Error(failure) | Action::ErrorAfter(failure) => {
                flag(name, Some(&failure.to_string()))
            }
            Action::Preset(preset) => flag(name, Some(preset.as_str())),
            Action::Delay { time, wall } => {
                flag(name, Some(&format!("{time:?}")))?;
                if *wall { flag("wall", None) } else { Ok(()) }
            }
            Action::Http {
                status,
                retry_after,
            } => {
                flag(name, Some(&status.to_string()))?;
                match retry_after {
                    Some(seconds) => flag("retry-after", Some(&seconds.to_string())),
                    None => Ok(()),
                }
            }
            Action::Stale {
                revision: Some(revision),
            } => {
                flag(name, None)?;
                flag("at-revision", Some(&revision.to_string()))
            }
            _ => flag(name, None),
        }
    }
}
