//! Validation of probes and of the handlers of a container's life.

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// Checks the probes of a container.
pub(super) fn check_probes(container: &Field<'_>, grace: Option<i64>, causes: &mut Causes) {
    for (name, succeeds_once) in [
        ("livenessProbe", true),
        ("readinessProbe", false),
        ("startupProbe", true),
    ] {
        let probe = container.child(name);
        if !probe.is_set() {
            continue;
        }
        check_handler(&probe, &PROBES, grace, causes);
        for name in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            causes.check_not_negative(&probe.child(name));
        }
        let own = probe.child("terminationGracePeriodSeconds");
        causes.check_min(&own, 1, "must be greater than 0");
        if name == "readinessProbe" && own.is_set() {
            causes.invalid(&own, "must not be set for readinessProbes");
        }
        let threshold = probe.child("successThreshold");
        if succeeds_once && threshold.int() != Some(1) {
            causes.invalid(&threshold, "must be 1");
        }
    }
}

/// What a probe can do, and what a handler can do.
const PROBES: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "sleep"];

/// Checks the handlers that run after the start and before the end of a container, which ends after a time
/// of `grace` seconds.
pub(super) fn check_lifecycle(lifecycle: &Field<'_>, grace: Option<i64>, causes: &mut Causes) {
    for name in ["postStart", "preStop"] {
        let handler = lifecycle.child(name);
        if handler.is_set() {
            check_handler(&handler, &HANDLERS, grace, causes);
        }
    }
}

fn check_handler(
    handler: &Field<'_>,
    actions: &[&'static str],
    grace: Option<i64>,
    causes: &mut Causes,
) {
    let mut found = false;
    for name in actions {
        let action = handler.child(name);
        if !action.is_set() {
            continue;
        }
        if found {
            causes.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *name {
            "exec" => {
                causes.check_required(&action.child("command"));
            }
            "httpGet" => {
                causes.check_required(&action.child("path"));
                causes.check_port_or_name(&action.child("port"));
                causes.check_one_of(&action.child("scheme"), &["HTTP", "HTTPS"]);
                for header in action.child("httpHeaders").items() {
                    check_header(&action, &header, causes);
                }
            }
            "tcpSocket" => causes.check_port_or_name(&action.child("port")),
            "grpc" => causes.check_port(&action.child("port")),
            _ => check_sleep(&action, grace, causes),
        }
    }
    if !found {
        causes.required(handler, "must specify a handler type");
    }
}

fn check_sleep(sleep: &Field<'_>, grace: Option<i64>, causes: &mut Causes) {
    let seconds = sleep.child("seconds").int().unwrap_or_default();
    if let Some(grace) = grace
        && !(0..=grace).contains(&seconds)
    {
        let detail =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        causes.invalid_at(sleep.path(), seconds, &detail);
    }
}

fn check_header(action: &Field<'_>, header: &Field<'_>, causes: &mut Causes) {
    let name = header.child("name").text();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || !name.bytes().all(is_token) {
        causes.invalid_at(
            action.child("httpHeaders").path(),
            name,
            "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
             regex used for validation is '[-A-Za-z0-9]+')",
        );
    }
}
