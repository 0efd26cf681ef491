//! Validation of endpoints and endpoint slices.

use std::collections::HashSet;

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
            if let Some(detail) = names::ip_error(ip.text()) {
                // The rules for old fields and those for endpoints are both broken.
                let short = detail.split(", (e.g.").next().unwrap_or(&detail);
                causes.invalid_at(ip.path(), ip.text(), short);
                causes.invalid_at(ip.path(), ip.text(), &detail);
            }
            check_special(&ip, causes);
            causes.check_text(&address.child("hostname"), names::dns_label_error);
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
fn check_special(ip: &Field<'_>, causes: &mut Causes) {
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

/// Checks an endpoint slice.
pub(super) fn check_slice(slice: &Field<'_>, causes: &mut Causes) {
    let kind = slice.child("addressType");
    causes.check_required_one_of(&kind, &["FQDN", "IPv4", "IPv6"]);
    let endpoints = slice.child("endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        let path = endpoints.path();
        causes.push(revstore_watch_cache::status::StatusCause::too_many(
            path,
            endpoints.len(),
            ENDPOINTS_MAX,
        ));
    }
    for endpoint in endpoints.items() {
        check_endpoint(&endpoint, kind.text(), causes);
    }
    let ports = slice.child("ports");
    if ports.len() > PORTS_MAX {
        let path = ports.path();
        causes.push(revstore_watch_cache::status::StatusCause::too_many(
            path,
            ports.len(),
            PORTS_MAX,
        ));
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        let name = port.child("name");
        causes.check_text(&name, names::dns_label_error);
        if !seen.insert(name.text()) {
            causes.duplicate(&name);
        }
        causes.check_required_one_of(&port.child("protocol"), &PROTOCOLS);
        causes.check_text(&port.child("appProtocol"), names::qualified_name_error);
    }
}

fn check_endpoint(endpoint: &Field<'_>, kind: &str, causes: &mut Causes) {
    let addresses = endpoint.child("addresses");
    match addresses.len() {
        0 => causes.required(&addresses, "must contain at least 1 address"),
        found if found > ADDRESSES_MAX => {
            let path = addresses.path();
            causes.push(revstore_watch_cache::status::StatusCause::too_many(
                path,
                found,
                ADDRESSES_MAX,
            ));
        }
        _ => {}
    }
    for address in addresses.items() {
        if kind != "FQDN" {
            check_special(&address, causes);
        }
        let parsed = address.text().parse::<std::net::IpAddr>();
        // The path of an address of the other family has no index.
        let whole = address.placed(&addresses);
        match (kind, parsed) {
            ("IPv4", Ok(std::net::IpAddr::V4(_))) | ("IPv6", Ok(std::net::IpAddr::V6(_))) => {}
            ("IPv4", Ok(_)) => causes.invalid(&whole, "must be an IPv4 address"),
            ("IPv6", Ok(_)) => causes.invalid(&whole, "must be an IPv6 address"),
            ("IPv4" | "IPv6", Err(_)) => causes.invalid(&address, names::NOT_AN_IP),
            ("FQDN", _) => causes.check_text(&address, names::subdomain_error),
            _ => {}
        }
    }
    causes.check_text(&endpoint.child("nodeName"), names::subdomain_error);
    causes.check_text(&endpoint.child("hostname"), names::dns_label_error);
}
