//! Validation of endpoints and endpoint slices.

use std::collections::HashSet;

use revstore_watch_cache::status::StatusCause;

use super::super::pod::PROTOCOLS;
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// Checks endpoints.
pub(super) fn check_endpoints(endpoints: &Field<'_>, causes: &mut Causes) {
    for subset in endpoints.child("subsets").items() {
        let (ready, not_ready) = (subset.child("addresses"), subset.child("notReadyAddresses"));
        if ready.len() + not_ready.len() == 0 {
            causes.required(&subset, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in ready.items().chain(not_ready.items()) {
            let ip = address.child("ip");
            causes.check_present_text(&ip, names::ip_error);
            causes.check_text(&address.child("hostname"), names::dns_label_error);
            let node = address.child("nodeName");
            if node.is_set() {
                causes.check_present_text(&node, names::subdomain_error);
            }
            if names::ip_error(ip.text()).is_some_and(|detail| detail == names::NOT_AN_IP) {
                causes.invalid_at(ip.path(), ip.text(), "must be a valid IP address");
            } else {
                check_special(&ip, causes);
            }
        }
        let ports = subset.child("ports");
        for port in ports.items() {
            let name = port.child("name");
            if ports.len() > 1 && name.text().is_empty() {
                causes.required(&name, "");
            }
            causes.check_text(&name, names::dns_label_error);
            causes.check_port(&port.child("port"));
            causes.check_required_one_of(&port.child("protocol"), &PROTOCOLS);
        }
    }
}

/// Checks that an address is not one of those with a special meaning.
pub(super) fn check_special(ip: &Field<'_>, causes: &mut Causes) {
    let Ok(address) = ip.text().parse::<std::net::IpAddr>() else {
        return;
    };
    let (link_local, multicast) = match address {
        std::net::IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        std::net::IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    let unspecified = format!("may not be unspecified ({})", ip.text());
    for (found, detail) in [
        (address.is_unspecified(), unspecified.as_str()),
        (
            address.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ] {
        if found {
            causes.invalid(ip, detail);
        }
    }
}

/// The maximum number of endpoints of a slice.
const ENDPOINTS_MAX: usize = 1000;
/// The maximum number of addresses of an endpoint.
const ADDRESSES_MAX: usize = 100;
/// The maximum number of ports of a slice.
const PORTS_MAX: usize = 20_000;

/// The maximum number of zones, and of nodes, that an endpoint is for.
const HINTS_MAX: usize = 8;

/// Checks that a list has a maximum number of items. Returns whether it has.
fn check_count(list: &Field<'_>, max: usize, causes: &mut Causes) -> bool {
    let allowed = list.len() <= max;
    if !allowed {
        causes.push(StatusCause::too_many(list.path(), list.len(), max));
    }
    allowed
}

/// Checks an endpoint slice.
pub(super) fn check_slice(slice: &Field<'_>, causes: &mut Causes) {
    let kind = slice.child("addressType");
    causes.check_required_one_of(&kind, &["FQDN", "IPv4", "IPv6"]);
    let ports = slice.child("ports");
    if check_count(&ports, PORTS_MAX, causes) {
        let mut seen = HashSet::new();
        for port in ports.items() {
            let name = port.child("name");
            causes.check_text(&name, names::dns_label_error);
            if !seen.insert(name.text()) {
                causes.push(StatusCause::duplicate(name.path(), name.text()));
            }
            let protocol = port.child("protocol");
            if protocol.is_set() {
                causes.check_one_of(&protocol, &PROTOCOLS);
            } else {
                causes.required(&protocol, "");
            }
            let protocol = port.child("appProtocol");
            if protocol.is_set() {
                causes.check_qualified_name(&protocol);
            }
        }
    }
    let endpoints = slice.child("endpoints");
    if check_count(&endpoints, ENDPOINTS_MAX, causes) {
        for endpoint in endpoints.items() {
            check_endpoint(&endpoint, kind.text(), causes);
        }
    }
}

fn check_endpoint(endpoint: &Field<'_>, kind: &str, causes: &mut Causes) {
    let addresses = endpoint.child("addresses");
    if addresses.len() == 0 {
        causes.required(&addresses, "must contain at least 1 address");
    }
    check_count(&addresses, ADDRESSES_MAX, causes);
    for address in addresses.items() {
        check_address(&address, &addresses, kind, causes);
    }
    let node = endpoint.child("nodeName");
    if node.is_set() {
        causes.check_present_text(&node, names::subdomain_error);
    }

    let host = endpoint.child("hostname");
    if host.is_set() {
        causes.check_present_text(&host, names::dns_label_error);
    }
    check_hints(&endpoint.child("hints"), causes);
}

fn check_address(address: &Field<'_>, list: &Field<'_>, kind: &str, causes: &mut Causes) {
    let text = address.text();
    let error = match kind {
        "IPv4" => names::ip_error(text),
        "IPv6" => names::canonical_ip_error(text),
        "FQDN" if text.is_empty() => {
            causes.required(address, "");
            return;
        }
        "FQDN" => names::full_domain_error(text),
        _ => return,
    };
    if let Some(detail) = error {
        let shown = match kind {
            "FQDN" => text.strip_suffix('.').unwrap_or(text),
            _ => text,
        };
        causes.invalid_at(address.path(), shown, &detail);
        return;
    }
    if kind == "FQDN" {
        return;
    }
    if (kind == "IPv6") != text.contains(':') {
        // The path has no index.
        let detail = format!("must be an {kind} address");
        causes.invalid_at(list.path(), text, &detail);
    }
    check_special(address, causes);
}

/// Checks the zones and the nodes that an endpoint is for.
fn check_hints(hints: &Field<'_>, causes: &mut Causes) {
    for (list, error) in [
        (
            "forZones",
            names::label_value_error as fn(&str) -> Option<String>,
        ),
        ("forNodes", names::subdomain_error),
    ] {
        let list = hints.child(list);
        if !check_count(&list, HINTS_MAX, causes) {
            return;
        }
        let mut seen = HashSet::new();
        for hint in list.items() {
            let name = hint.child("name");
            if !seen.insert(name.text()) {
                causes.push(StatusCause::duplicate(name.path(), name.text()));
            }
            causes.check_present_text(&name, error);
        }
    }
}
