//! Whether a user may make a request.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::status::{Reason, ResourceName, Status, StatusDetails};

use crate::auth::User;
use crate::auth::user::{AUTHENTICATED, MASTERS};

/// Which requests are allowed (`--authorization-mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// All of them.
    #[default]
    AlwaysAllow,
    /// Those of the group `system:masters`, discovery for all users with credentials, and health checks and
    /// the version for everybody. Roles and their bindings have no effect yet.
    Rbac,
}

/// Decides whether requests are allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authorizer {
    pub(crate) mode: AuthorizationMode,
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

/// The paths that everybody may read.
const PUBLIC_PATHS: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
/// The paths that all users with credentials may read; a `*` at the end stands for any text.
const DISCOVERY_PATHS: [&str; 13] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
];
/// The reviews that all users with credentials may create about themselves.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

impl Authorizer {
    /// Returns whether a user may make a request.
    pub(crate) fn allows(self, user: &User, attributes: Attributes<'_>) -> bool {
        if self.mode == AuthorizationMode::AlwaysAllow || user.is_in(MASTERS) {
            return true;
        }
        match attributes {
            Attributes::Path { verb, path } => {
                let matches = |pattern: &&str| match pattern.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => path == *pattern,
                };
                let is_read = ["get", "head"].contains(&verb);
                is_read
                    && (PUBLIC_PATHS.iter().any(&matches)
                        || user.is_in(AUTHENTICATED) && DISCOVERY_PATHS.iter().any(matches))
            }
            Attributes::Resource {
                verb,
                group,
                resource,
                ..
            } => {
                verb == "create"
                    && user.is_in(AUTHENTICATED)
                    && SELF_REVIEWS.contains(&(group, resource))
            }
        }
    }

    /// Checks that a user may make a request.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check(self, user: &User, attributes: Attributes<'_>) -> Result<(), RequestError> {
        if self.allows(user, attributes) {
            return Ok(());
        }
        let who = &user.name;
        Err(match attributes {
            Attributes::Path { verb, path } => {
                let message = format!("forbidden: User \"{who}\" cannot {verb} path \"{path}\"");
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
                    "User \"{who}\" cannot {verb} resource \"{asked}\" in API group \"{group}\" {place}"
                );
                Status::forbidden(&ResourceName::new(group, resource), name, &detail).into()
            }
        })
    }
}
