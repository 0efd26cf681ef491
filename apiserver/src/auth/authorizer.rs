//! Whether a user may make a request.

use std::str::FromStr;
use std::sync::Arc;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::{Reason, ResourceName, Status, StatusDetails};

use crate::auth::User;
use crate::auth::rbac::{Decision, Rbac, Rule};
use crate::auth::user::MASTERS;

/// One of the authorizers that are asked in turn whether a request is allowed (`--authorization-mode`). The first that
/// allows it decides; a request that none allows is refused. All requests of the group `system:masters` are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Allows all requests.
    #[default]
    AlwaysAllow,
    /// Allows none.
    AlwaysDeny,
    /// Allows those that roles in the store allow, by bindings to the user or to one of the groups.
    Rbac,
    /// Has no opinion here: there is no graph of the pods of nodes, which the authorizer of kube-apiserver has.
    Node,
}

impl AuthorizationMode {
    /// The modes with their names.
    const NAMES: [(&str, Self); 4] = [
        ("AlwaysAllow", Self::AlwaysAllow),
        ("AlwaysDeny", Self::AlwaysDeny),
        ("RBAC", Self::Rbac),
        ("Node", Self::Node),
    ];
}

impl FromStr for AuthorizationMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut names = Self::NAMES.iter();
        match (names.find(|(name, _)| *name == text), text) {
            (Some((_, mode)), _) => Ok(*mode),
            (None, "ABAC" | "Webhook") => Err(format!("the mode {text} is not supported")),
            (None, _) => Err(format!("authorization-mode {text:?} is not a valid mode")),
        }
    }
}

/// Decides whether requests are allowed.
#[derive(Clone, Debug)]
pub(crate) struct Authorizer {
    modes: Vec<AuthorizationMode>,
    pub(crate) rbac: Arc<Rbac>,
}

/// The reason of the mode `AlwaysDeny`.
const DENIED: &str = "Everything is forbidden.";

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attributes<'a> {
    /// A verb on a resource.
    Resource {
        verb: &'a str,
        group: &'a str,
        /// Empty for all namespaces, and for resources without namespaces.
        namespace: &'a str,
        resource: &'a str,
        subresource: &'a str,
        /// Empty for all names.
        name: &'a str,
    },
    /// A verb on a path that is not a resource.
    Path { verb: &'a str, path: &'a str },
}

impl<'a> Attributes<'a> {
    /// Returns the same with another verb.
    pub(crate) fn with_verb(mut self, other: &'a str) -> Self {
        let (Self::Resource { verb, .. } | Self::Path { verb, .. }) = &mut self;
        *verb = other;
        self
    }

    /// Returns the verb.
    pub(crate) fn verb(&self) -> &'a str {
        let (Self::Resource { verb, .. } | Self::Path { verb, .. }) = self;
        verb
    }
}

impl Authorizer {
    /// Returns an authorizer without roles.
    pub(crate) fn new(modes: Vec<AuthorizationMode>) -> Self {
        Self {
            modes,
            rbac: Arc::default(),
        }
    }

    /// Returns whether roles and bindings count.
    pub(crate) fn has_roles(&self) -> bool {
        self.has(AuthorizationMode::Rbac) && !self.has(AuthorizationMode::AlwaysAllow)
    }

    /// Returns whether a user may make a request.
    pub(crate) fn allows(&self, user: &User, attributes: Attributes<'_>) -> bool {
        self.allows_all(user) || self.by_roles(user, attributes).is_ok()
    }

    /// Returns whether a user may make a request, and why.
    pub(crate) fn decide(&self, user: &User, attributes: Attributes<'_>) -> Decision {
        if self.allows_all(user) {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        if !self.has_roles() {
            return Decision {
                allowed: false,
                reason: self.refusal(""),
            };
        }
        let decision = self.rbac.decide(user, attributes);
        if decision.allowed {
            return decision;
        }
        Decision {
            reason: self.refusal(&decision.reason),
            ..decision
        }
    }

    /// Returns the rules of a user in a namespace, and the errors of roles that do not exist.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        if self.allows_all(user) {
            return (Rule::everything().into(), Vec::new());
        }
        if !self.has_roles() {
            return (Vec::new(), Vec::new());
        }
        self.rbac.rules(user, namespace)
    }

    fn has(&self, mode: AuthorizationMode) -> bool {
        self.modes.contains(&mode)
    }

    /// Returns whether a user may make all requests.
    fn allows_all(&self, user: &User) -> bool {
        self.has(AuthorizationMode::AlwaysAllow) || user.is_in(MASTERS)
    }

    /// Returns whether the roles of a user allow a request.
    ///
    /// # Errors
    /// Why they do not.
    fn by_roles(&self, user: &User, attributes: Attributes<'_>) -> Result<(), String> {
        if !self.has_roles() {
            return Err(String::new());
        }
        self.rbac.check(user, attributes)
    }

    /// Returns the reasons of all modes that do not allow a request, in their order.
    fn refusal(&self, by_roles: &str) -> String {
        let reasons = self.modes.iter().filter_map(|mode| match mode {
            AuthorizationMode::AlwaysDeny => Some(DENIED),
            AuthorizationMode::Rbac => Some(by_roles).filter(|reason| !reason.is_empty()),
            AuthorizationMode::AlwaysAllow | AuthorizationMode::Node => None,
        });
        reasons.collect::<Vec<_>>().join("\n")
    }

    /// Checks that a user may make a request.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check(
        &self,
        user: &User,
        attributes: Attributes<'_>,
    ) -> Result<(), RequestError> {
        if self.allows_all(user) {
            return Ok(());
        }
        // Once: a role that changes meanwhile must not give an error with the reason of an answer that allows.
        let Err(reason) = self.by_roles(user, attributes) else {
            return Ok(());
        };
        Err(Self::forbidden(user, attributes, &self.refusal(&reason)))
    }

    /// Returns the error of a request that a user may not make, with a reason if it is not empty.
    pub(crate) fn forbidden(user: &User, attributes: Attributes<'_>, reason: &str) -> RequestError {
        let reason = match reason {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let who = &user.name;
        match attributes {
            Attributes::Path { verb, path } => {
                let message =
                    format!("forbidden: User \"{who}\" cannot {verb} path \"{path}\"{reason}");
                let status = Status::failure(Reason::Forbidden, message);
                status.with_details(StatusDetails::default()).into()
            }
            Attributes::Resource {
                verb,
                group,
                namespace,
                resource,
                subresource,
                name,
            } => {
                let asked = if subresource.is_empty() {
                    resource.to_owned()
                } else {
                    format!("{resource}/{subresource}")
                };
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace \"{namespace}\"")
                };
                let detail = format!(
                    "User \"{who}\" cannot {verb} resource \"{asked}\" in API group \"{group}\" {place}{reason}"
                );
                Status::forbidden(&ResourceName::new(group, resource), name, &detail).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mode_that_allows_decides() {
        use AuthorizationMode::{AlwaysAllow, AlwaysDeny, Node, Rbac};
        let attributes = Attributes::Path {
            verb: "get",
            path: "/nothing",
        };
        let (user, master) = (User::new("ann", ["devs"]), User::new("root", [MASTERS]));
        for (modes, allowed, reason) in [
            (vec![AlwaysAllow], true, ""),
            (vec![AlwaysDeny], false, DENIED),
            (vec![Rbac], false, ""),
            (vec![Node], false, ""),
            (vec![Node, Rbac], false, ""),
            (vec![AlwaysDeny, AlwaysAllow], true, ""),
            (vec![AlwaysAllow, Rbac], true, ""),
            (vec![Rbac, AlwaysDeny], false, DENIED),
        ] {
            let authorizer = Authorizer::new(modes.clone());
            let decision = authorizer.decide(&user, attributes);
            assert_eq!(
                (decision.allowed, decision.reason.as_str()),
                (allowed, reason),
                "{modes:?}"
            );
            let checked = authorizer.check(&user, attributes);
            assert_eq!(checked.is_ok(), allowed, "{modes:?}");
            assert_eq!(authorizer.allows(&user, attributes), allowed, "{modes:?}");
            if let Err(error) = checked {
                assert!(error.status().message.ends_with(reason), "{modes:?}");
            }
            assert!(authorizer.allows(&master, attributes), "{modes:?}");
        }
    }
}
