//! Admission: what is checked and completed of a write between the authorization and the store.
//!
//! A [`Chain`] of [`Plugin`]s, in the order of kube-apiserver, has two phases. In the first one each plugin may change the
//! object that the client wants, before the rules of the resource prepare and check it. In the second one each may
//! refuse the object as it will be stored. An [`Admission`] is that of one request; the verbs call it. Updates, patches
//! and applies are admitted at each attempt, with the current version of that moment, deletions of a collection once
//! for each object, and dry runs as all others.
//!
//! # How to add a plugin
//!
//! Write a type that implements [`Plugin`] in a file of its own, and give its name in `names.rs` the function that
//! makes it; the table in the README says what it does. `handles` says which requests it wants in which phase:
//! `request.operation`, `request.is_for("", "pods", "")`, `request.kind`. `mutate` gets the object as the client of
//! that version sees it, after the entries of `managedFields` were made: what a plugin changes belongs to no manager,
//! as in kube-apiserver. Both phases find everything else in [`Attributes`]: the current version (`old`), the user, the
//! options, `dry_run`, `front` with the catalog, the authorizer and the time, `exchange` with `warn` and `annotate`. A
//! plugin that asks others says so with `is_foreign`, and can be called a second time with `memory`. Refuse with
//! `request.forbidden(object, "why")`; no plugin has side effects in a dry run.

mod attributes;
mod builtin;
mod calls;
mod certificates;
mod chain;
mod claims;
mod names;
mod new_events;
mod optional;
mod parameters;
mod plugin;
mod pod_security;
mod pods;
mod request;
mod webhook;

pub(crate) use attributes::{Attributes, Operation};
pub(crate) use calls::Calls;
pub(crate) use chain::Chain;
pub use names::PluginNames;
pub(crate) use plugin::{Decision, Phase, Plugin};
pub use pods::TolerationSeconds;
pub(crate) use request::Admission;
