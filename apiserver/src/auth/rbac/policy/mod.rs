//! The roles and bindings of a cluster, indexed by the users and groups that they are about.

mod binding;
mod grants;
mod rule_index;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::auth::rbac::rule::Rule;
use crate::auth::{Attributes, User};

use binding::{Binding, Subject};
use grants::{Bindings, Grants};

pub(crate) use binding::RoleRef;

/// A kind of objects that a policy consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl PolicyKind {
    pub(crate) const ALL: [Self; 4] = [
        Self::Role,
        Self::ClusterRole,
        Self::RoleBinding,
        Self::ClusterRoleBinding,
    ];

    /// Returns the plural of the resource.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    /// Returns the kind with a plural.
    pub(crate) fn of_plural(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == plural)
    }

    pub(crate) fn is_binding(self) -> bool {
        matches!(self, Self::RoleBinding | Self::ClusterRoleBinding)
    }

    /// Returns whether the objects have no namespace.
    pub(crate) fn is_cluster(self) -> bool {
        matches!(self, Self::ClusterRole | Self::ClusterRoleBinding)
    }

    /// Returns the role of this kind with a name, as bindings refer to it.
    fn role(self, name: &str) -> RoleRef {
        RoleRef {
            is_cluster: self.is_cluster(),
            name: name.into(),
        }
    }
}

/// The rules of the roles.
#[derive(Debug, Default)]
struct Roles {
    /// By namespace, with an empty name for cluster roles, and by name.
    by_namespace: HashMap<String, HashMap<String, Arc<[Rule]>>>,
}

/// The bindings in a namespace, or those without one.
#[derive(Debug, Default)]
struct Scope {
    bindings: HashMap<String, Binding>,
    by_user: HashMap<String, Grants>,
    by_group: HashMap<String, Grants>,
}

/// A user or a group with an index in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Indexed {
    namespace: String,
    is_group: bool,
    name: String,
}

/// The roles and bindings of a cluster. A decision costs a lookup for the user and for each group, and a look at the
/// rules of the roles that one of them has: of all, or, if they are many, of those that may be about the request. A change
/// of a binding costs the same for each of its subjects; one of a role, a change in the index of each subject that has one
/// in the namespace.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    roles: Roles,
    /// By namespace, with an empty name for bindings without one.
    scopes: HashMap<String, Scope>,
    /// Who has an index, to which a change of rules belongs.
    indexed: BTreeSet<Indexed>,
}

/// A role of a user: the bindings that grant it, and the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant<'a> {
    namespace: &'a str,
    role: &'a RoleRef,
    bindings: &'a Bindings,
    /// `None` if the role does not exist.
    pub(crate) rules: Option<&'a Arc<[Rule]>>,
}

impl Policy {
    /// Removes all objects of a kind.
    pub(crate) fn clear(&mut self, kind: PolicyKind) {
        let is_of_kind = |namespace: &str| namespace.is_empty() == kind.is_cluster();
        if kind.is_binding() {
            self.scopes.retain(|namespace, _| !is_of_kind(namespace));
            self.indexed.retain(|it| !is_of_kind(&it.namespace));
            return;
        }
        for (namespace, roles) in &mut self.roles.by_namespace {
            if !is_of_kind(namespace) {
                continue;
            }
            for (name, old) in roles.drain() {
                let (role, change) = (kind.role(&name), Change::removal(&old));
                set_rules(&self.indexed, &mut self.scopes, namespace, &role, change);
            }
        }
        self.roles.by_namespace.retain(|_, roles| !roles.is_empty());
    }

    /// Adds an object, or replaces it.
    pub(crate) fn set(&mut self, kind: PolicyKind, namespace: &str, name: &str, object: &Value) {
        if kind.is_binding() {
            self.remove_binding(namespace, name);
            self.add_binding(namespace, name, Binding::parse(namespace, object));
            return;
        }
        let rules: Arc<[Rule]> = Rule::parse_all(object.get("rules")).into();
        let within = self.roles.by_namespace.entry(namespace.to_owned());
        let old = within.or_default().insert(name.to_owned(), rules.clone());
        let change = Change {
            old: old.as_ref(),
            new: Some(&rules),
        };
        let role = kind.role(name);
        set_rules(&self.indexed, &mut self.scopes, namespace, &role, change);
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, kind: PolicyKind, namespace: &str, name: &str) {
        if kind.is_binding() {
            self.remove_binding(namespace, name);
            return;
        }
        let Some(roles) = self.roles.by_namespace.get_mut(namespace) else {
            return;
        };
        let Some(old) = roles.remove(name) else {
            return;
        };
        if roles.is_empty() {
            self.roles.by_namespace.remove(namespace);
        }
        let (role, change) = (kind.role(name), Change::removal(&old));
        set_rules(&self.indexed, &mut self.scopes, namespace, &role, change);
    }

    fn add_binding(&mut self, namespace: &str, name: &str, binding: Binding) {
        let scope = self.scopes.entry(namespace.to_owned()).or_default();
        for subject in &binding.subjects {
            let grants = scope.of_subjects(subject.is_group);
            let grants = grants.entry(subject.name.clone()).or_default();
            grants.add(&binding.role, name, &subject.description, |role| {
                self.roles.rules(role, namespace)
            });
            if grants.is_indexed() {
                self.indexed.insert(Indexed::new(namespace, subject));
            }
        }
        scope.bindings.insert(name.to_owned(), binding);
    }

    fn remove_binding(&mut self, namespace: &str, name: &str) {
        let Some(scope) = self.scopes.get_mut(namespace) else {
            return;
        };
        let Some(binding) = scope.bindings.remove(name) else {
            return;
        };
        for subject in &binding.subjects {
            let all = scope.of_subjects(subject.is_group);
            // Absent if the binding names a subject twice.
            let Some(grants) = all.get_mut(&subject.name) else {
                continue;
            };
            let was_indexed = grants.is_indexed();
            grants.remove(&binding.role, name, |role| {
                self.roles.rules(role, namespace)
            });
            if was_indexed && !grants.is_indexed() {
                self.indexed.remove(&Indexed::new(namespace, subject));
            }
            if grants.is_empty() {
                all.remove(&subject.name);
            }
        }
        if scope.bindings.is_empty() {
            self.scopes.remove(namespace);
        }
    }

    /// Returns the rules of a role, as a binding in a namespace names it.
    pub(crate) fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[Rule]>> {
        self.roles.rules(role, namespace)
    }

    /// Returns the roles of a user and of each of the groups in a namespace, those without a namespace first; only these
    /// if the namespace is empty. The texts are the namespaces of the bindings.
    fn all_grants<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Grants)> {
        let namespaces = if namespace.is_empty() {
            [Some(""), None]
        } else {
            [Some(""), Some(namespace)]
        };
        let scopes = namespaces
            .into_iter()
            .flatten()
            .filter_map(|namespace| self.scopes.get_key_value(namespace));
        scopes.flat_map(move |(namespace, scope)| {
            let own = scope.by_user.get(&user.name);
            let groups = user.groups.iter().filter_map(|it| scope.by_group.get(it));
            let grants = own.into_iter().chain(groups);
            grants.map(move |grants| (namespace.as_str(), grants))
        })
    }

    /// Returns the roles that a user has in a namespace, those without a namespace first; only these if the namespace is
    /// empty.
    pub(crate) fn grants<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = Grant<'a>> {
        let all = self.all_grants(user, namespace);
        all.flat_map(move |(namespace, grants)| {
            grants.iter().map(move |(role, bindings)| Grant {
                namespace,
                role,
                bindings,
                rules: self.rules(role, namespace),
            })
        })
    }

    /// Returns the first role that allows a request, and if there is none the errors of roles that do not exist.
    pub(crate) fn decide<'a>(
        &'a self,
        user: &'a User,
        attributes: Attributes<'a>,
    ) -> Result<Grant<'a>, Vec<String>> {
        let namespace = match attributes {
            Attributes::Resource { namespace, .. } => namespace,
            Attributes::Path { .. } => "",
        };
        let (mut errors, mut known) = (Vec::new(), HashSet::new());
        for (namespace, grants) in self.all_grants(user, namespace) {
            let rules = |role: &RoleRef| self.rules(role, namespace);
            let missing = |role: &RoleRef| {
                if known.insert(role.clone()) {
                    errors.push(role.missing());
                }
            };
            if let Some((role, bindings)) = grants.first_that_allows(attributes, rules, missing) {
                return Ok(Grant {
                    namespace,
                    role,
                    bindings,
                    rules: rules(role),
                });
            }
        }
        Err(errors)
    }
}

/// A change of the rules of a role. None are those of a role that does not exist.
#[derive(Clone, Copy)]
struct Change<'a> {
    old: Option<&'a Arc<[Rule]>>,
    new: Option<&'a Arc<[Rule]>>,
}

impl<'a> Change<'a> {
    fn removal(old: &'a Arc<[Rule]>) -> Self {
        Self {
            old: Some(old),
            new: None,
        }
    }
}

/// Brings a change of the rules of a role into the indexes of those who may have it: those in its
/// namespace, or, without one, all.
fn set_rules(
    indexed: &BTreeSet<Indexed>,
    scopes: &mut HashMap<String, Scope>,
    namespace: &str,
    role: &RoleRef,
    change: Change<'_>,
) {
    let first = Indexed {
        namespace: namespace.to_owned(),
        is_group: false,
        name: String::new(),
    };
    let concerned = indexed
        .range(first..)
        .take_while(|it| namespace.is_empty() || it.namespace == namespace);
    for subject in concerned {
        let scope = scopes.get_mut(&subject.namespace);
        let grants = scope.and_then(|it| it.of_subjects(subject.is_group).get_mut(&subject.name));
        if let Some(grants) = grants {
            grants.set_rules(role, change);
        }
    }
}

impl Grant<'_> {
    /// Returns why a request is allowed.
    pub(crate) fn reason(&self) -> String {
        let (kind, place) = match self.namespace {
            "" => ("ClusterRoleBinding", String::new()),
            namespace => ("RoleBinding", format!("/{namespace}")),
        };
        let first = self.bindings.iter().next();
        let (binding, subject) = first.map_or(("", ""), |(name, subject)| (name, subject));
        let (role_kind, role) = (self.role.kind(), &self.role.name);
        format!(
            "RBAC: allowed by {kind} \"{binding}{place}\" of {role_kind} \"{role}\" to {subject}"
        )
    }

    /// Returns the error if the role does not exist.
    pub(crate) fn error(&self) -> Option<String> {
        self.rules.is_none().then(|| self.role.missing())
    }
}

impl Roles {
    /// Returns the rules of a role, as a binding in a namespace names it.
    fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[Rule]>> {
        let namespace = if role.is_cluster { "" } else { namespace };
        self.by_namespace.get(namespace)?.get(&*role.name)
    }
}

impl Scope {
    /// Returns the roles of the users, or those of the groups.
    fn of_subjects(&mut self, is_group: bool) -> &mut HashMap<String, Grants> {
        if is_group {
            &mut self.by_group
        } else {
            &mut self.by_user
        }
    }
}

impl Indexed {
    fn new(namespace: &str, subject: &Subject) -> Self {
        Self {
            namespace: namespace.to_owned(),
            is_group: subject.is_group,
            name: subject.name.clone(),
        }
    }
}
