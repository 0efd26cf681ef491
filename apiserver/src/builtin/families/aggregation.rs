//! The registrations of aggregated API servers.

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;
use crate::custom::text::label_error;

/// The largest priorities of a group and of a version.
const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;

pub(super) const KINDS: &[Kind] = &[Kind {
    name_error: names::path_segment_error,
    validate: check_service,
    ..Kind::new("apiregistration.k8s.io", "APIService")
        .conditional()
        .with_status()
}];

fn check_service(object: &Field<'_>, causes: &mut Causes) {
    let spec = object.child("spec");
    let (group, version) = (spec.child("group"), spec.child("version"));
    let name = object.at(&["metadata", "name"]);
    let required = format!("{}.{}", version.text(), group.text());
    // The store reports that there is no name.
    if !name.text().is_empty() && name.text() != required {
        let detail = format!(
            "must be `spec.version+\".\"+spec.group`: {}",
            revstore_watch_cache::status::quoted(&required)
        );
        causes.invalid(&name, &detail);
    }
    if group.text().is_empty() && version.text() != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        causes.required(&group, detail);
    }
    causes.check_text(&group, names::subdomain_error);
    if let Some(detail) = label_error(version.text()) {
        causes.invalid_at(version.path(), version.text(), &detail);
    }
    for (name, max) in [
        ("groupPriorityMinimum", GROUP_PRIORITY_MAX),
        ("versionPriority", VERSION_PRIORITY_MAX),
    ] {
        let priority = spec.child(name);
        let number = priority.int().unwrap_or_default();
        if !(1..=max).contains(&number) {
            let detail = format!("must be positive and less than {max}");
            causes.invalid_at(priority.path(), number, &detail);
        }
    }
    let (skips, bundle) = (spec.child("insecureSkipTLSVerify"), spec.child("caBundle"));
    let service = spec.child("service");
    if !service.is_set() {
        if !bundle.is_zero() {
            let detail = "local APIServices may not have a caBundle";
            let shown = format!("{} bytes", bytes(bundle.text()));
            causes.invalid_at(bundle.path(), shown, detail);
        }
        if skips.flag() {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            causes.invalid(&skips, detail);
        }
        return;
    }
    causes.check_required(&service.child("namespace"));
    causes.check_required(&service.child("name"));
    let port = service.child("port");
    if port.int().is_some_and(|port| !(1..=65535).contains(&port)) {
        let detail = format!("port is not valid: {}", names::PORT_RANGE);
        causes.invalid(&port, &detail);
    }
    if skips.flag() && !bundle.is_zero() {
        causes.invalid(&skips, "may not be true if caBundle is present");
    }
}

/// Returns how many bytes a text in base64 stands for.
fn bytes(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}
