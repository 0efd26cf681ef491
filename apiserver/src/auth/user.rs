//! The identity of a client.

/// The group of users who may do everything.
pub(crate) const MASTERS: &str = "system:masters";
/// The group of all users that are not anonymous.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The name of the user of requests without credentials.
const ANONYMOUS: &str = "system:anonymous";
/// The group of that user.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of the users that nodes are.
pub(crate) const NODES: &str = "system:nodes";

/// The beginning of the names of service accounts as users.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The group of all service accounts.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The attribute that names the node of the pod for which the token of a service account was issued.
pub(crate) const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The identity of a client. Corresponds to `user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The name.
    pub name: String,
    /// The uid; empty if there is none.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes, each with its values.
    pub extra: Vec<(String, Vec<String>)>,
}

impl User {
    /// Returns a user with a name and groups.
    pub fn new(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Returns the user that a service account is, with its groups.
    pub(crate) fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [
            SERVICE_ACCOUNTS.to_owned(),
            format!("{SERVICE_ACCOUNTS}:{namespace}"),
        ];
        Self::new(Self::service_account_name(namespace, name), groups)
    }

    /// Returns the name of the user that a service account is.
    pub(crate) fn service_account_name(namespace: &str, name: &str) -> String {
        format!("{SERVICE_ACCOUNT}{namespace}:{name}")
    }

    /// Returns the namespace and the name of the service account whose user has a name. They are not checked.
    pub(crate) fn split_service_account(user: &str) -> Option<(&str, &str)> {
        user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
    }

    /// Returns the node of the pod for which the token of a service account was issued, if an attribute names just one.
    pub(crate) fn node_of_pod(&self) -> Option<&str> {
        let (_, nodes) = self.extra.iter().find(|(key, _)| key == NODE_NAME)?;
        match nodes.as_slice() {
            [node] => Some(node),
            _ => None,
        }
    }

    /// Returns the user of requests without credentials.
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// Returns the user of requests without credentials on a listener that trusts all its clients.
    pub(crate) fn administrator() -> Self {
        Self::new("admin", [MASTERS, AUTHENTICATED])
    }

    /// Returns whether the user is a member of a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Adds the group that all users with credentials have.
    #[must_use]
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.is_in(AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}
