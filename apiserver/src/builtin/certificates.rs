//! Certificate signing requests.

use serde_json::{Value, json};

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};

use super::causes::Causes;
use super::edit;
use super::field::Field;
use super::rules::Kind;

const GROUP: &str = "certificates.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name_error: super::names::path_segment_error,
        update: |new, old| edit::restore(new, old, "spec"),
        update_status: |new, old, now| {
            keep_approval(new, old);
            stamp_conditions(new, old, now);
        },
        validate: check_request,
        validate_update: |_, _, _| {},
        validate_status: |new, old, causes| {
            check_conditions(new, causes);
            check_kept(new, old, causes);
            check_certificate(new, old, causes);
        },
        ..Kind::new(GROUP, "CertificateSigningRequest").with_status()
    },
    Kind {
        validate: |bundle, causes| {
            causes.check_required(&bundle.at(&["spec", "trustBundle"]));
        },
        validate_update: |new, old, causes| {
            let path = ["spec", "signerName"];
            causes.check_immutable(&new.at(&path), &old.at(&path));
        },
        ..Kind::new(GROUP, "ClusterTrustBundle").conditional()
    },
    Kind::new(GROUP, "PodCertificateRequest")
        .conditional()
        .with_status(),
];

/// The types of conditions that decide about a request.
const APPROVAL: [&str; 2] = ["Approved", "Denied"];

/// The usages of keys.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Sets who requests a certificate, which the client cannot set.
pub fn set_requester(
    request: &mut JsonObject,
    username: &str,
    uid: &str,
    groups: &[String],
    extra: &[(String, Vec<String>)],
) {
    let Some(spec) = edit::ensure(request, "spec") else {
        return;
    };
    let extra: JsonObject = extra
        .iter()
        .map(|(key, values)| (key.clone(), json!(values)))
        .collect();
    for (name, value) in [
        ("username", json!(username)),
        ("uid", json!(uid)),
        ("groups", json!(groups)),
        ("extra", Value::Object(extra)),
    ] {
        spec.remove(name);
        edit::set_zero(spec, name, value);
        if spec.get(name).is_some_and(super::field::is_zero) {
            spec.remove(name);
        }
    }
}

/// Returns a request with the conditions of another version of it, which its approval subresource
/// receives.
///
/// # Errors
/// 422.
pub fn approve(
    old: &JsonObject,
    requested: &JsonObject,
    now: &str,
) -> Result<JsonObject, RequestError> {
    let mut new = old.clone();
    let conditions = edit::at(requested, &["status", "conditions"]).cloned();
    if let Some(status) = edit::ensure(&mut new, "status") {
        match conditions {
            Some(conditions) => status.insert("conditions".to_owned(), conditions),
            None => status.remove("conditions"),
        };
    }
    stamp_conditions(&mut new, old, now);
    let mut causes = Causes::default();
    let (after, before) = (Field::root(&new), Field::root(old));
    check_conditions(&after, &mut causes);
    for kind in ["Approved", "Denied", "Failed"] {
        check_not_removed(&after, &before, kind, &mut causes);
    }
    if causes.len() > 0 {
        let name = edit::text_at(old, &["metadata", "name"]);
        let kind = ResourceName::new(GROUP, "CertificateSigningRequest");
        return Err(Status::invalid(&kind, name, causes.into_vec()).into());
    }
    Ok(new)
}

fn conditions_of<'a>(request: &Field<'a>, kind: &str) -> Vec<Field<'a>> {
    let conditions = request.at(&["status", "conditions"]).items();
    conditions
        .filter(|condition| condition.child("type").text() == kind)
        .collect()
}

/// Keeps the conditions that only the approval subresource may change.
fn keep_approval(new: &mut JsonObject, old: &JsonObject) {
    let kept: Vec<Value> = APPROVAL
        .iter()
        .flat_map(|kind| conditions_of(&Field::root(old), kind))
        .map(|condition| condition.value())
        .collect();
    if kept.is_empty() {
        return;
    }
    if let Some(status) = edit::ensure(new, "status") {
        edit::set_unset(status, "conditions", json!([]));
        if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
            for condition in kept {
                let has = |has: &&mut Value| has["type"] == condition["type"];
                match conditions.iter_mut().find(has) {
                    Some(existing) => {
                        // Times that the client left out are those of before.
                        for time in ["lastUpdateTime", "lastTransitionTime"] {
                            if existing[time].is_null() {
                                existing[time] = condition[time].clone();
                            }
                        }
                    }
                    None => conditions.push(condition),
                }
            }
        }
    }
}

/// Sets the times of new conditions.
fn stamp_conditions(new: &mut JsonObject, old: &JsonObject, now: &str) {
    let before: Vec<Value> = Field::root(old)
        .at(&["status", "conditions"])
        .items()
        .map(|condition| condition.value())
        .collect();
    let Some(status) = edit::child_mut(new, "status") else {
        return;
    };
    for condition in edit::items_mut(status, "conditions") {
        edit::set_unset(condition, "lastUpdateTime", now);
        if condition
            .get("lastTransitionTime")
            .is_none_or(Value::is_null)
        {
            let kind = edit::text(condition, "type");
            let state = edit::text(condition, "status");
            let same = before
                .iter()
                .find(|old| old["type"] == kind && old["status"] == state);
            let time = same.map_or(Value::Null, |same| same["lastTransitionTime"].clone());
            let time = if time.is_null() { now.into() } else { time };
            condition.insert("lastTransitionTime".to_owned(), time);
        }
    }
}

fn check_request(request: &Field<'_>, causes: &mut Causes) {
    use base64::Engine as _;
    let spec = request.child("spec");
    let body = spec.child("request");
    let decoded = base64::engine::general_purpose::STANDARD
        .decode(body.text())
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&decoded);
    if !text.contains("-----BEGIN CERTIFICATE REQUEST-----") {
        causes.invalid(&body, "PEM block type must be CERTIFICATE REQUEST");
    }
    let usages = spec.child("usages");
    causes.check_required(&usages);
    let mut seen = std::collections::HashSet::new();
    for usage in usages.items() {
        causes.check_one_of(&usage, &USAGES);
        causes.check_unique(&usage, &mut seen);
    }
    let signer = spec.child("signerName");
    if causes.check_required(&signer) {
        check_signer(&signer, causes);
    }
    causes.check_min(
        &spec.child("expirationSeconds"),
        600,
        "may not specify a duration less than 600 seconds (10 minutes)",
    );
}

fn check_signer(signer: &Field<'_>, causes: &mut Causes) {
    let text = signer.text();
    let Some((domain, _)) = text.split_once('/') else {
        let detail = "must be a fully qualified domain and path of the form \
                      'example.com/signer-name'";
        causes.invalid(signer, detail);
        return;
    };
    if domain.split('.').count() < 2 {
        let detail = "should be a domain with at least two segments separated by dots";
        causes.invalid(signer, detail);
    }
    if text == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        causes.invalid(signer, detail);
    }
}

fn check_conditions(request: &Field<'_>, causes: &mut Causes) {
    let list = request.at(&["status", "conditions"]);
    let mut seen = std::collections::HashSet::new();
    for condition in list.items() {
        let (kind, state) = (condition.child("type"), condition.child("status"));
        causes.check_required(&kind);
        let states: &[&str] = if ["Approved", "Denied", "Failed"].contains(&kind.text()) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        causes.check_required_one_of(&state, states);
        let other = APPROVAL.iter().find(|other| **other != kind.text());
        if APPROVAL.contains(&kind.text()) && other.is_some_and(|other| seen.contains(other)) {
            causes.push(StatusCause::invalid(
                list.path(),
                kind.text(),
                "Approved and Denied conditions are mutually exclusive",
            ));
        }
        causes.check_unique(&kind, &mut seen);
    }
}

fn check_not_removed(new: &Field<'_>, old: &Field<'_>, kind: &str, causes: &mut Causes) {
    if conditions_of(new, kind).len() < conditions_of(old, kind).len() {
        let detail = format!("updates may not remove a condition of type {kind:?}");
        causes.forbidden(&new.at(&["status", "conditions"]), &detail);
    }
}

fn check_kept(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    for kind in ["Approved", "Denied", "Failed"] {
        check_not_removed(new, old, kind, causes);
    }
    for kind in APPROVAL {
        let (after, before) = (conditions_of(new, kind), conditions_of(old, kind));
        let changed = after.iter().zip(&before).any(|(new, old)| !new.equals(old));
        let verb = if after.len() > before.len() {
            "add"
        } else if changed {
            "modify"
        } else {
            continue;
        };
        let detail = format!("updates may not {verb} a condition of type {kind:?}");
        causes.forbidden(&new.at(&["status", "conditions"]), &detail);
    }
}

fn check_certificate(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    use base64::Engine as _;
    let path = ["status", "certificate"];
    let (certificate, before) = (new.at(&path), old.at(&path));
    if certificate.text().is_empty() || certificate.equals(&before) {
        return;
    }
    let decoded = base64::engine::general_purpose::STANDARD
        .decode(certificate.text())
        .unwrap_or_default();
    if !String::from_utf8_lossy(&decoded).contains("-----BEGIN CERTIFICATE-----") {
        causes.invalid_at(
            certificate.path(),
            "<certificate data>",
            "must contain at least one CERTIFICATE PEM block",
        );
    }
    if !before.text().is_empty() {
        let detail = "updates may not modify existing certificate content";
        causes.forbidden(&certificate, detail);
    }
}
