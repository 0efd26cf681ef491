//! Random policies, whose decisions are compared with those without an index.

use std::collections::BTreeMap;

use serde_json::json;

use super::grants::INDEXED_ROLES_MIN;
use super::*;

/// The objects of a policy without an index.
type Objects = BTreeMap<(String, String, String), Value>;

const NAMES: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [&str; 2] = ["n", "m"];

fn one_of<'a>(random: &mut fastrand::Rng, texts: &[&'a str]) -> &'a str {
    texts[random.usize(..texts.len())]
}

/// Returns the name of one of `count` objects.
fn random_name(random: &mut fastrand::Rng, count: usize) -> String {
    format!("o-{}", random.usize(..count))
}

fn random_rule(random: &mut fastrand::Rng) -> Value {
    let verbs = [one_of(random, &["get", "list", "*"])];
    if random.u8(..4) == 0 {
        let paths = [one_of(random, &["/a", "/a/b", "/a/*", "*"])];
        return json!({"verbs": verbs, "nonResourceURLs": paths});
    }
    let names: &[&str] = match random.u8(..3) {
        0 => &[],
        1 => &["x"],
        _ => &["y", "z"],
    };
    json!({
        "verbs": verbs,
        "apiGroups": [one_of(random, &["", "g", "*"])],
        "resources": [one_of(random, &["pods", "nodes", "pods/log", "*/log", "*"])],
        "resourceNames": names,
    })
}

fn random_object(random: &mut fastrand::Rng, kind: PolicyKind, count: usize) -> Value {
    if !kind.is_binding() {
        let rules: Vec<_> = (0..random.usize(..3))
            .map(|_| random_rule(random))
            .collect();
        return json!({ "rules": rules });
    }
    // Of many bindings, most are of one user and of one group.
    let names = if count > NAMES.len() {
        &NAMES[..1]
    } else {
        &NAMES[..]
    };
    let subjects: Vec<Value> = (0..random.usize(..3))
        .map(|_| match random.u8(..3) {
            0 => json!({"kind": "User", "name": one_of(random, names)}),
            1 => json!({"kind": "Group", "name": one_of(random, names)}),
            _ => json!({"kind": "ServiceAccount", "name": "s", "namespace": one_of(random, &NAMESPACES)}),
        })
        .collect();
    let is_cluster = kind.is_cluster() || random.bool();
    let role = if is_cluster { "ClusterRole" } else { "Role" };
    json!({"subjects": subjects, "roleRef": {"kind": role, "name": random_name(random, count)}})
}

fn random_request(random: &mut fastrand::Rng) -> Attributes<'static> {
    let verb = one_of(random, &["get", "list", "watch"]);
    if random.u8(..4) == 0 {
        let path = one_of(random, &["/a", "/a/b", "/a/c", "/b"]);
        return Attributes::Path { verb, path };
    }
    Attributes::Resource {
        verb,
        group: one_of(random, &["", "g", "h"]),
        namespace: one_of(random, &["", "n", "m", "x"]),
        resource: one_of(random, &["pods", "nodes"]),
        subresource: one_of(random, &["", "log", "status"]),
        name: one_of(random, &["", "x", "y"]),
    }
}

/// Decides by a look at all bindings.
fn decides(objects: &Objects, user: &User, attributes: Attributes<'_>) -> bool {
    let asked = match attributes {
        Attributes::Resource { namespace, .. } => namespace,
        Attributes::Path { .. } => "",
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

/// Returns the namespace and the role of the first grant that allows a request, or the errors of roles that do not
/// exist, by a look at all grants.
fn first(
    policy: &Policy,
    user: &User,
    attributes: Attributes<'_>,
) -> Result<(String, RoleRef), Vec<String>> {
    let namespace = match attributes {
        Attributes::Resource { namespace, .. } => namespace,
        Attributes::Path { .. } => "",
    };
    let mut errors: Vec<String> = Vec::new();
    for grant in policy.grants(user, namespace) {
        let mut rules = grant.rules.into_iter().flat_map(|rules| rules.iter());
        if rules.any(|rule| rule.allows(attributes)) {
            return Ok((grant.namespace.to_owned(), grant.role.clone()));
        }
        errors.extend(grant.error().filter(|error| !errors.contains(error)));
    }
    Err(errors)
}

/// Changes a policy of up to `count` objects of each kind and namespace at random, and compares decisions with those
/// without an index. Returns how many of the decisions were about somebody with an index.
fn compare(seed: u64, count: usize, steps: usize) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut policy, mut objects) = (Policy::default(), Objects::new());
    let mut indexed = 0;
    for step in 0..steps {
        let kind = PolicyKind::ALL[random.usize(..4)];
        let namespace = if kind.is_cluster() {
            ""
        } else {
            one_of(&mut random, &NAMESPACES)
        };
        let name = random_name(&mut random, count);
        let key = (kind.plural().to_owned(), namespace.to_owned(), name.clone());
        if random.usize(..20 * count) == 0 {
            policy.clear(kind);
            objects.retain(|(plural, ..), _| plural != kind.plural());
        } else if random.u8(..4) == 0 {
            policy.remove(kind, namespace, &name);
            objects.remove(&key);
        } else {
            let object = random_object(&mut random, kind, count);
            policy.set(kind, namespace, &name, &object);
            objects.insert(key, object);
        }
        let user = match random.u8(..3) {
            0 => User::new("system:serviceaccount:n:s", ["a"]),
            _ => User::new(one_of(&mut random, &NAMES), [one_of(&mut random, &NAMES)]),
        };
        let attributes = random_request(&mut random);
        let decided = policy.decide(&user, attributes);
        let what = format!("step {step}: {user:?} {attributes:?}");
        assert_eq!(
            decided.is_ok(),
            decides(&objects, &user, attributes),
            "{what}"
        );
        let decided = decided.map(|grant| (grant.namespace.to_owned(), grant.role.clone()));
        assert_eq!(decided, first(&policy, &user, attributes), "{what}");
        for (namespace, grants) in policy.all_grants(&user, "n") {
            let is_many = grants.iter().count() >= INDEXED_ROLES_MIN;
            assert_eq!(grants.is_indexed(), is_many, "{what} in {namespace:?}");
            indexed += usize::from(is_many);
        }
    }
    for kind in PolicyKind::ALL {
        policy.clear(kind);
    }
    assert!(policy.scopes.is_empty() && policy.indexed.is_empty());
    assert!(policy.roles.by_namespace.is_empty(), "nothing stays behind");
    indexed
}

#[test]
fn decisions_are_those_of_a_policy_without_an_index() {
    assert_eq!(compare(7, 3, 3_000), 0);
    let indexed = compare(8, 120, 6_000);
    assert!(
        indexed > 1_000,
        "{indexed} decisions with an index of rules"
    );
}
