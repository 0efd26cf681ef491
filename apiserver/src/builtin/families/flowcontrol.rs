//! Flow schemas and priority levels.

use std::collections::BTreeSet;

use serde_json::json;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::families::flow_objects::FlowObject;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        default: |schema| {
            if let Some(spec) = edit::ensure(schema, "spec") {
                edit::set_zero(spec, "matchingPrecedence", 1000);
            }
        },
        validate: check_schema,
        validate_status: |schema, _, causes| check_status(schema, causes),
        status_keeps_metadata: true,
        ..Kind::new(GROUP, "FlowSchema")
            .with_status()
            .with_generation()
    },
    Kind {
        default: default_level,
        validate: check_level,
        validate_status: |level, _, causes| check_status(level, causes),
        status_keeps_metadata: true,
        ..Kind::new(GROUP, "PriorityLevelConfiguration")
            .with_status()
            .with_generation()
    },
];

fn default_level(level: &mut JsonObject) {
    let Some(spec) = edit::child_mut(level, "spec") else {
        return;
    };
    if let Some(exempt) = edit::child_mut(spec, "exempt") {
        edit::set_unset(exempt, "nominalConcurrencyShares", 0);
        edit::set_unset(exempt, "lendablePercent", 0);
    }
    if let Some(limited) = edit::child_mut(spec, "limited") {
        edit::set_unset(limited, "nominalConcurrencyShares", 30);
        edit::set_unset(limited, "lendablePercent", 0);
        let queuing = edit::child_mut(limited, "limitResponse")
            .and_then(|response| edit::child_mut(response, "queuing"));
        if let Some(queuing) = queuing {
            edit::set_zero(queuing, "handSize", 8);
            edit::set_zero(queuing, "queues", 64);
            edit::set_zero(queuing, "queueLengthLimit", 50);
        }
    }
}

fn check_schema(schema: &Field<'_>, causes: &mut Causes) {
    let spec = schema.child("spec");
    let precedence = spec.child("matchingPrecedence");
    causes.check_min(&precedence, 1, "must be a positive value");
    causes.check_range(
        &precedence,
        i64::MIN,
        10_000,
        "must not be greater than 10000",
    );
    let exempt = schema.at(&["metadata", "name"]).text() == "exempt";
    if precedence.int() == Some(1) && !exempt {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        causes.invalid(&precedence, detail);
    }
    let method = spec.child("distinguisherMethod");
    let kind = method.child("type");
    if method.is_set() && !["ByNamespace", "ByUser"].contains(&kind.text()) {
        let shown = json!({"Type": kind.text()});
        let supported = ["ByNamespace", "ByUser"];
        causes.push(StatusCause::not_supported(kind.path(), shown, &supported));
    }
    let name = spec.at(&["priorityLevelConfiguration", "name"]);
    if name.text().is_empty() {
        causes.required(&name, "must reference a priority level");
    }
    causes.check_text(&name, names::subdomain_error);
    for rule in spec.child("rules").items() {
        check_rule(&rule, causes);
    }
    let fixed = "must equal the fixed value";
    check_fixed("FlowSchema", schema, fixed, causes);
    check_status(schema, causes);
}

/// Checks that an object that the server keeps has the specification that it must have.
fn check_fixed(kind: &str, object: &Field<'_>, what: &str, causes: &mut Causes) {
    let name = object.at(&["metadata", "name"]).text();
    let spec = object.child("spec");
    let Some(fixed) = FlowObject::mandatory(kind, name) else {
        return;
    };
    if !fixed.has_spec(&spec.value()) {
        causes.invalid(&spec, &format!("spec of '{name}' {what}"));
    }
}

/// Checks that each condition has a type of its own.
fn check_status(object: &Field<'_>, causes: &mut Causes) {
    let mut types = BTreeSet::new();
    for condition in object.at(&["status", "conditions"]).items() {
        let kind = condition.child("type");
        if !types.insert(kind.text()) {
            causes.duplicate(&kind);
        }
        causes.check_required(&kind);
    }
}

fn check_rule(rule: &Field<'_>, causes: &mut Causes) {
    let subjects = rule.child("subjects");
    if subjects.len() == 0 {
        let detail = "subjects must contain at least one value";
        causes.required(&subjects, detail);
    }
    for subject in subjects.items() {
        check_subject(&subject, causes);
    }
    let (resources, urls) = (rule.child("resourceRules"), rule.child("nonResourceRules"));
    if resources.len() + urls.len() == 0 {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        causes.required(rule, detail);
    }
    for rule in resources.items() {
        check_resource_rule(&rule, causes);
    }
    for rule in urls.items() {
        check_url_rule(&rule, causes);
    }
}

/// The kinds of subjects, with the members that name them.
const SUBJECTS: [(&str, &str); 3] = [
    ("Group", "group"),
    ("ServiceAccount", "serviceAccount"),
    ("User", "user"),
];
/// The order in which the members of other kinds are reported.
const MEMBERS: [&str; 3] = ["serviceAccount", "user", "group"];

fn check_subject(subject: &Field<'_>, causes: &mut Causes) {
    let kind = subject.child("kind");
    let Some((_, member)) = SUBJECTS.iter().find(|(name, _)| *name == kind.text()) else {
        causes.not_supported(&kind, &SUBJECTS.map(|(name, _)| name));
        return;
    };
    let named = subject.child(member);
    if named.is_set() {
        check_subject_name(&named, causes);
    } else {
        let detail = format!(
            "{member} is required when subject kind is '{}'",
            kind.text()
        );
        causes.required(&named, &detail);
    }
    for other in MEMBERS.iter().filter(|other| *other != member) {
        let field = subject.child(other);
        let of = SUBJECTS.iter().find(|(_, member)| member == other);
        if let (true, Some((of, _))) = (field.is_set(), of) {
            let detail = format!("{other} is forbidden when subject kind is not '{of}'");
            causes.forbidden(&field, &detail);
        }
    }
}

fn check_subject_name(subject: &Field<'_>, causes: &mut Causes) {
    let (name, namespace) = (subject.child("name"), subject.child("namespace"));
    let named = causes.check_required(&name);
    if !subject.path().to_string().ends_with("serviceAccount") {
        return;
    }
    if named && name.text() != "*" {
        causes.check_text(&name, names::subdomain_error);
    }
    if namespace.text().is_empty() {
        causes.required(&namespace, "must specify namespace for service account");
    }
    causes.check_text(&namespace, names::dns_label_error);
}

/// The verbs of requests for resources and for other URLs.
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

fn has_wildcard(list: &Field<'_>) -> bool {
    list.items().any(|item| item.text() == "*")
}

/// Checks that a wildcard stands alone. Returns whether there is one.
fn check_wildcard(list: &Field<'_>, what: &str, causes: &mut Causes) -> bool {
    let found = has_wildcard(list);
    if found && list.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {what}");
        causes.invalid(list, &detail);
    }
    found
}

fn check_verbs(verbs: &Field<'_>, causes: &mut Causes) {
    if verbs.len() == 0 {
        causes.required(verbs, "verbs must contain at least one value");
    } else if !check_wildcard(verbs, "verbs", causes)
        && verbs.items().any(|verb| !VERBS.contains(&verb.text()))
    {
        causes.not_supported(verbs, &VERBS);
    }
}

fn check_resource_rule(rule: &Field<'_>, causes: &mut Causes) {
    check_verbs(&rule.child("verbs"), causes);
    for (name, required, what) in [
        (
            "apiGroups",
            "resource rules must supply at least one api group",
            "api groups",
        ),
        (
            "resources",
            "resource rules must supply at least one resource",
            "resources",
        ),
    ] {
        let list = rule.child(name);
        if list.len() == 0 {
            causes.required(&list, required);
        }
        check_wildcard(&list, what, causes);
    }
    let namespaces = rule.child("namespaces");
    if namespaces.len() == 0 && !rule.child("clusterScope").flag() {
        let detail =
            "resource rules that are not cluster scoped must supply at least one namespace";
        causes.required(&namespaces, detail);
    } else if !check_wildcard(&namespaces, "namespaces", causes) {
        for namespace in namespaces.items() {
            if let Some(detail) = names::dns_label_error(namespace.text()) {
                let detail =
                    format!("each member of this list must be '*' or a DNS-1123 label; {detail}");
                causes.invalid(&namespace, &detail);
            }
        }
    }
}

fn check_url_rule(rule: &Field<'_>, causes: &mut Causes) {
    check_verbs(&rule.child("verbs"), causes);
    let urls = rule.child("nonResourceURLs");
    if urls.len() == 0 {
        let detail = "nonResourceURLs must contain at least one value";
        causes.required(&urls, detail);
    } else if !check_wildcard(&urls, "non-resource URLs", causes) {
        for url in urls.items() {
            causes.check_present_text(&url, url_error);
        }
    }
}

fn url_error(path: &str) -> Option<String> {
    let wildcards = path.matches('*').count();
    let detail = if path.is_empty() {
        "must not be empty"
    } else if !path.starts_with('/') {
        "must start with slash"
    } else if path.contains(' ') {
        "must not contain white-space"
    } else if path.contains("//") {
        "must not contain double slash"
    } else if wildcards > 1 || wildcards == 1 && !path.ends_with("/*") {
        "wildcard can only do suffix matching"
    } else {
        return None;
    };
    Some(detail.to_owned())
}

/// The annotation with which objects of version v1beta3 say that they have no shares.
const NO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

fn check_level(level: &Field<'_>, causes: &mut Causes) {
    let annotations = level.at(&["metadata", "annotations"]);
    if annotations.child(NO_SHARES).is_set() {
        let detail = format!("annotation '{NO_SHARES}' is forbidden");
        causes.forbidden(&annotations, &detail);
    }
    let spec = level.child("spec");
    let (kind, limited, exempt) = (
        spec.child("type"),
        spec.child("limited"),
        spec.child("exempt"),
    );
    let is_exempt = level.at(&["metadata", "name"]).text() == "exempt";
    if is_exempt != (kind.text() == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        causes.invalid_at(kind.path(), kind.text(), detail);
    }
    match kind.text() {
        "Exempt" => {
            if limited.is_set() {
                causes.forbidden(&limited, "must be nil if the type is not Limited");
            }
            check_shares(&exempt, causes);
            check_lendable(&exempt, causes);
        }
        "Limited" => {
            if exempt.is_set() {
                causes.forbidden(&exempt, "must be nil if the type is Limited");
            }
            if limited.is_set() {
                check_limited(&limited, causes);
            } else {
                let detail = "must not be empty when type is Limited";
                causes.required(&limited, detail);
            }
        }
        _ => causes.check_required_one_of(&kind, &["Exempt", "Limited"]),
    }
    let fixed = if is_exempt {
        "except the 'spec.exempt' field must equal the fixed value"
    } else {
        "must equal the fixed value"
    };
    check_fixed("PriorityLevelConfiguration", level, fixed, causes);
    check_status(level, causes);
}

fn check_shares(level: &Field<'_>, causes: &mut Causes) {
    let shares = level.child("nominalConcurrencyShares");
    causes.check_min(&shares, 0, "must be a non-negative integer");
}

fn check_lendable(level: &Field<'_>, causes: &mut Causes) {
    let percent = level.child("lendablePercent");
    causes.check_range(&percent, 0, 100, "must be between 0 and 100, inclusive");
}

fn check_limited(limited: &Field<'_>, causes: &mut Causes) {
    check_shares(limited, causes);
    let response = limited.child("limitResponse");
    let (kind, queuing) = (response.child("type"), response.child("queuing"));
    match kind.text() {
        "Reject" => {
            if queuing.is_set() {
                let detail = "must be nil if limited.limitResponse.type is not Limited";
                causes.forbidden(&queuing, detail);
            }
        }
        "Queue" if queuing.is_set() => check_queuing(&queuing, causes),
        "Queue" => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            causes.required(&queuing, detail);
        }
        _ => causes.check_required_one_of(&kind, &["Queue", "Reject"]),
    }
    check_lendable(limited, causes);
    causes.check_min(
        &limited.child("borrowingLimitPercent"),
        0,
        "if specified, must be a non-negative integer",
    );
}

/// The maximum number of queues of a level.
const QUEUES_MAX: i64 = 10_000_000;
/// The number of random bits from which the queues of a flow are chosen.
const HASH_BITS: f64 = 60.0;

fn check_queuing(queuing: &Field<'_>, causes: &mut Causes) {
    let (queues, hand) = (queuing.child("queues"), queuing.child("handSize"));
    let number = |field: &Field<'_>| field.int().unwrap_or_default();
    let length = queuing.child("queueLengthLimit");
    for field in [length, queues] {
        if number(&field) <= 0 {
            causes.invalid_at(field.path(), number(&field), "must be positive");
        }
    }
    if number(&queues) > QUEUES_MAX {
        let detail = format!("must not be greater than {QUEUES_MAX}");
        causes.invalid(&queues, &detail);
    }
    let (deck, size) = (number(&queues), number(&hand));
    if size <= 0 {
        causes.invalid_at(hand.path(), size, "must be positive");
    } else if size > deck {
        let detail = format!("should not be greater than queues ({deck})");
        causes.invalid(&hand, &detail);
    } else if takes_too_many_bits(deck, size) {
        let detail = format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater than \
             {HASH_BITS}"
        );
        causes.invalid(&hand, &detail);
    }
}

/// Returns whether it takes too many random bits to deal some of a number of cards. Upstream estimates the
/// bits in the same way.
fn takes_too_many_bits(deck: i64, size: i64) -> bool {
    let float = |number: i64| i32::try_from(number).map_or(f64::INFINITY, f64::from);
    (float(deck).log2() * float(size)).ceil() > HASH_BITS
}
