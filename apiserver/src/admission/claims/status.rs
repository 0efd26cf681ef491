//! Who may write which part of the status of a claim. Besides the right to write the status, it takes one on the
//! subresource `binding` for what was allocated to whom, and one on `driver` for each driver whose devices change.

use std::collections::{BTreeSet, HashMap};

use revstore_watch_cache::names::subdomain_error;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;
use serde_json::Value;

use super::GROUP;
use crate::auth::{Attributes, Authorizer, User};
use crate::builtin::edit;

/// The beginnings of the verbs on the subresource `driver`: of service accounts on the node to which a claim is bound, and
/// of all others.
const ASSOCIATED_NODE: &str = "associated-node:";
const ARBITRARY_NODE: &str = "arbitrary-node:";

/// Who writes a status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) authorizer: &'a Authorizer,
    pub(super) user: &'a User,
    /// The verb of the request.
    pub(super) verb: &'a str,
    pub(super) namespace: &'a str,
}

impl Caller<'_> {
    /// Returns the causes of the changes that the caller may not make. Corresponds to `AuthorizedForBinding` and
    /// `AuthorizedForDeviceStatus`.
    pub(super) fn check(&self, new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
        let mut causes: Vec<_> = self.check_binding(new, old).into_iter().collect();
        // The devices of a claim without an allocation are removed.
        if let Some(allocation) = part(new, "allocation") {
            causes.extend(self.check_devices(allocation, new, old));
        }
        causes
    }

    fn check_binding(&self, new: &JsonObject, old: &JsonObject) -> Option<StatusCause> {
        let is_same = ["allocation", "reservedFor"]
            .iter()
            .all(|name| part(new, name) == part(old, name));
        if is_same {
            return None;
        }
        let verb = self.verb;
        // In all namespaces and with all names.
        let error = self.refusal(verb, "binding", "", "")?;
        let detail = format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {error}"
        );
        Some(StatusCause::forbidden("status.allocation", &detail))
    }

    fn check_devices(
        &self,
        allocation: &Value,
        new: &JsonObject,
        old: &JsonObject,
    ) -> Vec<StatusCause> {
        let of = |prefix: &str| format!("{prefix}{}", self.verb);
        let mut verbs = vec![of(ARBITRARY_NODE)];
        if node_of(allocation).is_some_and(|node| self.is_on(node)) {
            verbs.insert(0, of(ASSOCIATED_NODE));
        }
        let mut causes = Vec::new();
        for driver in changed_drivers(new, old) {
            let refusals = verbs
                .iter()
                .map(|verb| self.refusal(verb, "driver", self.namespace, driver));
            // The first one, unless one of the verbs is allowed.
            let refusal = refusals.reduce(|first, next| first.filter(|_| next.is_some()));
            if let Some(error) = refusal.flatten() {
                let verbs = verbs.join(" ");
                let detail = format!(
                    "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: {error}"
                );
                causes.push(StatusCause::forbidden("status.devices", &detail));
            }
        }
        causes
    }

    /// Returns why the caller has no right on a subresource that exists only for this.
    fn refusal(
        &self,
        verb: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<String> {
        let attributes = Attributes::Resource {
            verb,
            group: GROUP,
            namespace,
            resource: "resourceclaims",
            subresource,
            name,
        };
        let checked = self.authorizer.check(self.user, attributes);
        checked.err().map(|error| error.status().message.clone())
    }

    /// Returns whether the caller is a service account with a token for pods on a node.
    fn is_on(&self, node: &str) -> bool {
        User::split_service_account(&self.user.name).is_some()
            && subdomain_error(node).is_none()
            && self.user.node_of_pod() == Some(node)
    }
}

/// Returns a part of a status. An empty list is absent.
fn part<'a>(claim: &'a JsonObject, name: &str) -> Option<&'a Value> {
    let part = edit::at(claim, &["status", name])?;
    let is_absent = part.is_null() || part.as_array().is_some_and(Vec::is_empty);
    (!is_absent).then_some(part)
}

/// Returns the only node on which devices can be used.
fn node_of(allocation: &Value) -> Option<&str> {
    let term = only(allocation.get("nodeSelector")?.get("nodeSelectorTerms"))?;
    let has_expressions = |term: &Value| {
        let expressions = term.get("matchExpressions").and_then(Value::as_array);
        expressions.is_some_and(|list| !list.is_empty())
    };
    let field = only(term.get("matchFields")).filter(|_| !has_expressions(term))?;
    if field["key"] != "metadata.name" || field["operator"] != "In" {
        return None;
    }
    only(field.get("values"))?.as_str()
}

/// Returns the item of a list with one.
fn only(list: Option<&Value>) -> Option<&Value> {
    let list = list?.as_array()?;
    list.first().filter(|_| list.len() == 1)
}

/// Returns the drivers of which devices were added, removed or changed.
fn changed_drivers<'a>(new: &'a JsonObject, old: &'a JsonObject) -> BTreeSet<&'a str> {
    let devices = |claim: &'a JsonObject| {
        let devices = part(claim, "devices").and_then(Value::as_array);
        devices.into_iter().flatten().filter_map(Value::as_object)
    };
    let key = |item: &'a JsonObject| {
        ["driver", "pool", "device", "shareID"].map(|name| edit::text(item, name))
    };
    let mut before: HashMap<_, _> = devices(old).map(|item| (key(item), item)).collect();
    let mut drivers = BTreeSet::new();
    for item in devices(new) {
        if before.remove(&key(item)) != Some(item) {
            drivers.insert(edit::text(item, "driver"));
        }
    }
    drivers.extend(before.keys().map(|[driver, ..]| *driver));
    drivers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_on_a_node_if_its_selector_names_only_that() {
        let check = |terms: Value, expected: Option<&str>| {
            let allocation = json!({"nodeSelector": {"nodeSelectorTerms": terms}});
            assert_eq!(node_of(&allocation), expected, "{allocation}");
        };
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
        let other = json!({"key": "a", "operator": "Exists"});
        check(json!([{"matchFields": [field]}]), Some("n"));
        check(
            json!([{"matchFields": [field], "matchExpressions": []}]),
            Some("n"),
        );
        check(
            json!([{"matchFields": [field], "matchExpressions": [other]}]),
            None,
        );
        check(json!([{"matchFields": [field, field]}]), None);
        check(
            json!([{"matchFields": [field]}, {"matchFields": [field]}]),
            None,
        );
        check(json!([{"matchExpressions": [field]}]), None);
        for (name, value) in [
            ("key", json!("spec.name")),
            ("operator", json!("NotIn")),
            ("values", json!(["n", "m"])),
            ("values", json!([])),
        ] {
            let mut field = field.clone();
            field[name] = value;
            check(json!([{"matchFields": [field]}]), None);
        }
        assert_eq!(node_of(&json!({})), None);
    }

    #[test]
    fn a_driver_has_changed_if_one_of_its_devices_has() {
        let device = |driver: &str, device: &str, share: &str, data: u8| {
            let mut item =
                json!({"driver": driver, "pool": "p", "device": device, "data": {"a": data}});
            if !share.is_empty() {
                item["shareID"] = json!(share);
            }
            item
        };
        let check = |new: Value, old: Value, expected: &[&str]| {
            let [new, old] = [new, old].map(|devices| json!({"status": {"devices": devices}}));
            let (new, old) = (new.as_object().expect("one"), old.as_object().expect("one"));
            let changed: Vec<_> = changed_drivers(new, old).into_iter().collect();
            assert_eq!(changed, expected, "{new:?} {old:?}");
        };
        let (a, b) = (device("a", "x", "", 1), device("b", "x", "", 1));
        check(json!([a, b]), json!([b, a]), &[]);
        check(json!([]), Value::Null, &[]);
        check(json!([a, b]), json!([b]), &["a"]);
        check(json!([b]), json!([a, b]), &["a"]);
        check(json!([device("a", "x", "", 2), b]), json!([a, b]), &["a"]);
        check(
            json!([device("a", "x", "s", 1)]),
            json!([device("a", "x", "t", 1)]),
            &["a"],
        );
        check(json!([device("b", "y", "", 1), a]), json!([b]), &["a", "b"]);
    }
}
