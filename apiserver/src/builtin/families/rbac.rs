//! Roles and their bindings.

use serde_json::Value;

use revstore_watch_cache::registry::JsonObject;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        validate: |role, causes| check_rules(role, true, causes),
        ..role("Role")
    },
    Kind {
        validate: |role, causes| {
            check_rules(role, false, causes);
            let aggregation = role.child("aggregationRule");
            let selectors = aggregation.child("clusterRoleSelectors");
            if aggregation.is_set() && selectors.len() == 0 {
                let detail =
                    "at least one clusterRoleSelector required if aggregationRule is non-nil";
                causes.required(&selectors, detail);
            }
            for selector in selectors.items() {
                let before = causes.len();
                causes.check_selector(&selector);
                if causes.len() > before {
                    let detail = "invalid label selector.";
                    causes.invalid_at(selector.path(), Value::Null, detail);
                }
            }
        },
        ..role("ClusterRole")
    },
    Kind {
        default: default_binding,
        validate: |binding, causes| check_binding(binding, &["Role", "ClusterRole"], causes),
        validate_update: check_role_ref,
        ..role("RoleBinding")
    },
    Kind {
        default: default_binding,
        validate: |binding, causes| check_binding(binding, &["ClusterRole"], causes),
        validate_update: check_role_ref,
        ..role("ClusterRoleBinding")
    },
];

const fn role(kind: &'static str) -> Kind {
    let mut kind = Kind::new(GROUP, kind).creates_on_update();
    kind.name_error = names::path_segment_error;
    kind
}

fn default_binding(binding: &mut JsonObject) {
    if let Some(role) = edit::ensure(binding, "roleRef") {
        edit::set_zero(role, "apiGroup", GROUP);
    }
    for subject in edit::items_mut(binding, "subjects") {
        if ["User", "Group"].contains(&edit::text(subject, "kind")) {
            edit::set_zero(subject, "apiGroup", GROUP);
        }
    }
}

fn check_rules(role: &Field<'_>, namespaced: bool, causes: &mut Causes) {
    for rule in role.child("rules").items() {
        if rule.child("verbs").len() == 0 {
            causes.required(
                &rule.child("verbs"),
                "verbs must contain at least one value",
            );
        }
        let (groups, resources) = (rule.child("apiGroups"), rule.child("resources"));
        let urls = rule.child("nonResourceURLs");
        if urls.len() > 0 {
            if namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                causes.invalid(&urls, detail);
            }
            if groups.len() + resources.len() + rule.child("resourceNames").len() > 0 {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                causes.invalid(&urls, detail);
            }
            continue;
        }
        if groups.len() == 0 {
            let detail = "resource rules must supply at least one api group";
            causes.required(&groups, detail);
        }
        if resources.len() == 0 {
            let detail = "resource rules must supply at least one resource";
            causes.required(&resources, detail);
        }
    }
}

fn check_binding(binding: &Field<'_>, kinds: &[&str], causes: &mut Causes) {
    let role = binding.child("roleRef");
    let (group, kind, name) = (
        role.child("apiGroup"),
        role.child("kind"),
        role.child("name"),
    );
    if group.text() != GROUP {
        causes.not_supported(&group, &[GROUP]);
    }
    if !kinds.contains(&kind.text()) {
        causes.not_supported(&kind, kinds);
    }
    if causes.check_required(&name) {
        causes.check_text(&name, names::path_segment_error);
    }
    let namespaced = kinds.contains(&"Role");
    for subject in binding.child("subjects").items() {
        check_subject(&subject, namespaced, causes);
    }
}

fn check_subject(subject: &Field<'_>, namespaced: bool, causes: &mut Causes) {
    let (kind, name) = (subject.child("kind"), subject.child("name"));
    let group = subject.child("apiGroup");
    causes.check_required(&name);
    match kind.text() {
        "ServiceAccount" => {
            causes.check_text(&name, names::subdomain_error);
            if !group.text().is_empty() {
                causes.not_supported(&group, &[""]);
            }
            if !namespaced {
                causes.check_required(&subject.child("namespace"));
            }
        }
        "User" | "Group" => {
            if group.text() != GROUP {
                causes.not_supported(&group, &[GROUP]);
            }
        }
        _ => causes.not_supported(&kind, &["ServiceAccount", "User", "Group"]),
    }
}

fn check_role_ref(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let role = new.child("roleRef");
    if !role.equals(&old.child("roleRef")) {
        causes.invalid(&role, "cannot change roleRef");
    }
}
