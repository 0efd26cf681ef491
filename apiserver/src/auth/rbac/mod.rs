//! Role-based access control: decisions by the roles and bindings in the store.

mod bootstrap;
mod escalation;
mod follow;
mod policy;
mod rule;

use parking_lot::RwLock;

use crate::auth::{Attributes, User};

pub(crate) use bootstrap::create as create_bootstrap_policy;
pub(crate) use escalation::PolicyWrite;
pub(crate) use follow::Follower;
use policy::Policy;
pub(crate) use policy::PolicyKind;
pub(crate) use rule::Rule;

/// The group of the resources.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// The roles and bindings of the store, as its changes are followed.
// A leaf lock.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    policy: RwLock<Policy>,
}

/// Whether a request is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// Why, if there is more to say.
    pub(crate) reason: String,
}

impl Rbac {
    /// Checks that a request is allowed. Costs less than [`Self::decide`] if it is.
    ///
    /// # Errors
    /// Why it is not; empty if no binding says anything about it.
    pub(crate) fn check(&self, user: &User, attributes: Attributes<'_>) -> Result<(), String> {
        let policy = self.policy.read();
        let decided = policy.decide(user, attributes);
        decided.map(drop).map_err(|errors| denial(&errors))
    }

    /// Returns whether a request is allowed, and why.
    pub(crate) fn decide(&self, user: &User, attributes: Attributes<'_>) -> Decision {
        match self.policy.read().decide(user, attributes) {
            Ok(grant) => Decision {
                allowed: true,
                reason: grant.reason(),
            },
            Err(errors) => Decision {
                allowed: false,
                reason: denial(&errors),
            },
        }
    }

    /// Returns the rules of a user in a namespace, and the errors of roles that do not exist.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let policy = self.policy.read();
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for grant in policy.grants(user, namespace) {
            rules.extend(
                grant
                    .rules
                    .into_iter()
                    .flat_map(|rules| rules.iter().cloned()),
            );
            errors.extend(grant.error());
        }
        (rules, errors)
    }
}

fn denial(errors: &[String]) -> String {
    match errors {
        [] => String::new(),
        [error] => format!("RBAC: {error}"),
        errors => format!("RBAC: [{}]", errors.join(", ")),
    }
}
