//! Requests in the name of another user. Corresponds to `WithConstrainedImpersonation`.
//!
//! A user may do this in one of several modes. In the constrained ones it needs two rights: to be that user
//! (`impersonate:MODE`), and to do what the request does in its name (`impersonate-on:MODE:VERB`). The oldest mode, with the
//! verb `impersonate` alone, comes last.

use std::fmt::Write as _;

use http::HeaderMap;
use revstore_watch_cache::RequestError;
use revstore_watch_cache::names::{dns_label_error, subdomain_error};
use revstore_watch_cache::status::{Status, StatusCause};

use crate::auth::user::{MASTERS, NODES, UNAUTHENTICATED};
use crate::auth::{Attributes, Authorizer, User};
use crate::builtin::domain_prefixed_path_errors;

/// The header that names the user in whose name a request is made, and the beginning of the headers with
/// further attributes of that user.
const IMPERSONATE_USER: &str = "impersonate-user";
const IMPERSONATE_GROUP: &str = "impersonate-group";
const IMPERSONATE_UID: &str = "impersonate-uid";
const IMPERSONATE_EXTRA: &str = "impersonate-extra-";

/// The group of the resources that stand for users and their attributes; in the oldest mode only for uids and further
/// attributes.
const GROUP: &str = "authentication.k8s.io";
/// The beginning of the names of nodes as users.
const NODE: &str = "system:node:";
/// From how many groups or attributes on the right to all of them is asked for first.
const MANY: usize = 4;

/// How a user may be impersonated, in the order in which it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The node on which the pod of a service account runs.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// A user that is neither, with all attributes.
    UserInfo,
    /// Any user, for all that it may do.
    Legacy,
}

impl Mode {
    const ALL: [Self; 5] = [
        Self::AssociatedNode,
        Self::ArbitraryNode,
        Self::ServiceAccount,
        Self::UserInfo,
        Self::Legacy,
    ];

    /// Returns the verb for the right to be the user.
    const fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
            Self::Legacy => "impersonate",
        }
    }

    /// Returns the beginning of the verb for the right to make a request in the name of the user; in the oldest mode
    /// there is none.
    const fn verb_on(self) -> Option<&'static str> {
        Some(match self {
            Self::AssociatedNode => "impersonate-on:associated-node:",
            Self::ArbitraryNode => "impersonate-on:arbitrary-node:",
            Self::ServiceAccount => "impersonate-on:serviceaccount:",
            Self::UserInfo => "impersonate-on:user-info:",
            Self::Legacy => return None,
        })
    }

    /// Returns the group of users and groups as resources.
    const fn group(self) -> &'static str {
        match self {
            Self::Legacy => "",
            _ => GROUP,
        }
    }
}

/// The user in whose name a request is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Impersonation {
    /// The user as the headers name it.
    user: User,
}

impl Impersonation {
    /// Returns the user in whose name a request is made, if its headers name one.
    ///
    /// # Errors
    /// The message of a bad request if there are attributes of a user but no name.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Result<Option<Self>, String> {
        let values = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect()
        };
        let text = |name: &str| values(name).into_iter().next().unwrap_or_default();
        let mut extra: Vec<(String, Vec<String>)> = Vec::new();
        for name in headers.keys() {
            if let Some(key) = name.as_str().strip_prefix(IMPERSONATE_EXTRA) {
                let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy();
                extra.push((key.into_owned(), values(name.as_str())));
            }
        }
        let user = User {
            uid: text(IMPERSONATE_UID),
            extra,
            ..User::new(text(IMPERSONATE_USER), values(IMPERSONATE_GROUP))
        };
        if !user.name.is_empty() {
            return Ok(Some(Self { user }));
        }
        if user == User::default() {
            Ok(None)
        } else {
            let asked = go_syntax(&user);
            Err(format!(
                "requested {asked} without impersonating a user name"
            ))
        }
    }

    /// Returns the user as whom a request is executed, with the groups that follow from its name.
    ///
    /// # Errors
    /// 403 of the first mode that applies, if `requester` may not make the request in the name of this user.
    pub(crate) fn check(
        &self,
        authorizer: &Authorizer,
        requester: &User,
        request: Attributes<'_>,
    ) -> Result<User, RequestError> {
        let mut first = None;
        for mode in Mode::ALL {
            if !self.applies(mode, requester) {
                continue;
            }
            let asked = Asked {
                authorizer,
                requester,
                mode,
            };
            match asked
                .request(request)
                .and_then(|()| asked.attributes(&self.user))
            {
                Ok(()) => return Ok(self.known_as(mode)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Status::unauthorized().into()))
    }

    /// Returns whether a mode is for this user.
    fn applies(&self, mode: Mode, requester: &User) -> bool {
        let User {
            name,
            uid,
            groups,
            extra,
        } = &self.user;
        let has_only_a_name = uid.is_empty() && groups.is_empty() && extra.is_empty();
        match mode {
            Mode::AssociatedNode => {
                let node = requester.node_of_pod();
                has_only_a_name
                    && service_account(&requester.name).is_some()
                    && node_name(name).is_some_and(|name| node == Some(name))
            }
            Mode::ArbitraryNode => has_only_a_name && node_name(name).is_some(),
            Mode::ServiceAccount => has_only_a_name && service_account(name).is_some(),
            Mode::UserInfo => node_name(name).is_none() && service_account(name).is_none(),
            Mode::Legacy => true,
        }
    }

    /// Returns the user with the groups that follow from the name in a mode.
    fn known_as(&self, mode: Mode) -> User {
        let mut user = self.user.clone();
        if matches!(mode, Mode::AssociatedNode | Mode::ArbitraryNode) {
            user.groups = vec![NODES.to_owned()];
        }
        if user.groups.is_empty()
            && let Some((namespace, name)) = service_account(&user.name)
        {
            user.groups = User::service_account(namespace, name).groups;
        }
        if user.name == User::anonymous().name {
            if !user.is_in(UNAUTHENTICATED) {
                user.groups.push(UNAUTHENTICATED.to_owned());
            }
            user
        } else if user.is_in(UNAUTHENTICATED) {
            user
        } else {
            user.authenticated()
        }
    }
}

/// What a user must be allowed to do to impersonate another one in a mode.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    authorizer: &'a Authorizer,
    requester: &'a User,
    mode: Mode,
}

impl Asked<'_> {
    /// Checks the right to make a request in the name of another user.
    fn request(&self, request: Attributes<'_>) -> Result<(), RequestError> {
        let Some(prefix) = self.mode.verb_on() else {
            return Ok(());
        };
        let verb = format!("{prefix}{}", request.verb());
        self.authorizer
            .check(self.requester, request.with_verb(&verb))
    }

    /// Checks the right to be a user: its name, its uid, each of its groups and each of its further attributes.
    fn attributes(&self, user: &User) -> Result<(), RequestError> {
        let own = self.mode.group();
        self.name(&user.name)?;
        if !user.uid.is_empty() {
            self.right(GROUP, "", "uids", "", &user.uid)?;
        }
        if self.mode != Mode::Legacy {
            let refusal = |name: &str, reason: &str| {
                let asked = self.asked(own, "", "groups", "", name);
                Authorizer::forbidden(self.requester, asked, reason)
            };
            if user.is_in("") {
                let reason = "impersonating the empty string group is not allowed";
                return Err(refusal("", reason));
            }
            if user.is_in(MASTERS) {
                let reason = "impersonating the system:masters group is not allowed";
                return Err(refusal(MASTERS, reason));
            }
        }
        if !(self.mode != Mode::Legacy
            && user.groups.len() >= MANY
            && self.right(own, "", "groups", "", "*").is_ok())
        {
            for group in &user.groups {
                self.right(own, "", "groups", "", group)?;
            }
        }
        self.extra(&user.extra)
    }

    fn name(&self, name: &str) -> Result<(), RequestError> {
        let group = self.mode.group();
        if let Some((namespace, name)) = service_account(name) {
            return self.right(group, namespace, "serviceaccounts", "", name);
        }
        match (self.mode, node_name(name)) {
            // The right must be one to be the node of every pod of the service account.
            (Mode::AssociatedNode, _) => self.right(group, "", "nodes", "", "*"),
            (Mode::ArbitraryNode, Some(node)) => self.right(group, "", "nodes", "", node),
            _ => self.right(group, "", "users", "", name),
        }
    }

    fn extra(&self, extra: &[(String, Vec<String>)]) -> Result<(), RequestError> {
        if self.mode != Mode::Legacy && !extra.is_empty() {
            if let Some(reason) = extra.iter().find_map(extra_error) {
                let asked = self.asked(GROUP, "", "userextras", "", "");
                return Err(Authorizer::forbidden(self.requester, asked, &reason));
            }
            let values: usize = extra.iter().map(|(_, values)| values.len()).sum();
            let is_many = extra.len() >= MANY || values >= MANY;
            if is_many && self.right(GROUP, "", "userextras", "*", "*").is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.right(GROUP, "", "userextras", key, value)?;
            }
        }
        Ok(())
    }

    fn right(
        &self,
        group: &str,
        namespace: &str,
        resource: &str,
        subresource: &str,
        name: &str,
    ) -> Result<(), RequestError> {
        let asked = self.asked(group, namespace, resource, subresource, name);
        self.authorizer.check(self.requester, asked)
    }

    fn asked<'a>(
        &self,
        group: &'a str,
        namespace: &'a str,
        resource: &'a str,
        subresource: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        Attributes::Resource {
            verb: self.mode.verb(),
            group,
            namespace,
            resource,
            subresource,
            name,
        }
    }
}

/// Returns the namespace and the name of the service account that a user is.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = User::split_service_account(user)?;
    let is_valid = dns_label_error(namespace).is_none() && subdomain_error(name).is_none();
    is_valid.then_some((namespace, name))
}

/// Returns the name of the node that a user is.
fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix(NODE)?;
    subdomain_error(name).is_none().then_some(name)
}

/// Returns why an attribute cannot be impersonated in a constrained mode.
fn extra_error((key, values): &(String, Vec<String>)) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let errors: Vec<_> = domain_prefixed_path_errors(key)
        .into_iter()
        .map(|(value, detail)| StatusCause::invalid("extra.key", value, &detail).to_string())
        .collect();
    if !errors.is_empty() {
        let errors = match errors.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Some(format!(
            "impersonating an invalid key in extra is not allowed: {errors}"
        ));
    }
    if key.to_lowercase() != *key {
        return Some(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key:?}"
        ));
    }
    if values.is_empty() {
        return Some("impersonating empty values in extra is not allowed".to_owned());
    }
    let has_empty = values.iter().any(String::is_empty);
    has_empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

/// Returns a user as Go prints it with `%#v`, which kube-apiserver does in an error.
fn go_syntax(user: &User) -> String {
    let list = |values: &[String]| -> String {
        let values: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("[]string{{{}}}", values.join(", "))
    };
    let groups = match user.groups.as_slice() {
        [] => "[]string(nil)".to_owned(),
        groups => list(groups),
    };
    let mut extra = "map[string][]string".to_owned();
    if user.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        // In the order of their keys, as Go prints maps.
        let mut sorted: Vec<_> = user.extra.iter().collect();
        sorted.sort();
        extra.push('{');
        for (index, (key, values)) in sorted.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let _ = write!(extra, "{separator}{key:?}:{}", list(values));
        }
        extra.push('}');
    }
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}",
        user.name, user.uid
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::user::NODE_NAME;

    fn impersonation(list: &[(&'static str, &str)]) -> Result<Option<Impersonation>, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        Impersonation::of_headers(&headers)
    }

    fn named(list: &[(&'static str, &str)]) -> Impersonation {
        impersonation(list).unwrap().unwrap()
    }

    fn modes(list: &[(&'static str, &str)], requester: &User) -> Vec<Mode> {
        let other = named(list);
        let mut modes = Mode::ALL.to_vec();
        modes.retain(|mode| other.applies(*mode, requester));
        modes
    }

    #[test]
    fn headers_name_a_user_with_its_attributes() {
        let user = named(&[
            ("impersonate-user", "ann"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-scopes%2fx", "view"),
        ])
        .user;
        let extra = vec![("scopes/x".to_owned(), vec!["view".to_owned()])];
        let expected = User {
            uid: "7".to_owned(),
            extra,
            ..User::new("ann", ["a", "b"])
        };
        assert_eq!(user, expected);
        assert_eq!(impersonation(&[]), Ok(None));
        let lists = [("impersonate-group", "a"), ("impersonate-extra-k", "v")];
        let message = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"a\"}, Extra:map[string][]string{\"k\":[]string{\"v\"}}} without impersonating a user name";
        assert_eq!(impersonation(&lists), Err(message.to_owned()));
        let message = "requested &user.DefaultInfo{Name:\"\", UID:\"7\", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name";
        let uid = impersonation(&[("impersonate-uid", "7")]);
        assert_eq!(uid, Err(message.to_owned()));
    }

    #[test]
    fn the_modes_depend_on_the_name_and_on_what_else_is_asked_for() {
        let agent = User {
            extra: vec![(NODE_NAME.to_owned(), vec!["n1".to_owned()])],
            ..User::new("system:serviceaccount:n:agent", [""; 0])
        };
        let n1 = ("impersonate-user", "system:node:n1");
        let n2 = ("impersonate-user", "system:node:n2");
        let account = ("impersonate-user", "system:serviceaccount:n:a");
        let group = ("impersonate-group", "g");
        let (node, any) = (Mode::AssociatedNode, Mode::ArbitraryNode);
        assert_eq!(modes(&[n1], &agent), [node, any, Mode::Legacy]);
        assert_eq!(modes(&[n2], &agent), [any, Mode::Legacy]);
        // The attribute counts only for service accounts.
        let other = User {
            name: "ann".to_owned(),
            ..agent.clone()
        };
        assert_eq!(modes(&[n1], &other), [any, Mode::Legacy]);
        assert_eq!(modes(&[n1, group], &agent), [Mode::Legacy]);
        let expected = [Mode::ServiceAccount, Mode::Legacy];
        assert_eq!(modes(&[account], &agent), expected);
        assert_eq!(modes(&[account, group], &agent), [Mode::Legacy]);
        for name in [
            "bob",
            "system:node:",
            "system:node:A",
            "system:serviceaccount:a:b:c",
        ] {
            let user = ("impersonate-user", name);
            let expected = [Mode::UserInfo, Mode::Legacy];
            assert_eq!(modes(&[user, group], &agent), expected, "{name}");
        }
    }

    #[test]
    fn groups_follow_from_the_name() {
        let check = |name: &str, groups: &[&str], mode: Mode, expected: &[&str]| {
            let mut list = vec![("impersonate-user", name)];
            list.extend(groups.iter().map(|group| ("impersonate-group", *group)));
            assert_eq!(
                named(&list).known_as(mode).groups,
                expected,
                "{name} {mode:?}"
            );
        };
        let info = Mode::UserInfo;
        check("ann", &["a"], info, &["a", "system:authenticated"]);
        let both = ["system:authenticated"];
        check("ann", &both, info, &both);
        // Whoever asks for this group has no credentials.
        let none = ["system:unauthenticated"];
        check("ann", &none, info, &none);
        check("system:anonymous", &[], info, &none);
        let expected = ["a", "system:unauthenticated"];
        check("system:anonymous", &["a"], info, &expected);
        let of_nodes = ["system:nodes", "system:authenticated"];
        check("system:node:n", &[], Mode::ArbitraryNode, &of_nodes);
        check("system:node:n", &[], Mode::Legacy, &both);
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:n",
            "system:authenticated",
        ];
        for mode in [Mode::ServiceAccount, Mode::Legacy] {
            check("system:serviceaccount:n:a", &[], mode, &groups);
        }
        let expected = ["a", "system:authenticated"];
        check("system:serviceaccount:n:a", &["a"], Mode::Legacy, &expected);
    }

    #[test]
    fn attributes_that_no_constrained_mode_takes() {
        let error = |key: &str, values: &[&str]| {
            let values = values.iter().map(|&value| value.to_owned()).collect();
            extra_error(&(key.to_owned(), values)).unwrap_or_default()
        };
        assert_eq!(error("acme.io/scopes", &["a"]), "");
        for (key, values, expected) in [
            ("", ["a"].as_slice(), "the empty string key"),
            ("scopes", &["a"], "must be a domain-prefixed path"),
            ("Acme.io/x", &["a"], "an invalid key"),
            ("acme.io/ä", &["a"], "regex used for validation"),
            (
                "acme.io/X",
                &["a"],
                "a non-lowercase key in extra is not allowed: \"acme.io/X\"",
            ),
            ("acme.io/x", &[], "empty values"),
            ("acme.io/x", &["a", ""], "the empty string value"),
        ] {
            let found = error(key, values);
            assert!(found.contains(expected), "{key}: {found}");
        }
    }
}
