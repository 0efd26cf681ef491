//! The roles of a user or a group in a namespace, or in none.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Change;
use super::binding::RoleRef;
use super::rule_index::RuleIndex;
use crate::auth::Attributes;
use crate::auth::rbac::rule::Rule;

/// The number of roles of one subject from which on their rules have an index. With fewer, a decision looks at the rules
/// of each role.
pub(super) const INDEXED_ROLES_MIN: usize = 16;

/// The bindings that grant a role to a subject, and the subject in them as in reasons.
pub(super) type Bindings = BTreeMap<String, String>;

/// The roles of a user or a group, each with the bindings that grant it.
///
/// - There is an index exactly if there are at least [`INDEXED_ROLES_MIN`] roles.
/// - The index has the current rules of all roles: whoever changes rules calls [`set_rules`](Self::set_rules).
#[derive(Debug, Default)]
pub(super) struct Grants {
    roles: BTreeMap<RoleRef, Bindings>,
    index: Option<Box<RuleIndex>>,
}

impl Grants {
    pub(super) fn is_empty(&self) -> bool {
        self.roles.is_empty()
    }

    pub(super) fn is_indexed(&self) -> bool {
        self.index.is_some()
    }

    /// Returns the roles with their bindings, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RoleRef, &Bindings)> {
        self.roles.iter()
    }

    /// Adds a binding. `rules` returns the rules of a role that exists. Costs O(log n) for n roles, or the keys of one
    /// role in the index.
    pub(super) fn add<'r>(
        &mut self,
        role: &RoleRef,
        binding: &str,
        description: &str,
        rules: impl Fn(&RoleRef) -> Option<&'r Arc<[Rule]>>,
    ) {
        let is_new = !self.roles.contains_key(role);
        let bindings = self.roles.entry(role.clone()).or_default();
        bindings.insert(binding.to_owned(), description.to_owned());
        match &mut self.index {
            Some(index) if is_new => index.add(role, rules(role)),
            Some(_) => {}
            None if self.roles.len() < INDEXED_ROLES_MIN => {}
            None => {
                let mut index = RuleIndex::default();
                for role in self.roles.keys() {
                    index.add(role, rules(role));
                }
                self.index = Some(Box::new(index));
            }
        }
    }

    /// Removes a binding, if it is there. Costs as much as [`add`](Self::add).
    pub(super) fn remove<'r>(
        &mut self,
        role: &RoleRef,
        binding: &str,
        rules: impl Fn(&RoleRef) -> Option<&'r Arc<[Rule]>>,
    ) {
        let Some(bindings) = self.roles.get_mut(role) else {
            return;
        };
        bindings.remove(binding);
        if !bindings.is_empty() {
            return;
        }
        self.roles.remove(role);
        if self.roles.len() < INDEXED_ROLES_MIN {
            self.index = None;
        } else if let Some(index) = &mut self.index {
            index.remove(role, rules(role));
        }
    }

    /// Follows a change of the rules of a role.
    pub(super) fn set_rules(&mut self, role: &RoleRef, Change { old, new }: Change<'_>) {
        if let Some(index) = &mut self.index
            && self.roles.contains_key(role)
        {
            index.remove(role, old);
            index.add(role, new);
        }
    }

    /// Returns the first role that allows a request, with its bindings. If there is none, calls `missing` with each role
    /// that does not exist. Costs a look at each role, or, with an index, at those whose rules may be about the request.
    pub(super) fn first_that_allows<'a>(
        &'a self,
        attributes: Attributes<'_>,
        rules: impl Fn(&RoleRef) -> Option<&'a Arc<[Rule]>>,
        missing: impl FnMut(&RoleRef),
    ) -> Option<(&'a RoleRef, &'a Bindings)> {
        let allows = |role: &RoleRef| {
            rules(role).is_some_and(|rules| rules.iter().any(|rule| rule.allows(attributes)))
        };
        let Some(index) = &self.index else {
            let found = self.roles.iter().find(|(role, _)| allows(role));
            if found.is_none() {
                let all = self.roles.keys();
                all.filter(|role| rules(role).is_none()).for_each(missing);
            }
            return found;
        };
        let first = index
            .candidates(attributes)
            .filter_map(|mut roles| roles.find(|role| allows(role)))
            .min();
        if first.is_none() {
            index.missing().for_each(missing);
        }
        self.roles.get_key_value(first?)
    }
}
