//! The plugins that ask webhooks: `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`.
//!
//! `source.rs` has the webhooks of all configurations in the store, `matches.rs` says which of them a request is for,
//! `review.rs` writes their requests and reads their answers, with `decode.rs`, `call.rs` calls one, and `mutating.rs` and `validating.rs`
//! do it in the order of the two phases. `versions.rs` converts objects for webhooks that want another version.

mod call;
mod decode;
mod hook;
mod matches;
mod mutating;
mod review;
mod selector;
mod source;
mod validating;
mod versions;

pub(crate) use mutating::MutatingWebhooks;
pub(crate) use validating::ValidatingWebhooks;

use crate::admission::Attributes;

/// The group of the configurations.
const GROUP: &str = "admissionregistration.k8s.io";
/// The kinds for which no webhooks are called: one that fails could not be removed any more.
const EXEMPT: [&str; 6] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
];

/// Returns whether no webhooks are called for a request.
fn is_exempt(request: &Attributes<'_>) -> bool {
    request.kind.group == GROUP && EXEMPT.contains(&request.kind.kind)
}
