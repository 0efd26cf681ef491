//! Devices: claims for them, their classes, and the slices by which drivers publish them.

mod status;

use std::collections::HashSet;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use super::pod::check_node_term;
use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;

const GROUP: &str = "resource.k8s.io";

/// The largest numbers of items in lists.
const LIST_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const DEVICES_MAX: usize = 128;
/// The largest number of attributes and capacities of a device.
const ATTRIBUTES_MAX: usize = 32;
/// The largest lengths of texts, in bytes.
const DRIVER_BYTES_MAX: usize = 63;
const IDENTIFIER_BYTES_MAX: usize = 32;
const ATTRIBUTE_BYTES_MAX: usize = 64;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const DATA_BYTES_MAX: usize = 10 * 1024;

/// The mode of a request for a number of devices.
const EXACT_COUNT: &str = "ExactCount";

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

pub(super) const KINDS: &[Kind] = &[
    Kind {
        validate: |class, causes| {
            let spec = class.child("spec");
            check_selectors(&spec.child("selectors"), causes);
            let config = spec.child("config");
            for item in check_items(&config, LIST_MAX, causes) {
                check_opaque(&item.child("opaque"), causes);
            }
            causes.check_text(&spec.child("extendedResourceName"), extended_resource_error);
        },
        ..Kind::new(GROUP, "DeviceClass").with_generation()
    },
    Kind::new(GROUP, "DeviceTaintRule")
        .with_status()
        .with_generation(),
    Kind {
        status_keeps_metadata: true,
        default: |claim| default_claim(edit::child_mut(claim, "spec")),
        validate: |claim, causes| check_claim(&claim.child("spec"), causes),
        validate_update: |new, old, causes| {
            causes.check_immutable(&new.child("spec"), &old.child("spec"));
        },
        update_status: |new, old, _| status::drop_deallocated(new, old),
        validate_status: status::check_status,
        ..Kind::new(GROUP, "ResourceClaim").with_status()
    },
    Kind {
        default: |template| {
            let spec = edit::child_mut(template, "spec");
            default_claim(spec.and_then(|spec| edit::child_mut(spec, "spec")));
        },
        validate: |template, causes| {
            let spec = template.child("spec");
            causes.check_labels(&spec.at(&["metadata", "labels"]));
            causes.check_annotations(&spec.at(&["metadata", "annotations"]));
            check_claim(&spec.child("spec"), causes);
        },
        validate_update: |new, old, causes| {
            causes.check_immutable(&new.child("spec"), &old.child("spec"));
        },
        ..Kind::new(GROUP, "ResourceClaimTemplate")
    },
    Kind {
        validate: check_slice,
        ..Kind::new(GROUP, "ResourceSlice").with_generation()
    },
];

/// Completes the requests of a claim: they are for one device if they do not say it.
fn default_claim(spec: Option<&mut JsonObject>) {
    let Some(devices) = spec.and_then(|spec| edit::child_mut(spec, "devices")) else {
        return;
    };
    for request in edit::items_mut(devices, "requests") {
        if let Some(exactly) = edit::child_mut(request, "exactly") {
            default_request(exactly);
        }
        edit::items_mut(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut JsonObject) {
    edit::set_zero(request, "allocationMode", EXACT_COUNT);
    if edit::text(request, "allocationMode") == EXACT_COUNT {
        edit::set_zero(request, "count", 1);
    }
}

/// Returns the items of a list that is not too long. Those of a longer one are not looked at.
fn check_items<'a>(
    list: &Field<'a>,
    max: usize,
    causes: &mut Causes,
) -> impl Iterator<Item = Field<'a>> + use<'a> {
    let fits = list.len() <= max;
    if !fits {
        causes.push(StatusCause::too_many(list.path(), list.len(), max));
    }
    list.items().take(if fits { max } else { 0 })
}

/// Adds a cause for an item whose name occurs before it in its list.
fn check_unique<'a>(
    item: &Field<'a>,
    name: &Field<'a>,
    seen: &mut HashSet<&'a str>,
    causes: &mut Causes,
) {
    if !seen.insert(name.text()) {
        causes.push(StatusCause::duplicate(item.path(), name.text()));
    }
}

/// Returns the names of the requests of a claim. An alternative has that of its request before its own.
fn request_names(devices: &Field<'_>) -> HashSet<String> {
    let mut known = HashSet::new();
    for request in devices.child("requests").items().take(LIST_MAX) {
        let name = request.child("name").text();
        known.insert(name.to_owned());
        let alternatives = request.child("firstAvailable");
        for alternative in alternatives.items().take(ALTERNATIVES_MAX) {
            known.insert(format!("{name}/{}", alternative.child("name").text()));
        }
    }
    known
}

fn check_label(name: &Field<'_>, causes: &mut Causes) {
    if let Some(detail) = names::dns_label_error(name.text()) {
        causes.invalid_at(name.path(), name.text(), &detail);
    }
}

fn check_claim(spec: &Field<'_>, causes: &mut Causes) {
    let devices = spec.child("devices");
    let requests = devices.child("requests");
    let known = request_names(&devices);
    let mut seen = HashSet::new();
    for request in check_items(&requests, LIST_MAX, causes) {
        let name = request.child("name");
        check_label(&name, causes);
        check_unique(&request, &name, &mut seen, causes);
        let (exactly, alternatives) = (request.child("exactly"), request.child("firstAvailable"));
        match (exactly.is_set(), alternatives.len() > 0) {
            (false, false) => causes.required(
                &request,
                "exactly one of `exactly` or `firstAvailable` is required",
            ),
            (true, true) => causes.invalid_at(
                request.path(),
                serde_json::Value::Null,
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            ),
            (true, false) => check_request(&exactly, causes),
            (false, true) => {
                let mut seen = HashSet::new();
                for alternative in check_items(&alternatives, ALTERNATIVES_MAX, causes) {
                    let part = alternative.child("name");
                    check_label(&part, causes);
                    check_unique(&alternative, &part, &mut seen, causes);
                    check_request(&alternative, causes);
                }
            }
        }
    }
    let constraints = devices.child("constraints");
    for constraint in check_items(&constraints, LIST_MAX, causes) {
        check_references(&constraint.child("requests"), &known, causes);
        let attribute = constraint.child("matchAttribute");
        if attribute.is_set() {
            check_attribute(&attribute, causes);
        } else if !constraint.child("distinctAttribute").is_set() {
            causes.required(
                &constraint,
                "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            );
        }
    }
    let config = devices.child("config");
    for item in check_items(&config, LIST_MAX, causes) {
        check_references(&item.child("requests"), &known, causes);
        check_opaque(&item.child("opaque"), causes);
    }
}

/// Checks the names of requests that a constraint or a configuration is for.
fn check_references(names: &Field<'_>, known: &HashSet<String>, causes: &mut Causes) {
    let mut seen = HashSet::new();
    for name in check_items(names, LIST_MAX, causes) {
        check_reference(&name, known, causes);
        check_unique(&name, &name, &mut seen, causes);
    }
}

/// Checks the name of a request, or of a request and an alternative of it.
fn check_reference(name: &Field<'_>, known: &HashSet<String>, causes: &mut Causes) {
    const DETAIL: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<_> = name.text().splitn(3, '/').collect();
    if parts.len() <= 2 {
        for part in parts {
            if let Some(detail) = names::dns_label_error(part) {
                causes.invalid_at(name.path(), part, &detail);
            }
        }
    }
    if !known.contains(name.text()) {
        causes.invalid_at(name.path(), name.text(), DETAIL);
    }
}

/// Checks what a request, or an alternative of one, asks for.
fn check_request(request: &Field<'_>, causes: &mut Causes) {
    let class = request.child("deviceClassName");
    if causes.check_required(&class) {
        causes.check_text(&class, names::subdomain_error);
    }
    check_selectors(&request.child("selectors"), causes);
    let (mode, count) = (request.child("allocationMode"), request.child("count"));
    match mode.text() {
        EXACT_COUNT => causes.check_min(&count, 1, "must be greater than zero"),
        "All" if !count.is_zero() => {
            causes.invalid(&count, "must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        _ => causes.not_supported(&mode, &["All", EXACT_COUNT]),
    }
    for toleration in request.child("tolerations").items() {
        let key = toleration.child("key");
        if !key.text().is_empty() {
            causes.check_qualified_name(&key);
        }
        let (operator, value) = (toleration.child("operator"), toleration.child("value"));
        match operator.text() {
            "" | "Equal" => causes.check_text(&value, names::label_value_error),
            "Exists" if !value.is_zero() => {
                causes.invalid(&value, "must be empty for operator `Exists`");
            }
            "Exists" => {}
            _ => causes.not_supported(&operator, &["Equal", "Exists"]),
        }
        let effect = toleration.child("effect");
        if !effect.is_zero() {
            causes.check_one_of(&effect, &EFFECTS);
        }
    }
}

fn check_selectors(selectors: &Field<'_>, causes: &mut Causes) {
    for selector in check_items(selectors, LIST_MAX, causes) {
        let cel = selector.child("cel");
        if !cel.is_set() {
            causes.required(&cel, "");
            continue;
        }
        check_bytes(&cel.child("expression"), EXPRESSION_BYTES_MAX, causes);
    }
}

/// Checks the length of a text. Returns whether it is not too long.
fn check_bytes(text: &Field<'_>, max: usize, causes: &mut Causes) -> bool {
    let fits = text.text().len() <= max;
    if !fits {
        causes.push(StatusCause::too_long(text.path(), max));
    }
    fits
}

/// Checks the configuration of a device by its driver.
fn check_opaque(opaque: &Field<'_>, causes: &mut Causes) {
    if !opaque.is_set() {
        causes.required(opaque, "");
        return;
    }
    check_driver(&opaque.child("driver"), causes);
    let parameters = opaque.child("parameters");
    if parameters.is_set() {
        check_data(&parameters, causes);
    } else {
        causes.required(&parameters, "");
    }
}

/// Checks what is meant for a driver: an object that is not too long.
fn check_data(data: &Field<'_>, causes: &mut Causes) {
    if data.value().to_string().len() > DATA_BYTES_MAX {
        causes.push(StatusCause::too_long(data.path(), DATA_BYTES_MAX));
    } else if data.object().is_none() {
        let detail = "must be a valid JSON object";
        causes.invalid_at(data.path(), "<value omitted>", detail);
    }
}

fn check_driver(driver: &Field<'_>, causes: &mut Causes) {
    if causes.check_required(driver) && check_bytes(driver, DRIVER_BYTES_MAX, causes) {
        causes.check_text(driver, names::subdomain_error);
    }
}

/// Checks the name of an attribute that is written with its domain.
fn check_attribute(attribute: &Field<'_>, causes: &mut Causes) {
    if !attribute.text().contains('/') {
        causes.invalid(
            attribute,
            "a fully qualified name must be a domain and a name separated by a slash",
        );
    }
    if attribute.text().contains('/') || attribute.text().is_empty() {
        check_identifier(attribute, attribute.text(), causes);
    }
}

/// Checks an identifier with an optional domain, of a map or a field.
fn check_identifier(field: &Field<'_>, name: &str, causes: &mut Causes) {
    let (domain, identifier) = match name.split_once('/') {
        Some((domain, identifier)) => (Some(domain), identifier),
        None => (None, name),
    };
    if let Some(domain) = domain
        && let Some(detail) = names::subdomain_error(domain)
    {
        causes.invalid_at(field.path(), domain, &detail);
    }
    let mut letters = identifier.chars();
    let is_first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let is_valid = letters.next().is_some_and(is_first)
        && letters.all(|letter| is_first(letter) || letter.is_ascii_digit());
    // A further slash begins another part, at which kube-apiserver does not look.
    let identifier_part = identifier.split('/').next().unwrap_or_default();
    if identifier_part.len() > IDENTIFIER_BYTES_MAX {
        causes.push(StatusCause::too_long(field.path(), IDENTIFIER_BYTES_MAX));
    } else if !is_valid && !identifier.contains('/') {
        causes.invalid_at(field.path(), identifier, NOT_AN_IDENTIFIER);
    }
}

const NOT_AN_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
     alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
     '[A-Za-z_][A-Za-z0-9_]*')";

fn extended_resource_error(name: &str) -> Option<String> {
    let is_valid = name.split_once('/').is_some_and(|(domain, _)| {
        !domain.ends_with("kubernetes.io") && !domain.starts_with("requests.")
    }) && names::qualified_name_error(&format!("requests.{name}")).is_none();
    (!is_valid).then(|| "must be a valid extended resource name".to_owned())
}

fn check_slice(slice: &Field<'_>, causes: &mut Causes) {
    let spec = slice.child("spec");
    check_driver(&spec.child("driver"), causes);
    check_pool(&spec.child("pool"), causes);
    let is_per_device = check_nodes(&spec, causes);
    let devices = spec.child("devices");
    if devices.len() > 0 && spec.child("sharedCounters").len() > 0 {
        let detail = "only one of `sharedCounters` or `devices` is allowed";
        causes.invalid_at(spec.path(), "", detail);
    }
    let mut seen = HashSet::new();
    for device in check_items(&devices, DEVICES_MAX, causes) {
        let name = device.child("name");
        check_label(&name, causes);
        check_unique(&device, &name, &mut seen, causes);
        let parts = ["nodeName", "nodeSelector", "allNodes"];
        let has_nodes = parts.iter().any(|part| device.child(part).is_set());
        match (is_per_device, has_nodes) {
            (true, false) => causes.required(
                &device,
                "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                 `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            ),
            (false, true) => causes.invalid_at(
                device.path(),
                serde_json::Value::Null,
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if \
                 `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            ),
            _ => {}
        }
        check_attributes(&device, causes);
        for taint in device.child("taints").items() {
            causes.check_qualified_name(&taint.child("key"));
            causes.check_text(&taint.child("value"), names::label_value_error);
            causes.check_required_one_of(&taint.child("effect"), &EFFECTS);
        }
    }
}

fn check_pool(pool: &Field<'_>, causes: &mut Causes) {
    let name = pool.child("name");
    if causes.check_required(&name) {
        for part in name.text().split('/') {
            if let Some(detail) = names::subdomain_error(part) {
                causes.invalid_at(name.path(), part, &detail);
            }
        }
    }
    let count = pool.child("resourceSliceCount");
    let number = count.int().unwrap_or_default();
    if number <= 0 {
        causes.invalid_at(count.path(), number, "must be greater than zero");
    }
    let generation = pool.child("generation");
    causes.check_min(&generation, 0, "must be greater than or equal to zero");
}

/// Checks for which nodes the devices of a slice are. Returns whether each device says it.
fn check_nodes(spec: &Field<'_>, causes: &mut Causes) -> bool {
    const CHOICE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut set = Vec::new();
    let name = spec.child("nodeName");
    if name.text().is_empty() && name.is_set() {
        let detail = "must be either unset or set to a non-empty string";
        causes.invalid(&name, detail);
    } else if name.is_set() {
        set.push("`nodeName`");
        causes.check_text(&name, names::subdomain_error);
    }
    let selector = spec.child("nodeSelector");
    if selector.is_set() {
        set.push("`nodeSelector`");
        let terms = selector.child("nodeSelectorTerms");
        if terms.len() == 0 {
            causes.required(&terms, "must have at least one node selector term");
        }
        for term in terms.items() {
            check_node_term(&term, causes);
        }
        if terms.len() != 1 {
            causes.invalid(&terms, "must have exactly one node selector term");
        }
    }
    for (part, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        let flag = spec.child(part);
        if flag.flag() {
            set.push(shown);
        } else if flag.is_set() {
            causes.invalid(&flag, "must be either unset or set to true");
        }
    }
    match set.as_slice() {
        [] => causes.required(spec, CHOICE),
        [_] => {}
        several => causes.invalid_at(
            spec.path(),
            format!("{{{}}}", several.join(", ")),
            &format!("{CHOICE}, but multiple fields are set"),
        ),
    }
    spec.child("perDeviceNodeSelection").flag()
}

fn check_attributes(device: &Field<'_>, causes: &mut Causes) {
    let (attributes, capacity) = (device.child("attributes"), device.child("capacity"));
    for (name, attribute) in attributes.entries() {
        check_identifier(&attributes, name, causes);
        let set = attribute.object().into_iter().flatten();
        let count = set.filter(|(_, value)| !value.is_null()).count();
        if count != 1 {
            let detail = "exactly one value must be specified";
            match count {
                0 => causes.invalid_at(attribute.path(), "", detail),
                _ => causes.invalid(&attribute, detail),
            }
        }
        check_bytes(&attribute.child("string"), ATTRIBUTE_BYTES_MAX, causes);
        let version = attribute.child("version");
        if check_bytes(&version, ATTRIBUTE_BYTES_MAX, causes)
            && version.is_set()
            && !is_semantic_version(version.text())
        {
            causes.invalid(
                &version,
                "must be a string compatible with semver.org spec 2.0.0",
            );
        }
    }
    for (name, _) in capacity.entries() {
        check_identifier(&capacity, name, causes);
    }
    let count = attributes.len() + capacity.len();
    if count > ATTRIBUTES_MAX {
        let detail = format!(
            "the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"
        );
        causes.invalid_at(device.path(), count, &detail);
    }
}

/// Returns whether a text is a version such as `1.2.3-rc.1+build`.
fn is_semantic_version(text: &str) -> bool {
    let is_number = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'))
    };
    let is_word = |text: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !text.is_empty() && text.bytes().all(is_letter)
    };
    let is_build = |text: &str| text.split('.').all(is_word);
    let (text, build) = match text.split_once('+') {
        Some((text, build)) => (text, Some(build)),
        None => (text, None),
    };
    let (numbers, suffix) = match text.split_once('-') {
        Some((numbers, suffix)) => (numbers, Some(suffix)),
        None => (text, None),
    };
    let is_suffix = |suffix: &str| {
        let mut parts = suffix.split('.');
        parts.all(|part| is_word(part) && (part.parse::<u64>().is_err() || is_number(part)))
    };
    let numbers: Vec<&str> = numbers.split('.').collect();
    numbers.len() == 3
        && numbers.into_iter().all(is_number)
        && suffix.is_none_or(is_suffix)
        && build.is_none_or(is_build)
}

#[cfg(test)]
mod tests {
    use super::is_semantic_version;

    #[test]
    fn versions_are_semantic() {
        for (text, expected) in [
            ("1.2.3", true),
            ("0.0.0-rc.1+build.01", true),
            ("1.2", false),
            ("01.2.3", false),
            ("1.2.3-01", false),
            ("1.2.3-", false),
            ("1.2.3+", false),
            ("", false),
        ] {
            assert_eq!(is_semantic_version(text), expected, "{text}");
        }
    }
}
