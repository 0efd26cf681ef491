//! Validation of probes and of the handlers of a container's life.

use crate::builtin::causes::Causes;
use crate::builtin::field::Field;

/// Checks the probes of a container.
pub(super) fn check_probes(container: &Field<'_>, causes: &mut Causes) {
    for (name, succeeds_once) in [
        ("livenessProbe", true),
        ("readinessProbe", false),
        ("startupProbe", true),
    ] {
        let probe = container.child(name);
        if !probe.is_set() {
            continue;
        }
        check_handler(&probe, causes);
        for name in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            causes.check_not_negative(&probe.child(name));
        }
        let grace = probe.child("terminationGracePeriodSeconds");
        if name == "readinessProbe" && grace.is_set() {
            causes.invalid(&grace, "must not be set for readinessProbes");
        } else {
            causes.check_min(&grace, 1, "must be greater than 0");
        }
        let threshold = probe.child("successThreshold");
        if succeeds_once && threshold.int() != Some(1) {
            causes.invalid(&threshold, "must be 1");
        }
    }
}

/// Checks the handlers that run after the start and before the end of a container.
pub(super) fn check_lifecycle(lifecycle: &Field<'_>, causes: &mut Causes) {
    for name in ["postStart", "preStop"] {
        let handler = lifecycle.child(name);
        if handler.is_set() {
            check_handler(&handler, causes);
        }
    }
}

fn check_handler(handler: &Field<'_>, causes: &mut Causes) {
    let mut found = false;
    for name in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = handler.child(name);
        if !action.is_set() {
            continue;
        }
        if found {
            causes.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match name {
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
            _ => causes.check_not_negative(&action.child("seconds")),
        }
    }
    if !found {
        causes.required(handler, "must specify a handler type");
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
