//! An index of the rules of many roles.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::binding::RoleRef;
use crate::auth::Attributes;
use crate::auth::rbac::rule::{ALL, Rule};

/// The number of keys of one role above which the role is a candidate for all requests. It bounds the memory of the index
/// where roles combine many groups, resources and names.
const KEYS_PER_ROLE_MAX: usize = 256;

/// The verbs that have a bit of their own.
const KNOWN_VERBS: [&str; 16] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
    "attest",
    "proxy",
];

/// The roles whose rules may be about a request, by groups, resources, names and paths: all that allow it, and few others.
///
/// A role has a key for each combination of a group, a resource and a name of a rule, and for each path. Roles with more
/// than [`KEYS_PER_ROLE_MAX`] keys, and those with patterns of paths, have none and are always candidates.
#[derive(Debug, Default)]
pub(super) struct RuleIndex {
    /// The seed of the keys, which clients do not know.
    hasher: RandomState,
    /// By key. Roles that share a key by chance are candidates without need.
    by_key: HashMap<u64, Vec<SameVerbs>>,
    /// The roles without keys.
    wide: BTreeSet<RoleRef>,
    /// The roles that do not exist.
    missing: BTreeSet<RoleRef>,
}

/// The roles of a key with the same verbs, sorted. Where many roles are about the same objects, most have the same verbs,
/// and a request with another verb looks at none of them.
#[derive(Debug)]
struct SameVerbs {
    bits: u64,
    roles: Vec<RoleRef>,
}

impl RuleIndex {
    /// Adds a role with its rules; `None` if it does not exist.
    pub(super) fn add(&mut self, role: &RoleRef, rules: Option<&Arc<[Rule]>>) {
        let Some(rules) = rules else {
            self.missing.insert(role.clone());
            return;
        };
        let Some(keys) = self.keys_of(rules) else {
            self.wide.insert(role.clone());
            return;
        };
        for (key, bits) in keys {
            let all = self.by_key.entry(key).or_default();
            let at = all.iter().position(|same| same.bits == bits);
            let at = at.unwrap_or_else(|| {
                all.push(SameVerbs {
                    bits,
                    roles: Vec::with_capacity(1),
                });
                all.len() - 1
            });
            let same = &mut all[at].roles;
            if let Err(at) = same.binary_search(role) {
                same.insert(at, role.clone());
            }
        }
    }

    /// Removes a role, with the rules with which it was added.
    pub(super) fn remove(&mut self, role: &RoleRef, rules: Option<&Arc<[Rule]>>) {
        let Some(rules) = rules else {
            self.missing.remove(role);
            return;
        };
        let Some(keys) = self.keys_of(rules) else {
            self.wide.remove(role);
            return;
        };
        for (key, bits) in keys {
            // Absent if two rules have the same key.
            let Some(all) = self.by_key.get_mut(&key) else {
                continue;
            };
            for same in all.iter_mut().filter(|same| same.bits == bits) {
                if let Ok(at) = same.roles.binary_search(role) {
                    same.roles.remove(at);
                }
            }
            all.retain(|same| !same.roles.is_empty());
            if all.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Returns all roles that allow a request, and some that may not; several lists, each sorted.
    pub(super) fn candidates<'a>(
        &'a self,
        attributes: Attributes<'_>,
    ) -> impl Iterator<Item = Box<dyn Iterator<Item = &'a RoleRef> + 'a>> {
        let bits = bits_of(attributes.verb());
        let keys = self.keys_of_request(attributes).into_iter();
        let found = keys.filter_map(|key| self.by_key.get(&key)).flatten();
        let found = found.filter(move |same| same.bits & bits != 0);
        let lists = found.map(|same| Box::new(same.roles.iter()) as Box<dyn Iterator<Item = _>>);
        lists.chain([Box::new(self.wide.iter()) as Box<dyn Iterator<Item = _>>])
    }

    /// Returns the roles that do not exist.
    pub(super) fn missing(&self) -> impl Iterator<Item = &RoleRef> {
        self.missing.iter()
    }

    fn resource_key(&self, group: &str, resource: &str, name: &str) -> u64 {
        self.hasher.hash_one((group, resource, name))
    }

    fn path_key(&self, path: &str) -> u64 {
        self.hasher.hash_one(path)
    }

    /// Returns the keys of the rules of a role, with the bits of their verbs. `None` if it has no keys.
    fn keys_of(&self, rules: &[Rule]) -> Option<Vec<(u64, u64)>> {
        let count = |rule: &Rule| {
            let named = rule.groups.len().saturating_mul(rule.resources.len());
            let named = named.saturating_mul(rule.names.len().max(1));
            named.saturating_add(rule.paths.len())
        };
        let total = rules.iter().map(count).fold(0, usize::saturating_add);
        let mut paths = rules.iter().flat_map(|rule| &rule.paths);
        if total > KEYS_PER_ROLE_MAX || paths.any(|path| path.ends_with(ALL)) {
            return None;
        }
        let mut keys = Vec::with_capacity(total);
        for rule in rules {
            let bits = rule
                .verbs
                .iter()
                .fold(0, |bits, verb| bits | bits_of_rule(verb));
            for group in &rule.groups {
                for resource in &rule.resources {
                    if rule.names.is_empty() {
                        keys.push((self.resource_key(group, resource, ""), bits));
                    }
                    for name in &rule.names {
                        keys.push((self.resource_key(group, resource, name), bits));
                    }
                }
            }
            keys.extend(rule.paths.iter().map(|path| (self.path_key(path), bits)));
        }
        Some(keys)
    }

    /// Returns the keys of all rules that can be about a request.
    fn keys_of_request(&self, attributes: Attributes<'_>) -> Vec<u64> {
        let (group, resource, subresource, name) = match attributes {
            Attributes::Path { path, .. } => return vec![self.path_key(path)],
            Attributes::Resource {
                group,
                resource,
                subresource,
                name,
                ..
            } => (group, resource, subresource, name),
        };
        let (whole, any) = match subresource {
            "" => (resource.to_owned(), None),
            sub => (format!("{resource}/{sub}"), Some(format!("{ALL}/{sub}"))),
        };
        let resources = [Some(&*whole), Some(ALL), any.as_deref()];
        let names = [Some(""), Some(name).filter(|name| !name.is_empty())];
        let mut keys = Vec::with_capacity(12);
        for resource in resources.into_iter().flatten() {
            for group in [group, ALL] {
                let names = names.into_iter().flatten();
                keys.extend(names.map(|name| self.resource_key(group, resource, name)));
            }
        }
        keys
    }
}

/// Returns the bits of a verb of a rule.
fn bits_of_rule(verb: &str) -> u64 {
    if verb == ALL { u64::MAX } else { bits_of(verb) }
}

/// Returns the bit of a verb; others share theirs.
fn bits_of(verb: &str) -> u64 {
    let known = KNOWN_VERBS.iter().position(|known| *known == verb);
    let number = known.unwrap_or_else(|| {
        let sum = verb.bytes().fold(0_usize, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        KNOWN_VERBS.len() + sum % (64 - KNOWN_VERBS.len())
    });
    1 << number
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn role(number: usize) -> RoleRef {
        RoleRef {
            is_cluster: false,
            name: format!("r-{number:04}").into(),
        }
    }

    fn rules(rule: &Value) -> Arc<[Rule]> {
        [Rule::parse(rule)].into()
    }

    fn asked<'a>(
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes::Resource {
            verb,
            group,
            namespace: "n",
            resource,
            subresource,
            name,
        }
    }

    fn candidates(index: &RuleIndex, attributes: Attributes<'_>) -> usize {
        index.candidates(attributes).flatten().count()
    }

    /// Checks how many of 1,000 roles are looked at for a request, and that nothing of them stays behind.
    fn check(rule: impl Fn(usize) -> Value, attributes: Attributes<'_>, expected: usize) {
        let mut index = RuleIndex::default();
        for number in 0..1_000 {
            index.add(&role(number), Some(&rules(&rule(number))));
        }
        assert_eq!(candidates(&index, attributes), expected, "{attributes:?}");
        for number in 0..1_000 {
            index.remove(&role(number), Some(&rules(&rule(number))));
        }
        assert!(index.by_key.is_empty() && index.wide.is_empty());
    }

    #[test]
    fn a_request_looks_only_at_roles_about_its_objects() {
        let rule = |verb: &str, group: &str, resource: &str, names: &[&str]| json!({"verbs": [verb], "apiGroups": [group], "resources": [resource], "resourceNames": names});
        let same = |_| rule("get", "", "pods", &[]);
        check(same, asked("get", "", "pods", "p"), 1_000);
        check(same, asked("delete", "", "pods", "p"), 0);
        check(same, asked("get", "", "pods/log", "p"), 0);
        check(same, asked("get", "apps", "pods", "p"), 0);
        check(
            |_| rule("*", "*", "*", &[]),
            asked("odd", "", "pods/log", ""),
            1_000,
        );
        check(
            |_| rule("get", "", "*/log", &[]),
            asked("get", "", "pods/log", ""),
            1_000,
        );
        check(
            |_| rule("get", "", "*/log", &[]),
            asked("get", "", "pods", ""),
            0,
        );
        let named = |number: usize| rule("get", "", "secrets", &[&format!("s-{number}")]);
        check(named, asked("get", "", "secrets", "s-7"), 1);
        check(named, asked("list", "", "secrets", ""), 0);
        check(named, asked("get", "", "secrets", "other"), 0);
        let grouped = |number: usize| rule("get", &format!("g-{number}"), "*", &[]);
        check(grouped, asked("get", "g-7", "widgets", "w"), 1);
        let path =
            |number: usize| json!({"verbs": ["get"], "nonResourceURLs": [format!("/p/{number}")]});
        let get = |path| Attributes::Path { verb: "get", path };
        check(path, get("/p/7"), 1);
        check(path, get("/p"), 0);
    }

    #[test]
    fn roles_with_patterns_and_with_many_combinations_are_always_looked_at() {
        let pattern = json!({"verbs": ["get"], "nonResourceURLs": ["/p/*"]});
        let texts = |count: usize| (0..count).map(|it| format!("t-{it}")).collect::<Vec<_>>();
        let many = |count| json!({"verbs": ["get"], "apiGroups": texts(4), "resources": texts(8), "resourceNames": texts(count)});
        let attributes = asked("get", "", "pods", "p");
        check(|_| pattern.clone(), attributes, 1_000);
        check(|_| many(KEYS_PER_ROLE_MAX / 32 + 1), attributes, 1_000);
        check(|_| many(KEYS_PER_ROLE_MAX / 32), attributes, 0);
    }
}
