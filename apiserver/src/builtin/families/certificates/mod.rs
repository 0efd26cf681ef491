//! Certificate signing requests.

mod request;

use std::collections::HashMap;

use serde_json::{Value, json};

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause, quoted};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::pem;
use crate::builtin::rules::Kind;

pub(crate) use request::CertificateRequest;

const GROUP: &str = "certificates.k8s.io";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name_error: crate::builtin::names::path_segment_error,
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

/// The maximum length of the name of a signer: those of a domain and of two names in it.
const SIGNER_BYTES_MAX: usize = 571;
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
        if spec.get(name).is_some_and(crate::builtin::field::is_zero) {
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

/// Keeps the conditions that only the approval subresource may change. If there are more or fewer of them than before, the
/// validation refuses it.
fn keep_approval(new: &mut JsonObject, old: &JsonObject) {
    for kind in APPROVAL {
        let kept = conditions_of(&Field::root(old), kind);
        if conditions_of(&Field::root(new), kind).len() != kept.len() {
            continue;
        }
        let mut kept = kept.into_iter();
        let Some(status) = edit::child_mut(new, "status") else {
            return;
        };
        for condition in edit::items_mut(status, "conditions") {
            if edit::text(condition, "type") == kind
                && let Some(Value::Object(before)) = kept.next().map(|before| before.value())
            {
                *condition = before;
            }
        }
    }
}

/// Sets the times of new conditions.
fn stamp_conditions(new: &mut JsonObject, old: &JsonObject, now: &str) {
    let mut before: HashMap<(&str, &str), &Value> = HashMap::new();
    let conditions = edit::at(old, &["status", "conditions"]).and_then(Value::as_array);
    for condition in conditions.into_iter().flatten() {
        if let (Some(kind), Some(state)) =
            (condition["type"].as_str(), condition["status"].as_str())
        {
            let time = &condition["lastTransitionTime"];
            before.entry((kind, state)).or_insert(time);
        }
    }
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
            let time = before.get(&(kind, state)).filter(|time| !time.is_null());
            let time = time.map_or_else(|| now.into(), |time| (*time).clone());
            condition.insert("lastTransitionTime".to_owned(), time);
        }
    }
}

fn check_request(request: &Field<'_>, causes: &mut Causes) {
    let spec = request.child("spec");
    let body = spec.child("request");
    let checked = CertificateRequest::parse(body.text()).and_then(|request| {
        let checked = request.check_signature();
        checked.map_err(str::to_owned)
    });
    if let Err(detail) = checked {
        causes.invalid_at(body.path(), body.text(), &detail);
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
    if text == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        return causes.invalid(signer, detail);
    }
    let Some((domain, path)) = text.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form \
                      'example.com/signer-name'";
        return causes.invalid(signer, detail);
    };
    let too_long = |bytes| StatusCause::too_long(signer.path(), bytes);
    if domain.len() > names::SUBDOMAIN_BYTES_MAX {
        causes.push(too_long(names::SUBDOMAIN_BYTES_MAX));
    }
    check_labels(signer, domain, names::dns_label_error, causes);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        causes.invalid_at(signer.path(), domain, detail);
    }
    check_labels(signer, path, names::subdomain_error, causes);
    if text.len() > SIGNER_BYTES_MAX {
        causes.push(too_long(SIGNER_BYTES_MAX));
    }
}

/// Checks the labels of a part of the name of a signer, until the first error: further ones say the same.
fn check_labels(
    signer: &Field<'_>,
    part: &str,
    error: fn(&str) -> Option<String>,
    causes: &mut Causes,
) {
    let mut errors = part.split('.').filter_map(|label| {
        let error = error(label)?;
        Some(format!("validating label {}: {error}", quoted(label)))
    });
    if let Some(detail) = errors.next() {
        causes.invalid_at(signer.path(), part, &detail);
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
    let path = ["status", "certificate"];
    let (certificate, before) = (new.at(&path), old.at(&path));
    if certificate.text() == before.text() {
        return;
    }
    if let Err(detail) = chain_error(certificate.text()) {
        causes.invalid_at(certificate.path(), "<certificate data>", &detail);
    }
    if !before.text().is_empty() {
        let detail = "updates may not modify existing certificate content";
        causes.forbidden(&certificate, detail);
    }
}

/// Checks certificates in PEM in base64.
fn chain_error(text: &str) -> Result<(), String> {
    use base64::Engine as _;
    if text.is_empty() {
        return Ok(());
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    let decoded = decoded.unwrap_or_default();
    let decoded = String::from_utf8_lossy(&decoded);
    let mut rest: &str = &decoded;
    let mut blocks = 0;
    while let Some((block, after)) = pem::first(rest) {
        if block.kind != "CERTIFICATE" {
            let kind = quoted(block.kind);
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {kind}"
            ));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if Certificate::from_der(&block.content).is_err() {
            return Err("x509: malformed certificate".to_owned());
        }
        blocks += 1;
        rest = after;
    }
    if blocks == 0 {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}
