//! The status of a claim: which devices it got, who uses them, and what their drivers say of them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;
use serde_json::{Value, json};

use super::{
    LIST_MAX, check_bytes, check_data, check_driver, check_items, check_label, check_opaque,
    check_reference, check_references, check_unique, request_names,
};
use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::families::pod::check_node_term;
use crate::builtin::field::Field;
use crate::builtin::names;

/// The largest numbers of items in lists.
const CONSUMERS_MAX: usize = 256;
const CONFIG_MAX: usize = 2 * LIST_MAX;
const BINDING_CONDITIONS_MAX: usize = 4;
const CONDITIONS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 16;
/// The largest lengths of texts, in bytes.
const POOL_BYTES_MAX: usize = 253;
const INTERFACE_BYTES_MAX: usize = 256;
const HARDWARE_BYTES_MAX: usize = 128;
const REASON_BYTES_MAX: usize = 1024;
const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// Removes what drivers say of devices that a new status does not have any more. Corresponds to
/// `dropDeallocatedStatusDevices`.
pub(super) fn drop_deallocated(new: &mut JsonObject, old: &JsonObject) {
    let results = |claim: &JsonObject| -> HashSet<[String; 4]> {
        let results = edit::at(claim, &["status", "allocation", "devices", "results"]);
        let results = results.and_then(Value::as_array).into_iter().flatten();
        results
            .filter_map(Value::as_object)
            .map(device_of)
            .collect()
    };
    let mut gone = results(old);
    let kept = results(new);
    gone.retain(|device| !kept.contains(device));
    let Some(status) = edit::child_mut(new, "status") else {
        return;
    };
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else {
        return;
    };
    devices.retain(|device| {
        let device = device.as_object().map(device_of);
        device.is_none_or(|device| !gone.contains(&device))
    });
    if devices.is_empty() {
        status.remove("devices");
    }
}

/// Returns what identifies a device in a status: its driver, pool, name and share.
fn device_of(item: &JsonObject) -> [String; 4] {
    ["driver", "pool", "device", "shareID"].map(|name| edit::text(item, name).to_owned())
}

/// Checks a new status of a claim.
pub(super) fn check_status(new: &Field<'_>, old: &Field<'_>, causes: &mut Causes) {
    let known = request_names(&new.child("spec").child("devices"));
    let is_deleted = new.at(&["metadata", "deletionTimestamp"]).is_set();
    let (new, old) = (new.child("status"), old.child("status"));
    let (allocation, before) = (new.child("allocation"), old.child("allocation"));
    let consumers = new.child("reservedFor");
    check_consumers(&consumers, causes);
    check_devices(&new.child("devices"), &allocation, causes);
    if consumers.len() > 0 && !allocation.is_set() {
        let detail = "may not be specified when `allocated` is not set";
        causes.forbidden(&consumers, detail);
    } else if is_deleted && has_more(&consumers, &old.child("reservedFor")) {
        let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        causes.forbidden(&consumers, detail);
    }
    match (before.is_set(), allocation.is_set()) {
        (true, true) => causes.check_immutable(&allocation, &before),
        (false, true) => check_allocation(&allocation, &known, causes),
        (_, false) => {}
    }
}

/// Returns whether a list has an item that is not in another.
fn has_more(list: &Field<'_>, other: &Field<'_>) -> bool {
    let is_known = |item: &Field<'_>| other.items().any(|known| known.equals(item));
    list.items()
        .take(CONSUMERS_MAX)
        .any(|item| !is_known(&item))
}

fn check_consumers(consumers: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for consumer in check_items(consumers, CONSUMERS_MAX, causes) {
        for name in ["resource", "name", "uid"] {
            causes.check_required(&consumer.child(name));
        }
        check_unique(&consumer, &consumer.child("uid"), &mut seen, causes);
    }
}

fn check_allocation(allocation: &Field<'_>, known: &HashSet<String>, causes: &mut Causes) {
    let devices = allocation.child("devices");
    let (results, config) = (devices.child("results"), devices.child("config"));
    for result in check_items(&results, LIST_MAX, causes) {
        check_result(&result, known, causes);
    }
    for item in check_items(&config, CONFIG_MAX, causes) {
        causes.check_required_one_of(&item.child("source"), &["FromClaim", "FromClass"]);
        check_references(&item.child("requests"), known, causes);
        check_opaque(&item.child("opaque"), causes);
    }
    let selector = allocation.child("nodeSelector");
    if selector.is_set() {
        let terms = selector.child("nodeSelectorTerms");
        if terms.len() == 0 {
            causes.required(&terms, "must have at least one node selector term");
        }
        for term in terms.items() {
            check_node_term(&term, causes);
        }
    }
}

/// Checks a device that a request got.
fn check_result(result: &Field<'_>, known: &HashSet<String>, causes: &mut Causes) {
    check_reference(&result.child("request"), known, causes);
    check_identity(result, causes);
    let [conditions, failures] =
        ["bindingConditions", "bindingFailureConditions"].map(|name| result.child(name));
    for list in [&conditions, &failures] {
        for condition in check_items(list, BINDING_CONDITIONS_MAX, causes) {
            causes.check_qualified_name(&condition);
        }
    }
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        check_unique(&condition, &condition, &mut seen, causes);
    }
    let mut seen_failures = HashSet::new();
    for condition in failures.items() {
        check_unique(&condition, &condition, &mut seen_failures, causes);
        if seen.contains(condition.text()) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            causes.invalid(&condition, detail);
        }
    }
    match (conditions.len() > 0, failures.len() > 0) {
        (true, false) => causes.invalid_at(
            failures.path(),
            json!(null),
            "bindingFailureConditions are required to use bindingConditions",
        ),
        (false, true) => causes.invalid_at(
            conditions.path(),
            json!(null),
            "bindingConditions are required to use bindingFailureConditions",
        ),
        _ => {}
    }
}

/// Checks the names by which a device is known: those of its driver, its pool, itself and its share.
fn check_identity(device: &Field<'_>, causes: &mut Causes) {
    check_driver(&device.child("driver"), causes);
    let pool = device.child("pool");
    if causes.check_required(&pool) {
        check_bytes(&pool, POOL_BYTES_MAX, causes);
        for part in pool.text().split('/') {
            if let Some(detail) = names::subdomain_error(part) {
                causes.invalid_at(pool.path(), part, &detail);
            }
        }
    }
    check_label(&device.child("device"), causes);
    let share = device.child("shareID");
    if share.is_set()
        && let Some(detail) = uuid_error(share.text())
    {
        causes.invalid_at(share.path(), share.text(), &detail);
    }
}

/// The names by which a device is known.
fn identity<'a>(device: &Field<'a>) -> [&'a str; 4] {
    ["driver", "pool", "device", "shareID"].map(|name| device.child(name).text())
}

/// Returns these names as kube-apiserver shows them, in the order of its fields.
fn shown(names: [&str; 4]) -> String {
    let [driver, pool, device, share] = names.map(|name| json!(name));
    format!(r#"{{"Driver":{driver},"Pool":{pool},"Device":{device},"ShareID":{share}}}"#)
}

/// Checks what drivers say of devices, which must be those of the allocation.
fn check_devices(devices: &Field<'_>, allocation: &Field<'_>, causes: &mut Causes) {
    let results = allocation.at(&["devices", "results"]);
    let allocated: HashSet<_> = results.items().map(|result| identity(&result)).collect();
    let mut seen = HashSet::new();
    for device in devices.items() {
        check_identity(&device, causes);
        let identity = identity(&device);
        let shown = shown(identity);
        if !allocated.contains(&identity) {
            const DETAIL: &str = "must be an allocated device in the claim";
            let mut cause = StatusCause::invalid(device.path(), "", DETAIL);
            cause.message = format!("Invalid value: {shown}: {DETAIL}");
            causes.push(cause);
        }
        check_conditions(&device.child("conditions"), causes);
        let data = device.child("data");
        if data.is_set() {
            check_data(&data, causes);
        }
        check_network(&device.child("networkData"), causes);
        if !seen.insert(identity) {
            let mut cause = StatusCause::duplicate(device.path(), "");
            cause.message = format!("Duplicate value: {shown}");
            causes.push(cause);
        }
    }
}

fn check_conditions(conditions: &Field<'_>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for condition in check_items(conditions, CONDITIONS_MAX, causes) {
        let kind = condition.child("type");
        check_unique(&kind, &kind, &mut seen, causes);
        causes.check_qualified_name(&kind);
        let status = condition.child("status");
        let statuses = ["False", "True", "Unknown"];
        if !statuses.contains(&status.text()) {
            causes.not_supported(&status, &statuses);
        }
        let generation = condition.child("observedGeneration");
        causes.check_min(&generation, 0, "must be greater than or equal to zero");
        causes.check_required(&condition.child("lastTransitionTime"));
        let reason = condition.child("reason");
        if causes.check_required(&reason) {
            causes.check_text(&reason, reason_error);
            check_bytes(&reason, REASON_BYTES_MAX, causes);
        }
        check_bytes(&condition.child("message"), MESSAGE_BYTES_MAX, causes);
    }
}

fn reason_error(reason: &str) -> Option<String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = reason.as_bytes();
    let is_valid = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|byte| is_letter(*byte))
        && bytes
            .iter()
            .all(|byte| is_letter(*byte) || b",:".contains(byte));
    (!is_valid).then(|| {
        "a condition reason must start with alphabetic character, optionally followed by a string of \
         alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. \
         'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used \
         for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
            .to_owned()
    })
}

fn check_network(network: &Field<'_>, causes: &mut Causes) {
    check_bytes(&network.child("interfaceName"), INTERFACE_BYTES_MAX, causes);
    check_bytes(
        &network.child("hardwareAddress"),
        HARDWARE_BYTES_MAX,
        causes,
    );
    let addresses = network.child("ips");
    let mut seen = HashSet::new();
    for address in check_items(&addresses, ADDRESSES_MAX, causes) {
        match canonical_address(address.text()) {
            Some(canonical) if canonical == address.text() => {}
            Some(canonical) => {
                let detail = format!("must be in canonical form (\"{canonical}\")");
                causes.invalid_at(address.path(), address.text(), &detail);
            }
            None => causes.invalid_at(
                address.path(),
                address.text(),
                "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)",
            ),
        }
        check_unique(&address, &address, &mut seen, causes);
    }
}

/// Returns the usual form of an address with the length of its network, if it is one. Decimal numbers may begin with zeros.
fn canonical_address(text: &str) -> Option<String> {
    let (address, length) = text.split_once('/')?;
    if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let length: u8 = length.parse().ok()?;
    if address.contains(':') {
        let address: IpAddr = address.parse().ok()?;
        let is_valid = length <= 128;
        let canonical = address.to_canonical();
        let length = i16::from(length);
        // An IPv4 address in the form of IPv6 has 96 bits before its own.
        let is_mapped = canonical.is_ipv4() && length > 32;
        let length = if is_mapped { length - 96 } else { length };
        return is_valid.then(|| format!("{canonical}/{length}"));
    }
    let mut octets = [0; 4];
    let mut parts = address.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    let is_valid = parts.next().is_none() && length <= 32;
    is_valid.then(|| format!("{}/{length}", Ipv4Addr::from(octets)))
}

/// Returns what is wrong with a UUID, which must be in its usual form with lowercase digits.
fn uuid_error(text: &str) -> Option<String> {
    let malformed = |detail: String| Some(format!("error validating uid: {detail}"));
    let bytes = text.as_bytes();
    let body = match bytes.len() {
        32 | 36 => bytes,
        45 if bytes[..9].eq_ignore_ascii_case(b"urn:uuid:") => &bytes[9..],
        45 => {
            let prefix = String::from_utf8_lossy(&bytes[..9]).into_owned();
            return malformed(format!("invalid urn prefix: {prefix:?}"));
        }
        38 if bytes[0] == b'{' && bytes[37] == b'}' => &bytes[1..37],
        38 => return malformed("invalid bracketed UUID format".to_owned()),
        length => return malformed(format!("invalid UUID length: {length}")),
    };
    let is_hyphen = |index: usize| body.len() == 36 && [8, 13, 18, 23].contains(&index);
    let is_valid = body.iter().enumerate().all(|(index, byte)| match byte {
        b'-' => is_hyphen(index),
        byte => !is_hyphen(index) && byte.is_ascii_hexdigit(),
    });
    if !is_valid {
        return malformed("invalid UUID format".to_owned());
    }
    let is_normal = bytes.len() == 36 && !bytes.iter().any(u8::is_ascii_uppercase);
    (!is_normal).then(|| {
        "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::{canonical_address, uuid_error};

    #[test]
    fn addresses_have_one_form() {
        for (text, expected) in [
            ("10.9.8.7/24", Some("10.9.8.7/24")),
            ("010.9.8.007/24", Some("10.9.8.7/24")),
            ("10.9.8.7/024", Some("10.9.8.7/24")),
            ("::ffff:192.168.0.1/120", Some("192.168.0.1/24")),
            ("2001:DB8:0::1/64", Some("2001:db8::1/64")),
            ("10.9.8.7/33", None),
            ("10.9.8.7/+8", None),
            ("10.9.8.256/8", None),
            ("10.9.8/8", None),
            ("10.9.8.7.6/8", None),
            ("::1/129", None),
            ("::1", None),
            ("", None),
        ] {
            assert_eq!(canonical_address(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn forms_of_uuids_are_told_apart() {
        let plain = "0b1d0a7e-1111-4222-8333-444455556666";
        assert_eq!(uuid_error(plain), None);
        for (text, part) in [
            (plain.to_uppercase(), "normalized"),
            (format!("{{{plain}}}"), "normalized"),
            (format!("URN:UUID:{plain}"), "normalized"),
            (plain.replace('-', ""), "normalized"),
            (format!("[{plain}]"), "bracketed"),
            (format!("urn-uuid:{plain}"), "urn prefix"),
            (plain.replace('-', "a"), "format"),
            ("é".repeat(18), "format"),
            ("-".repeat(32), "format"),
            ("x".to_owned(), "length: 1"),
        ] {
            let error = uuid_error(&text).unwrap_or_default();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
