//! Namespaces and nodes.

use std::collections::HashSet;

use serde_json::{Value, json};

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{CauseReason, ResourceName, Status, StatusCause};

use super::pod::EFFECTS;
use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;

/// The label of a namespace with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name_error: names::dns_label_error,
        default: |namespace| {
            label_name(namespace);
            if let Some(status) = edit::ensure(namespace, "status") {
                edit::set_zero(status, "phase", "Active");
            }
        },
        create: |namespace, _| {
            let finalizers = edit::ensure(namespace, "spec")
                .map(|spec| spec.entry("finalizers").or_insert_with(|| json!([])));
            if let Some(Value::Array(list)) = finalizers
                && !list.contains(&json!("kubernetes"))
            {
                list.push("kubernetes".into());
            }
        },
        update: |new, old| {
            // Finalizers have a subresource of their own.
            let finalizers = edit::at(old, &["spec", "finalizers"]).cloned();
            if let Some(spec) = edit::ensure(new, "spec") {
                match finalizers {
                    Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers),
                    None => spec.remove("finalizers"),
                };
            }
        },
        validate: |namespace, causes| {
            for finalizer in namespace.at(&["spec", "finalizers"]).items() {
                check_finalizer(&finalizer, causes);
            }
        },
        validate_status: |new, _, causes| {
            let phase = new.at(&["status", "phase"]);
            let deleted = new.at(&["metadata", "deletionTimestamp"]).is_set();
            let detail = if deleted {
                "may only be 'Terminating' if `deletionTimestamp` is not empty"
            } else {
                "may only be 'Active' if `deletionTimestamp` is empty"
            };
            if deleted != (phase.text() == "Terminating") {
                // The path has the name of the field in Go.
                causes.push(StatusCause::invalid("status.Phase", phase.value(), detail));
            }
        },
        ..Kind::new("", "Namespace").with_status()
    },
    Kind {
        default: |node| {
            agree_cidrs(node);
            if let Some(status) = edit::child_mut(node, "status") {
                let capacity = status.get("capacity").cloned().unwrap_or_default();
                if !capacity.is_null() {
                    edit::set_unset(status, "allocatable", capacity);
                }
            }
        },
        validate: check_node,
        validate_update: check_node_update,
        validate_status: check_addresses,
        keeps_status_on_create: true,
        ..Kind::new("", "Node").with_status()
    },
];

fn label_name(namespace: &mut JsonObject) {
    let name = edit::text_at(namespace, &["metadata", "name"]).to_owned();
    if name.is_empty() {
        return;
    }
    let labels =
        edit::ensure(namespace, "metadata").and_then(|metadata| edit::ensure(metadata, "labels"));
    if let Some(labels) = labels {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
}

fn check_finalizer(finalizer: &Field<'_>, causes: &mut Causes) {
    let name = finalizer.text();
    if let Some(detail) = names::qualified_name_error(name) {
        causes.invalid(finalizer, &detail);
    } else if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name)
    {
        causes.invalid(
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

/// Returns a namespace with the finalizers of another version of it.
///
/// # Errors
/// 422 if a finalizer has an invalid name.
pub fn finalize_namespace(
    old: &JsonObject,
    requested: &JsonObject,
) -> Result<JsonObject, RequestError> {
    let mut new = old.clone();
    let finalizers = edit::at(requested, &["spec", "finalizers"]).cloned();
    if let Some(spec) = edit::ensure(&mut new, "spec") {
        match finalizers {
            Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers),
            None => spec.remove("finalizers"),
        };
    }
    let mut causes = Causes::default();
    for finalizer in Field::root(&new).at(&["spec", "finalizers"]).items() {
        check_finalizer(&finalizer, &mut causes);
    }
    if causes.len() > 0 {
        let name = edit::text_at(old, &["metadata", "name"]);
        let kind = ResourceName::new("", "Namespace");
        return Err(Status::invalid(&kind, name, causes.into_vec()).into());
    }
    Ok(new)
}

/// Makes the list of address ranges begin with the single range, which rules.
fn agree_cidrs(node: &mut JsonObject) {
    let Some(spec) = edit::child_mut(node, "spec") else {
        return;
    };
    let single = edit::text(spec, "podCIDR").to_owned();
    let first = Field::root(spec).child("podCIDRs").items().next();
    let first = first
        .map(|first| first.text().to_owned())
        .unwrap_or_default();
    if single.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".to_owned(), first.into());
    } else if single != first {
        spec.insert("podCIDRs".to_owned(), json!([single]));
    }
}

fn check_node(node: &Field<'_>, causes: &mut Causes) {
    let spec = node.child("spec");
    let mut seen = HashSet::new();
    // The path is not that of the taints.
    let taints = spec
        .child("taints")
        .placed(&node.child("metadata").child("taints"));
    for taint in taints.items() {
        let (key, effect) = (taint.child("key"), taint.child("effect"));
        causes.check_qualified_name(&key);
        if let Some(detail) = names::label_value_error(taint.child("value").text()) {
            causes.invalid(&taint.child("value"), &detail);
        }
        causes.check_required_one_of(&effect, &EFFECTS);
        if !seen.insert((key.text(), effect.text())) {
            // Fields are in the form of upstream's type.
            let shown = format!(
                "Duplicate value: {{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":null}}: taints must \
                 be unique by key and effect pair",
                json!(key.text()),
                json!(taint.child("value").text()),
                json!(effect.text())
            );
            causes.push(StatusCause {
                field: taint.path().into(),
                ..StatusCause::new(CauseReason::DUPLICATE, shown)
            });
        }
    }
    check_resources(node, causes);
    let cidrs = spec.child("podCIDRs");
    for cidr in cidrs.items() {
        causes.check_present_text(&cidr, names::cidr_error);
    }
    if cidrs.len() < 2 {
        return;
    }
    let families: Result<Vec<bool>, (usize, &str)> = cidrs
        .items()
        .enumerate()
        .map(|(index, cidr)| match names::Cidr::parse(cidr.text()) {
            Some(parsed) => Ok(parsed.is_ipv4()),
            None => Err((index, cidr.text())),
        })
        .collect();
    let dual = match families {
        Ok(families) => families.contains(&true) && families.contains(&false),
        Err((index, text)) => {
            let detail = format!(
                "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> \
                 (invalid CIDR address: {text})"
            );
            causes.push(StatusCause::internal(cidrs.path(), &detail));
            false
        }
    };
    if !dual || cidrs.len() > 2 {
        let detail = "may specify no more than one CIDR for each IP family";
        causes.invalid(&cidrs, detail);
    }
}

fn check_node_update(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let (new, old) = (new.child("spec"), old.child("spec"));
    for (name, text) in [("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
        if !old.child(name).is_zero() && !new.child(name).equals(&old.child(name)) {
            let detail = format!("node updates may not change {text} except from \"\" to valid");
            causes.forbidden(&new.child(name), &detail);
        }
    }
}

fn check_addresses(new: &Field<'_>, _: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for address in new.at(&["status", "addresses"]).items() {
        let key = (
            address.child("type").text(),
            address.child("address").text(),
        );
        if !seen.insert(key) {
            causes.push(StatusCause::duplicate(address.path(), address.value()));
        }
    }
    check_resources(new, causes);
}

/// Checks the resources of a node.
fn check_resources(node: &Field<'_>, causes: &mut Causes) {
    for list in ["capacity", "allocatable"] {
        let list = node.child("status").child(list);
        for (name, quantity) in list.entries() {
            causes.check_resource_quantity(name, &quantity.placed(&list.child(name)));
        }
    }
}
