//! Whether a user may make a request.

use std::sync::Arc;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::{Reason, ResourceName, Status, StatusDetails};

use crate::auth::User;
use crate::auth::rbac::{Decision, Rbac, Rule};
use crate::auth::user::MASTERS;

/// Which requests are allowed (`--authorization-mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// All of them.
    #[default]
    AlwaysAllow,
    /// Those of the group `system:masters`, and those that roles in the store allow, by bindings to the user or to one
    /// of the groups.
    Rbac,
}

/// Decides whether requests are allowed.
#[derive(Clone, Debug)]
pub(crate) struct Authorizer {
    pub(crate) mode: AuthorizationMode,
    pub(crate) rbac: Arc<Rbac>,
}

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
    /// Returns whether a user may make a request.
    pub(crate) fn allows(&self, user: &User, attributes: Attributes<'_>) -> bool {
        self.allows_all(user) || self.rbac.check(user, attributes).is_ok()
    }

    /// Returns whether a user may make a request, and why.
    pub(crate) fn decide(&self, user: &User, attributes: Attributes<'_>) -> Decision {
        if self.allows_all(user) {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        self.rbac.decide(user, attributes)
    }

    /// Returns the rules of a user in a namespace, and the errors of roles that do not exist.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        if self.allows_all(user) {
            return (Rule::everything().into(), Vec::new());
        }
        self.rbac.rules(user, namespace)
    }

    /// Returns whether a user may make all requests.
    fn allows_all(&self, user: &User) -> bool {
        self.mode == AuthorizationMode::AlwaysAllow || user.is_in(MASTERS)
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
        let Err(reason) = self.rbac.check(user, attributes) else {
            return Ok(());
        };
        Err(Self::forbidden(user, attributes, &reason))
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
