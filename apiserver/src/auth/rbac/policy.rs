//! The roles and bindings of a cluster, indexed by the users and groups that they are about.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::auth::rbac::rule::Rule;
use crate::auth::{Attributes, User};

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
}

/// The role of a binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RoleRef {
    /// Whether it is a `ClusterRole`, and not a `Role` in the namespace of the binding.
    pub(crate) is_cluster: bool,
    pub(crate) name: String,
}

impl RoleRef {
    /// Reads the role of a binding.
    pub(crate) fn parse(binding: &Value) -> Self {
        let role = &binding["roleRef"];
        Self {
            is_cluster: role["kind"] == "ClusterRole",
            name: role["name"].as_str().unwrap_or_default().to_owned(),
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
struct Subject {
    is_group: bool,
    /// The name of the user or group.
    name: String,
    /// The subject as in reasons.
    description: String,
}

#[derive(Debug)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The roles of a user or group, each with the bindings that grant it, and the subject in them as in reasons.
type Grants = BTreeMap<RoleRef, BTreeMap<String, String>>;

/// The objects in a namespace, or those without one.
#[derive(Debug, Default)]
struct Scope {
    roles: HashMap<String, Arc<[Rule]>>,
    bindings: HashMap<String, Binding>,
    by_user: HashMap<String, Grants>,
    by_group: HashMap<String, Grants>,
}

/// The roles and bindings of a cluster. A decision costs a lookup for the user and for each group, and a look at the
/// rules of each role that one of them has.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// By namespace, with an empty name for objects without one.
    scopes: HashMap<String, Scope>,
}

/// A role of a user: one binding that grants it, and the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant<'a> {
    namespace: &'a str,
    role: &'a RoleRef,
    bindings: &'a BTreeMap<String, String>,
    /// `None` if the role does not exist.
    pub(crate) rules: Option<&'a Arc<[Rule]>>,
}

impl Policy {
    /// Removes all objects of a kind.
    pub(crate) fn clear(&mut self, kind: PolicyKind) {
        for (namespace, scope) in &mut self.scopes {
            if namespace.is_empty() != kind.is_cluster() {
                continue;
            }
            if kind.is_binding() {
                scope.bindings.clear();
                scope.by_user.clear();
                scope.by_group.clear();
            } else {
                scope.roles.clear();
            }
        }
        self.scopes.retain(|_, scope| !scope.is_empty());
    }

    /// Adds an object, or replaces it.
    pub(crate) fn set(&mut self, kind: PolicyKind, namespace: &str, name: &str, object: &Value) {
        let scope = self.scopes.entry(namespace.to_owned()).or_default();
        if kind.is_binding() {
            scope.remove_binding(name);
            scope.add_binding(name, Binding::parse(namespace, object));
        } else {
            let rules = Rule::parse_all(object.get("rules"));
            scope.roles.insert(name.to_owned(), rules.into());
        }
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, kind: PolicyKind, namespace: &str, name: &str) {
        let Some(scope) = self.scopes.get_mut(namespace) else {
            return;
        };
        if kind.is_binding() {
            scope.remove_binding(name);
        } else {
            scope.roles.remove(name);
        }
        if scope.is_empty() {
            self.scopes.remove(namespace);
        }
    }

    /// Returns the rules of a role, as a binding in a namespace names it.
    pub(crate) fn rules(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[Rule]>> {
        let namespace = if role.is_cluster { "" } else { namespace };
        self.scopes.get(namespace)?.roles.get(&role.name)
    }

    /// Returns the roles that a user has in a namespace, those without a namespace first; only these if the namespace is
    /// empty.
    pub(crate) fn grants<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = Grant<'a>> {
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
            let grants = own.into_iter().chain(groups).flatten();
            grants.map(move |(role, bindings)| Grant {
                namespace,
                role,
                bindings,
                rules: self.rules(role, namespace),
            })
        })
    }

    /// Returns the role that allows a request, and if there is none the errors of roles that do not exist.
    pub(crate) fn decide<'a>(
        &'a self,
        user: &'a User,
        attributes: Attributes<'a>,
    ) -> Result<Grant<'a>, Vec<String>> {
        let namespace = match attributes {
            Attributes::Resource { namespace, .. } => namespace,
            Attributes::Path { .. } => "",
        };
        let mut errors = Vec::new();
        for grant in self.grants(user, namespace) {
            match grant.rules {
                Some(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Ok(grant);
                }
                Some(_) => {}
                None => {
                    let error = grant.role.missing();
                    if !errors.contains(&error) {
                        errors.push(error);
                    }
                }
            }
        }
        Err(errors)
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

impl Scope {
    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.bindings.is_empty()
    }

    fn add_binding(&mut self, name: &str, binding: Binding) {
        for subject in &binding.subjects {
            let by = if subject.is_group {
                &mut self.by_group
            } else {
                &mut self.by_user
            };
            let grants = by.entry(subject.name.clone()).or_default();
            let bindings = grants.entry(binding.role.clone()).or_default();
            bindings.insert(name.to_owned(), subject.description.clone());
        }
        self.bindings.insert(name.to_owned(), binding);
    }

    fn remove_binding(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else {
            return;
        };
        for subject in &binding.subjects {
            let by = if subject.is_group {
                &mut self.by_group
            } else {
                &mut self.by_user
            };
            let Some(grants) = by.get_mut(&subject.name) else {
                continue;
            };
            if let Some(bindings) = grants.get_mut(&binding.role) {
                bindings.remove(name);
                if bindings.is_empty() {
                    grants.remove(&binding.role);
                }
            }
            if grants.is_empty() {
                by.remove(&subject.name);
            }
        }
    }
}

impl Binding {
    /// Reads a binding in a namespace, or in none.
    fn parse(namespace: &str, object: &Value) -> Self {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The objects of a policy without an index.
    type Objects = BTreeMap<(String, String, String), Value>;

    const NAMES: [&str; 3] = ["a", "b", "c"];
    const NAMESPACES: [&str; 2] = ["n", "m"];

    fn one_of<'a>(random: &mut fastrand::Rng, texts: &[&'a str]) -> &'a str {
        texts[random.usize(..texts.len())]
    }

    fn random_object(random: &mut fastrand::Rng, kind: PolicyKind) -> Value {
        if !kind.is_binding() {
            return json!({"rules": [{
                "verbs": [one_of(random, &["get", "list", "*"])],
                "apiGroups": [""],
                "resources": [one_of(random, &["pods", "*"])],
            }]});
        }
        let subjects: Vec<Value> = (0..random.usize(..3))
            .map(|_| match random.u8(..3) {
                0 => json!({"kind": "User", "name": one_of(random, &NAMES)}),
                1 => json!({"kind": "Group", "name": one_of(random, &NAMES)}),
                _ => json!({"kind": "ServiceAccount", "name": "s", "namespace": one_of(random, &NAMESPACES)}),
            })
            .collect();
        let is_cluster = kind.is_cluster() || random.bool();
        let role = if is_cluster { "ClusterRole" } else { "Role" };
        json!({"subjects": subjects, "roleRef": {"kind": role, "name": one_of(random, &NAMES)}})
    }

    /// Decides by a look at all bindings.
    fn decides(objects: &Objects, user: &User, attributes: Attributes<'_>) -> bool {
        let Attributes::Resource {
            namespace: asked, ..
        } = attributes
        else {
            return false;
        };
        objects.iter().any(|((plural, namespace, _), binding)| {
            let is_binding = plural.ends_with("bindings");
            if !is_binding || !namespace.is_empty() && namespace != asked {
                return false;
            }
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            let mut matching = subjects.filter(|subject| {
                let name = subject["name"].as_str().unwrap_or_default();
                match subject["kind"].as_str() {
                    Some("User") => user.name == name,
                    Some("Group") => user.is_in(name),
                    _ => {
                        let namespace = subject["namespace"].as_str().unwrap_or_default();
                        user.name == format!("system:serviceaccount:{namespace}:{name}")
                    }
                }
            });
            let role = &binding["roleRef"];
            let (plural, namespace) = match role["kind"].as_str() {
                Some("ClusterRole") => ("clusterroles", ""),
                _ => ("roles", namespace.as_str()),
            };
            let name = role["name"].as_str().unwrap_or_default().to_owned();
            let role = objects.get(&(plural.to_owned(), namespace.to_owned(), name));
            matching.next().is_some()
                && role.is_some_and(|role| {
                    let rules = Rule::parse_all(role.get("rules"));
                    rules.iter().any(|rule| rule.allows(attributes))
                })
        })
    }

    #[test]
    fn decisions_are_those_of_a_policy_without_an_index() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut policy, mut objects) = (Policy::default(), Objects::new());
        for step in 0..3_000 {
            let kind = PolicyKind::ALL[random.usize(..4)];
            let namespace = if kind.is_cluster() {
                ""
            } else {
                one_of(&mut random, &NAMESPACES)
            };
            let name = one_of(&mut random, &NAMES);
            let key = (
                kind.plural().to_owned(),
                namespace.to_owned(),
                name.to_owned(),
            );
            if random.u8(..100) == 0 {
                policy.clear(kind);
                objects.retain(|(plural, ..), _| plural != kind.plural());
            } else if random.u8(..3) == 0 {
                policy.remove(kind, namespace, name);
                objects.remove(&key);
            } else {
                let object = random_object(&mut random, kind);
                policy.set(kind, namespace, name, &object);
                objects.insert(key, object);
            }
            let user = match random.u8(..3) {
                0 => User::new("system:serviceaccount:n:s", ["a"]),
                _ => User::new(one_of(&mut random, &NAMES), [one_of(&mut random, &NAMES)]),
            };
            let attributes = Attributes::Resource {
                verb: one_of(&mut random, &["get", "list", "watch"]),
                group: "",
                namespace: one_of(&mut random, &["", "n", "m", "x"]),
                resource: one_of(&mut random, &["pods", "nodes"]),
                subresource: "",
                name: "",
            };
            let expected = decides(&objects, &user, attributes);
            let found = policy.decide(&user, attributes).is_ok();
            assert_eq!(found, expected, "step {step}: {user:?} {attributes:?}");
        }
        for kind in PolicyKind::ALL {
            policy.clear(kind);
        }
        assert!(policy.scopes.is_empty(), "nothing stays behind");
    }
}
