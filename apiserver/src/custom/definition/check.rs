//! The rules for the spec of a definition.

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{FieldPath, StatusCause};
use serde_json::{Value, json};

use super::approval::{APPROVAL, Approval, annotation, is_protected};
use super::{Names, priority};
use crate::custom::definition::version::list::{check_versions, list, text};
use crate::custom::schema::Causes;
use crate::custom::text::{label_error, subdomain_error};
use crate::webhook::{bundle_error, place_errors};

/// Returns what is wrong with a new definition.
pub(super) fn check_create(definition: &JsonObject) -> Vec<StatusCause> {
    let mut causes = Causes::default();
    let empty = json!({});
    let spec = definition.get("spec").unwrap_or(&empty);
    let names = Names::parse(spec.get("names"));
    let name = metadata_text(definition, "name");
    if !name.is_empty() && name != format!("{}.{}", names.plural, text(spec, "group")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(StatusCause::invalid("metadata.name", name, detail));
    }
    check_spec(spec, &mut causes);
    // A definition that is not established may have any bundle.
    check_conversion(conversion(spec), CheckedBundle::Any, true, &mut causes);
    check_approval(definition, None, &mut causes);
    causes.extend(check_status(definition, spec));
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        causes.push(preserves_unknown());
    }
    causes.into_unique()
}

/// Returns what is wrong with a new version of a definition.
pub(super) fn check_update(new: &JsonObject, old: &JsonObject) -> Vec<StatusCause> {
    let mut causes = Causes::default();
    let empty = json!({});
    let (spec, before) = (
        new.get("spec").unwrap_or(&empty),
        old.get("spec").unwrap_or(&empty),
    );
    check_spec(spec, &mut causes);
    let is_established = super::condition(old, "Established") == Some("True");
    let previous = conversion(before);
    let bundle = if !is_established || bundle_cause(previous).is_some() {
        CheckedBundle::Any
    } else {
        CheckedBundle::Readable
    };
    let reviews = reviews(previous);
    let is_recognized = reviews.is_empty() || reviews.iter().any(is_accepted_review);
    check_conversion(conversion(spec), bundle, is_recognized, &mut causes);
    let names = |spec: &Value, name: &str| {
        spec.get("names")
            .map_or("", |names| text(names, name))
            .to_owned()
    };
    let mut unchanged = vec![
        (
            "spec.group",
            text(spec, "group").to_owned(),
            text(before, "group").to_owned(),
        ),
        (
            "spec.names.plural",
            names(spec, "plural"),
            names(before, "plural"),
        ),
    ];
    if is_established {
        unchanged.push((
            "spec.scope",
            text(spec, "scope").to_owned(),
            text(before, "scope").to_owned(),
        ));
        unchanged.push((
            "spec.names.kind",
            names(spec, "kind"),
            names(before, "kind"),
        ));
    }
    for (field, value, before) in unchanged {
        if value != before {
            causes.push(StatusCause::invalid(field, value, "field is immutable"));
        }
    }
    check_approval(new, Some(old), &mut causes);
    causes.extend(check_status(new, spec));
    let preserves = |spec: &Value| spec.get("preserveUnknownFields") == Some(&Value::Bool(true));
    if preserves(spec) && !preserves(before) {
        causes.push(preserves_unknown());
    }
    causes.into_unique()
}

/// Returns what is wrong with the status of a definition, for its versions.
fn check_status(definition: &JsonObject, spec: &Value) -> Vec<StatusCause> {
    let mut causes = Causes::default();
    let status = definition.get("status").unwrap_or(&Value::Null);
    check_accepted(status, &mut causes);
    let field = "status.storedVersions";
    let stored: Vec<&str> = list(status, "storedVersions")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if stored.is_empty() {
        causes.push(StatusCause::invalid(
            field,
            json!([]),
            "must have at least one stored version",
        ));
        return causes.into_unique();
    }
    let versions: Vec<&str> = list(spec, "versions")
        .iter()
        .map(|version| text(version, "name"))
        .collect();
    for version in list(spec, "versions") {
        let name = text(version, "name");
        if version["storage"] == true && !stored.contains(&name) {
            let detail = format!("must have the storage version {name}");
            causes.push(StatusCause::invalid(field, json!(stored), &detail));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            causes.push(StatusCause::invalid(
                FieldPath::new(field).index(index),
                *name,
                &detail,
            ));
        }
    }
    causes.into_unique()
}

/// Adds what is wrong with the accepted names.
pub(super) fn check_accepted(status: &Value, causes: &mut Causes) {
    let names = Names::parse(status.get("acceptedNames"));
    check_names(&names, &FieldPath::new("status.acceptedNames"), causes);
}

fn preserves_unknown() -> StatusCause {
    let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                  spec.versions[*].schema instead";
    StatusCause::invalid("spec.preserveUnknownFields", true, detail)
}

fn metadata_text<'a>(definition: &'a JsonObject, name: &str) -> &'a str {
    definition
        .get("metadata")
        .map_or("", |metadata| text(metadata, name))
}

fn check_spec(spec: &Value, causes: &mut Causes) {
    let group = text(spec, "group");
    let path = || FieldPath::new("spec");
    if group.is_empty() {
        causes.push(StatusCause::required("spec.group", ""));
    } else if let Some(error) = subdomain_error(group) {
        causes.push(StatusCause::invalid("spec.group", group, &error));
    } else if !group.contains('.') {
        causes.push(StatusCause::invalid(
            "spec.group",
            group,
            "should be a domain with at least one dot",
        ));
    }
    match text(spec, "scope") {
        "" => causes.push(StatusCause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => causes.push(StatusCause::not_supported(
            "spec.scope",
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    check_versions(spec, causes);
    let versions = list(spec, "versions");
    let mut names: Vec<&str> = versions
        .iter()
        .map(|version| text(version, "name"))
        .collect();
    let count = names.len();
    names.sort_by(|one, other| priority::compare(one, other));
    names.dedup();
    let shown = || spec.get("versions").cloned().unwrap_or_else(|| json!([]));
    if names.len() != count {
        causes.push(StatusCause::invalid(
            "spec.versions",
            shown(),
            "must contain unique version names",
        ));
    }
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        let detail = "must have exactly one version marked as storage version";
        causes.push(StatusCause::invalid("spec.versions", shown(), detail));
    }
    if let Some(first) = versions.first()
        && !text(first, "name").is_empty()
        && let Some(error) = label_error(text(first, "name"))
    {
        causes.push(StatusCause::invalid(
            "spec.version",
            text(first, "name"),
            &error,
        ));
    }
    let names = Names::parse(spec.get("names"));
    let names_path = || path().child("names");
    for (name, value) in [
        ("plural", &names.plural),
        ("singular", &names.singular),
        ("kind", &names.kind),
        ("listKind", &names.list_kind),
    ] {
        if value.is_empty() {
            causes.push(StatusCause::required(names_path().child(name), ""));
        }
    }
    check_names(&names, &names_path(), causes);
}

fn check_names(names: &Names, path: &FieldPath, causes: &mut Causes) {
    for (name, value) in [("plural", &names.plural), ("singular", &names.singular)] {
        if let Some(error) = label_error(value)
            && !value.is_empty()
        {
            causes.push(StatusCause::invalid(
                path.clone().child(name),
                value.as_str(),
                &error,
            ));
        }
    }
    for (name, value) in [("kind", &names.kind), ("listKind", &names.list_kind)] {
        if let Some(error) = label_error(&value.to_lowercase())
            && !value.is_empty()
        {
            let detail = format!("may have mixed case, but should otherwise match: {error}");
            causes.push(StatusCause::invalid(
                path.clone().child(name),
                value.as_str(),
                &detail,
            ));
        }
    }
    for (name, values) in [
        ("shortNames", &names.short_names),
        ("categories", &names.categories),
    ] {
        for (index, value) in values.iter().enumerate() {
            if let Some(error) = label_error(value) {
                let field = path.clone().child(name).index(index);
                causes.push(StatusCause::invalid(field, value.as_str(), &error));
            }
        }
    }
    if !names.kind.is_empty() && names.kind == names.list_kind {
        let detail = "kind and listKind may not be the same";
        causes.push(StatusCause::invalid(
            path.clone().child("listKind"),
            names.list_kind.as_str(),
            detail,
        ));
    }
}

/// Which bundles of certificates a conversion may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckedBundle {
    Any,
    Readable,
}

fn conversion(spec: &Value) -> &Value {
    spec.get("conversion").unwrap_or(&Value::Null)
}

fn reviews(conversion: &Value) -> &[Value] {
    list(
        conversion.get("webhook").unwrap_or(&Value::Null),
        "conversionReviewVersions",
    )
}

fn is_accepted_review(version: &Value) -> bool {
    version == "v1" || version == "v1beta1"
}

/// Returns what is wrong with the certificates of the webhook of a conversion.
fn bundle_cause(conversion: &Value) -> Option<StatusCause> {
    let client = conversion.get("webhook")?.get("clientConfig")?;
    let path = client_path().child("caBundle");
    bundle_error(path, text(client, "caBundle"))
}

fn client_path() -> FieldPath {
    FieldPath::new("spec.conversion").child("webhookClientConfig")
}

/// Checks the conversion between versions. `needs_review` says whether one of the versions of reviews must be one that
/// the server speaks.
fn check_conversion(
    conversion: &Value,
    bundle: CheckedBundle,
    needs_review: bool,
    causes: &mut Causes,
) {
    let path = || FieldPath::new("spec.conversion");
    if conversion.is_null() {
        return;
    }
    let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
    let client = webhook.get("clientConfig").unwrap_or(&Value::Null);
    let reviews = reviews(conversion);
    let reviews_path = || path().child("conversionReviewVersions");
    match text(conversion, "strategy") {
        "Webhook" => {}
        strategy => {
            match strategy {
                "" => causes.push(StatusCause::required(path().child("strategy"), "")),
                "None" => {}
                other => {
                    let supported = ["None", "Webhook"];
                    causes.push(StatusCause::not_supported(
                        path().child("strategy"),
                        other,
                        &supported,
                    ));
                }
            }
            let detail = "should not be set when strategy is not set to Webhook";
            if !client.is_null() {
                causes.push(StatusCause::forbidden(client_path(), detail));
            }
            if !reviews.is_empty() {
                causes.push(StatusCause::forbidden(reviews_path(), detail));
            }
            return;
        }
    }
    if client.is_null() {
        causes.push(StatusCause::required(
            client_path(),
            "required when strategy is set to Webhook",
        ));
    } else {
        causes.extend(place_errors(&client_path(), client));
        if bundle == CheckedBundle::Readable {
            causes.extend(bundle_cause(conversion));
        }
    }
    if reviews.is_empty() {
        causes.push(StatusCause::required(reviews_path(), ""));
    }
    for (index, review) in reviews.iter().enumerate() {
        let name = review.as_str().unwrap_or_default();
        let field = reviews_path().index(index);
        if reviews[..index].contains(review) {
            causes.push(StatusCause::invalid(field, name, "duplicate version"));
        } else if let Some(error) = label_error(name) {
            causes.push(StatusCause::invalid(field, name, &error));
        }
    }
    if needs_review && !reviews.is_empty() && !reviews.iter().any(is_accepted_review) {
        let detail = "must include at least one of v1, v1beta1";
        causes.push(StatusCause::invalid(reviews_path(), json!(reviews), detail));
    }
}

/// Checks that a definition in a group of Kubernetes says where it was approved.
fn check_approval(new: &JsonObject, old: Option<&JsonObject>, causes: &mut Causes) {
    let found = Approval::of(new);
    if !is_protected(new) || old.is_some_and(|old| Approval::of(old) == found) {
        return;
    }
    let field = FieldPath::new("metadata.annotations").key(APPROVAL);
    let detail = found.message(new);
    match found {
        Approval::Missing => causes.push(StatusCause::required(field, &detail)),
        Approval::Invalid => {
            causes.push(StatusCause::invalid(field, annotation(new), &detail));
        }
        Approval::Bypassed | Approval::Approved => {}
    }
}
