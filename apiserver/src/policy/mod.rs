//! Policies in CEL that admit requests, and match conditions.
//!
//! - [`Index`](index) has the policies of the store with their bindings, and [`Definition`](definition) their compiled
//!   expressions; [`Compiler`] says what these can refer to.
//! - [`Constraints`](constraints) say for which requests a policy or a binding is, and [`Conditions`] refine that.
//! - [`ValidatingPolicies`] and [`MutatingPolicies`] are the plugins. What expressions see of a request is a
//!   [`Scene`](activation), with the [`params`] of the binding.
//! - [`type_check`] finds expressions that do not fit the objects for which a policy is, for its status.

mod activation;
mod conditions;
mod constraints;
mod definition;
mod expression;
mod index;
mod mutating;
mod params;
mod patch;
pub(crate) mod type_check;
mod validating;

pub(crate) use activation::Scene;
pub(crate) use conditions::Conditions;
pub(crate) use constraints::{Matched, Subject};
pub(crate) use definition::Variables;
pub(crate) use expression::{Compiler, JSON_PATCH_TYPE, OBJECT_TYPE, Purpose, Refusal};
pub(crate) use mutating::MutatingPolicies;
pub(crate) use validating::ValidatingPolicies;

use crate::admission::Attributes;

/// Returns whether policies do not apply to a request: it is for what says who may do what, or what is admitted.
fn is_exempt(request: &Attributes<'_>) -> bool {
    let names = &request.resource.names;
    match names.group.as_str() {
        index::GROUP => matches!(
            names.plural.as_str(),
            "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        ),
        "authentication.k8s.io" => {
            matches!(names.plural.as_str(), "selfsubjectreviews" | "tokenreviews")
        }
        "authorization.k8s.io" => matches!(
            names.plural.as_str(),
            "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        ),
        _ => false,
    }
}
