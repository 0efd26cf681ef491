//! Nobody grants what they do not have: who may write roles and bindings.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, quoted};
use serde_json::{Value, json};

use crate::auth::rbac::policy::{PolicyKind, RoleRef};
use crate::auth::rbac::rule::{self, Rule};
use crate::auth::rbac::{GROUP, Rbac};
use crate::auth::user::MASTERS;
use crate::auth::{Attributes, Authorizer, User};

/// The detail of the error of a role that collects the rules of others.
const AGGREGATION_DETAIL: &str = "must have cluster-admin privileges to use the aggregationRule";

/// The write of a role or a binding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyWrite<'a> {
    pub(crate) user: &'a User,
    pub(crate) kind: PolicyKind,
    /// The namespace of the path, empty for a cluster-scoped resource.
    pub(crate) namespace: &'a str,
    /// The name of the path, empty for a create.
    pub(crate) name: &'a str,
}

impl PolicyWrite<'_> {
    /// Checks that a user who writes a role or a binding does not grant more than they may do themselves. `old` is the
    /// current version.
    ///
    /// # Errors
    /// 403, and 404 if the role of a binding does not exist.
    pub(crate) fn check(
        &self,
        authorizer: &Authorizer,
        new: &JsonObject,
        old: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        if self.user.is_in(MASTERS) || old.is_some_and(|old| changes_only_links(new, old)) {
            return Ok(());
        }
        if self.kind.is_binding() {
            self.check_binding(authorizer, new)
        } else {
            self.check_role(authorizer, new, old)
        }
    }

    fn check_role(
        &self,
        authorizer: &Authorizer,
        new: &JsonObject,
        old: Option<&JsonObject>,
    ) -> Result<(), RequestError> {
        let escalate = self.attributes("escalate", self.kind.plural(), self.name);
        if authorizer.allows(self.user, escalate) {
            return Ok(());
        }
        let rbac = &authorizer.rbac;
        let wanted = Rule::parse_all(new.get("rules"));
        self.confirm(rbac, &wanted)
            .map_err(|detail| self.forbidden(new, &detail))?;
        let aggregates = |role: &JsonObject| {
            let rule = role.get("aggregationRule");
            let selectors = rule.and_then(|rule| rule["clusterRoleSelectors"].as_array());
            selectors.is_some_and(|selectors| !selectors.is_empty())
        };
        if self.kind == PolicyKind::ClusterRole && (aggregates(new) || old.is_some_and(aggregates))
        {
            self.confirm(rbac, &Rule::everything())
                .map_err(|_| self.forbidden(new, AGGREGATION_DETAIL))?;
        }
        Ok(())
    }

    fn check_binding(&self, authorizer: &Authorizer, new: &JsonObject) -> Result<(), RequestError> {
        let role_ref = new.get("roleRef").cloned().unwrap_or_default();
        let role = RoleRef::parse(&json!({ "roleRef": role_ref }));
        let plural = match role_ref["kind"].as_str() {
            Some("ClusterRole") => "clusterroles",
            Some("Role") => "roles",
            // The validation refuses it.
            _ => return Ok(()),
        };
        if authorizer.allows(self.user, self.attributes("bind", plural, &role.name)) {
            return Ok(());
        }
        let rules = authorizer
            .rbac
            .policy
            .read()
            .rules(&role, self.namespace)
            .cloned();
        let Some(rules) = rules else {
            let resource = ResourceName::new(GROUP, self.kind.plural());
            return Err(Status::not_found(&resource, &role.name).into());
        };
        self.confirm(&authorizer.rbac, &rules)
            .map_err(|detail| self.forbidden(new, &detail))
    }

    /// Checks that the user has all of some rules in the namespace.
    fn confirm(&self, rbac: &Rbac, wanted: &[Rule]) -> Result<(), String> {
        let (owned, errors) = rbac.rules(self.user, self.namespace);
        let mut missing: Vec<_> = rule::missing(&owned, wanted)
            .iter()
            .map(Rule::describe)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort();
        missing.dedup();
        let (name, groups) = (quoted(&self.user.name), rule::list(&self.user.groups));
        let resolution = match errors.as_slice() {
            [] => String::new(),
            errors => format!("; resolution errors: [{}]", errors.join(", ")),
        };
        let missing = missing.join("\n");
        let detail = format!(
            "user {name} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{missing}{resolution}"
        );
        Err(detail)
    }

    fn attributes<'a>(&'a self, verb: &'a str, plural: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes::Resource {
            verb,
            group: GROUP,
            namespace: self.namespace,
            resource: plural,
            subresource: "",
            name,
        }
    }

    fn forbidden(&self, new: &JsonObject, detail: &str) -> RequestError {
        let name = new.get("metadata").map(|metadata| &metadata["name"]);
        let name = name.and_then(Value::as_str).unwrap_or_default();
        let resource = ResourceName::new(GROUP, self.kind.plural());
        Status::forbidden(&resource, name, detail).into()
    }
}

/// Returns whether two versions differ at most in what the garbage collector changes.
fn changes_only_links(new: &JsonObject, old: &JsonObject) -> bool {
    let rest = |object: &JsonObject| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        object
    };
    rest(new) == rest(old)
}
