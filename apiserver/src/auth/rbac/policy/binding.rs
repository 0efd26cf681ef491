//! A binding: a role, and the subjects who have it.

use std::sync::Arc;

use serde_json::Value;

use crate::auth::User;

/// The role of a binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RoleRef {
    /// Whether it is a `ClusterRole`, and not a `Role` in the namespace of the binding.
    pub(crate) is_cluster: bool,
    pub(crate) name: Arc<str>,
}

impl RoleRef {
    /// Reads the role of a binding.
    pub(crate) fn parse(binding: &Value) -> Self {
        let role = &binding["roleRef"];
        Self {
            is_cluster: role["kind"] == "ClusterRole",
            name: role["name"].as_str().unwrap_or_default().into(),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        if self.is_cluster {
            "ClusterRole"
        } else {
            "Role"
        }
    }

    /// Returns the error of a binding whose role does not exist.
    pub(crate) fn missing(&self) -> String {
        let (kind, name) = (self.kind().to_ascii_lowercase(), &self.name);
        format!("{kind}.rbac.authorization.k8s.io \"{name}\" not found")
    }
}

/// One of those that a binding is about.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) is_group: bool,
    /// The name of the user or group.
    pub(super) name: String,
    /// The subject as in reasons.
    pub(super) description: String,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) role: RoleRef,
    pub(super) subjects: Vec<Subject>,
}

impl Binding {
    /// Reads a binding in a namespace, or in none.
    pub(super) fn parse(namespace: &str, object: &Value) -> Self {
        let subjects = object["subjects"].as_array().into_iter().flatten();
        Self {
            role: RoleRef::parse(object),
            subjects: subjects
                .filter_map(|subject| Subject::parse(namespace, subject))
                .collect(),
        }
    }
}

impl Subject {
    /// Reads a subject. `None` if it can be nobody.
    fn parse(namespace: &str, subject: &Value) -> Option<Self> {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        match kind {
            "User" | "Group" => Some(Self {
                is_group: kind == "Group",
                name: name.to_owned(),
                description: format!("{kind} \"{name}\""),
            }),
            "ServiceAccount" => {
                let namespace = match text("namespace") {
                    "" => namespace,
                    namespace => namespace,
                };
                (!namespace.is_empty()).then(|| Self {
                    is_group: false,
                    name: User::service_account_name(namespace, name),
                    description: format!("{kind} \"{name}/{namespace}\""),
                })
            }
            _ => None,
        }
    }
}
