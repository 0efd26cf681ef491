//! Validation of the sources that volumes of pods and persistent volumes have in common.

use revstore_watch_cache::status::StatusCause;

use super::container::{check_no_backsteps, check_relative};
use crate::builtin::causes::Causes;
use crate::builtin::field::Field;
use crate::builtin::names;

/// Checks the source of a volume of a pod.
pub(super) fn check(name: &str, source: &Field<'_>, causes: &mut Causes) {
    match name {
        "hostPath" => {
            let path = source.child("path");
            if causes.check_required(&path) {
                check_no_backsteps(&path, causes);
                check_host_path_type(&source.child("type"), causes);
            }
        }
        "gitRepo" => {
            causes.check_required(&source.child("repository"));
            check_relative(&source.child("directory"), causes);
        }
        "gcePersistentDisk" => {
            check_disk(&source.child("pdName"), source, causes);
        }
        "awsElasticBlockStore" => check_disk(&source.child("volumeID"), source, causes),
        "nfs" => {
            causes.check_required(&source.child("server"));
            let path = source.child("path");
            causes.check_required(&path);
            if !path.text().starts_with('/') {
                let detail = "must be an absolute path";
                causes.invalid_at(path.path(), path.text(), detail);
            }
        }
        "iscsi" => check_iscsi(
            source,
            "must be valid format starting with iqn, eui, or naa",
            causes,
        ),
        "glusterfs" => check_all(source, &["endpoints", "path"], causes),
        "flocker" => check_flocker(source, causes),
        "rbd" => check_all(source, &["monitors", "image"], causes),
        "cinder" => {
            causes.check_required(&source.child("volumeID"));
            check_secret(&source.child("secretRef"), &["name"], causes);
        }
        "cephfs" => check_all(source, &["monitors"], causes),
        "quobyte" => check_quobyte(source, causes),
        "fc" => check_fibre_channel(source, causes),
        "flexVolume" => check_flex(source, causes),
        "azureFile" => check_all(source, &["secretName", "shareName"], causes),
        "vsphereVolume" => check_all(source, &["volumePath"], causes),
        "photonPersistentDisk" => check_all(source, &["pdID"], causes),
        "portworxVolume" => check_all(source, &["volumeID"], causes),
        "azureDisk" => check_azure_disk(source, causes),
        "storageos" => check_storage_os(source, &["name"], causes),
        "scaleIO" => check_all(source, &["gateway", "system", "volumeName"], causes),
        "csi" => {
            check_csi_driver_name(&source.child("driver"), causes);
            let secret = source.child("nodePublishSecretRef");
            if secret.is_set() && causes.check_required(&secret.child("name")) {
                let name = secret.child("name").placed(&source.child("name"));
                causes.check_text(&name, names::subdomain_error);
            }
        }
        _ => {}
    }
}

/// Checks the source of a persistent volume with a name.
pub(in crate::builtin) fn check_persistent(
    name: &str,
    source: &Field<'_>,
    volume: &str,
    causes: &mut Causes,
) {
    match name {
        "glusterfs" => {
            check(name, source, causes);
            let namespace = source.child("endpointsNamespace");
            if namespace.is_set() && namespace.text().is_empty() {
                let detail = "if the endpointnamespace is set, it must be a valid namespace name";
                causes.invalid(&namespace, detail);
            }
            causes.check_text(&namespace, names::dns_label_error);
        }
        "iscsi" => check_persistent_iscsi(source, volume, causes),
        "cinder" => {
            causes.check_required(&source.child("volumeID"));
            check_secret(&source.child("secretRef"), &["name", "namespace"], causes);
        }
        "azureFile" => {
            check(name, source, causes);
            let namespace = source.child("secretNamespace");
            if namespace.is_set() {
                causes.check_required(&namespace);
            }
        }
        "storageos" => check_storage_os(source, &["name", "namespace"], causes),
        "local" => {
            if causes.check_required(&source.child("path")) {
                check_no_backsteps(&source.child("path"), causes);
            }
        }
        "csi" => check_persistent_csi(source, causes),
        _ => check(name, source, causes),
    }
}

/// Checks that members of a source are set.
fn check_all(source: &Field<'_>, members: &[&'static str], causes: &mut Causes) {
    for member in members {
        causes.check_required(&source.child(member));
    }
}

/// Checks that members of a reference to a secret are set, if there is one.
fn check_secret(secret: &Field<'_>, members: &[&'static str], causes: &mut Causes) {
    if secret.is_set() {
        check_all(secret, members, causes);
    }
}

fn check_host_path_type(kind: &Field<'_>, causes: &mut Causes) {
    causes.check_one_of(
        kind,
        &[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ],
    );
}

/// Checks a disk with partitions.
fn check_disk(id: &Field<'_>, source: &Field<'_>, causes: &mut Causes) {
    causes.check_required(id);
    let detail = "must be between 1 and 255, inclusive";
    causes.check_range(&source.child("partition"), 0, 255, detail);
}

/// Returns whether the name of a node of iSCSI has one of its three forms, and the prefix of one.
fn iscsi_form(name: &str) -> (bool, bool) {
    let rest = |prefix| name.strip_prefix(prefix);
    if rest("iqn").is_some() {
        (is_qualified_iscsi(name), true)
    } else if let Some(rest) = rest("eui") {
        (is_numbered_iscsi(rest, 16), true)
    } else if let Some(rest) = rest("naa") {
        (is_numbered_iscsi(rest, 32), true)
    } else {
        (false, false)
    }
}

/// Returns whether the rest of a name is any letter and a number of letters and digits.
fn is_numbered_iscsi(rest: &str, len: usize) -> bool {
    let mut letters = rest.chars();
    letters.next().is_some_and(|letter| letter != '\n')
        && letters.as_str().len() == len
        && letters.all(|letter| letter.is_ascii_alphanumeric())
}

/// Returns whether a name ends as `iqn.2001-04.com.example:storage`.
fn is_qualified_iscsi(name: &str) -> bool {
    name.match_indices("iqn.").any(|(index, _)| {
        let rest = &name.as_bytes()[index + 4..];
        let is_digit = |at: usize| rest.get(at).is_some_and(u8::is_ascii_digit);
        let is = |at: usize, byte: u8| rest.get(at) == Some(&byte);
        let dated =
            (0..4).all(is_digit) && is(4, b'-') && is_digit(5) && is_digit(6) && is(7, b'.');
        let Some((authority, target)) = rest
            .get(8..)
            .filter(|_| dated)
            .and_then(|rest| std::str::from_utf8(rest).ok())
            .and_then(|rest| rest.split_once(':'))
        else {
            return false;
        };
        let is_authority = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        let is_target = |letter: char| !",;*&$|".contains(letter) && !letter.is_ascii_whitespace();
        !authority.is_empty()
            && authority.bytes().all(is_authority)
            && !target.is_empty()
            && target.chars().all(is_target)
    })
}

fn check_iscsi(source: &Field<'_>, unknown: &str, causes: &mut Causes) {
    causes.check_required(&source.child("targetPortal"));
    check_iscsi_target(source, unknown, causes);
    check_initiator(source, unknown, causes);
}

fn check_iscsi_target(source: &Field<'_>, unknown: &str, causes: &mut Causes) {
    let name = source.child("iqn");
    if causes.check_required(&name) {
        match iscsi_form(name.text()) {
            (true, _) => {}
            (false, true) => causes.invalid(&name, "must be valid format"),
            (false, false) => causes.invalid(&name, unknown),
        }
    }
    let detail = "must be between 0 and 255, inclusive";
    causes.check_range(&source.child("lun"), 0, 255, detail);
    let authenticates = ["chapAuthDiscovery", "chapAuthSession"]
        .iter()
        .any(|name| source.child(name).flag());
    let secret = source.child("secretRef");
    if authenticates && !secret.is_set() {
        causes.required(&secret, "");
    }
}

fn check_initiator(source: &Field<'_>, unknown: &str, causes: &mut Causes) {
    let initiator = source.child("initiatorName");
    if !initiator.is_set() {
        return;
    }
    let initiator = initiator.placed(&source.child("initiatorname"));
    match iscsi_form(initiator.text()) {
        (true, _) => {}
        (false, true) => causes.invalid(&initiator, "must be valid format"),
        (false, false) => causes.invalid(&initiator, unknown),
    }
}

/// The maximum length of the name of a volume and its portal with a colon between them.
const PORTAL_BYTES_MAX: usize = 64;

/// Checks that the name of a volume and its portal are short enough for the name of an initiator. `field` has
/// the path and the value of the cause.
pub(super) fn check_portal_length(
    field: &Field<'_>,
    volume: &str,
    source: &Field<'_>,
    causes: &mut Causes,
) {
    if volume.len() + 1 + source.child("targetPortal").text().len() > PORTAL_BYTES_MAX {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        causes.invalid(field, detail);
    }
}

fn check_persistent_iscsi(source: &Field<'_>, volume: &str, causes: &mut Causes) {
    let portal = source.child("targetPortal");
    causes.check_required(&portal);
    if source.child("initiatorName").is_set() {
        let field = portal.placed(&source.child("targetportal"));
        check_portal_length(&field, volume, source, causes);
    }
    let unknown = "must be valid format";
    check_iscsi_target(source, unknown, causes);
    check_secret(&source.child("secretRef"), &["name"], causes);
    check_initiator(source, unknown, causes);
}

fn check_flocker(source: &Field<'_>, causes: &mut Causes) {
    let (name, uuid) = (source.child("datasetName"), source.child("datasetUUID"));
    match (name.text().is_empty(), uuid.text().is_empty()) {
        (true, true) => {
            causes.required(source, "one of datasetName and datasetUUID is required");
        }
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            causes.invalid_at(source.path(), "resource", detail);
        }
        _ => {}
    }
    if name.text().contains('/') {
        causes.invalid(&name, "must not contain '/'");
    }
}

/// The length that the tenant of a volume of Quobyte must stay below.
const TENANT_BYTES_BELOW: usize = 65;

fn check_quobyte(source: &Field<'_>, causes: &mut Causes) {
    let (registry, tenant) = (source.child("registry"), source.child("tenant"));
    let detail = "must be a host:port pair or multiple pairs separated by commas";
    if registry.text().is_empty() {
        causes.required(&registry, detail);
    } else if tenant.text().len() >= TENANT_BYTES_BELOW {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        causes.required(&tenant, detail);
    } else {
        for pair in registry.text().split(',') {
            if !is_host_port(pair) {
                causes.invalid(&registry, detail);
            }
        }
    }
    causes.check_required(&source.child("volume"));
}

/// Returns whether a text is a host, in brackets if it has colons, and a port.
fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let plain = bracketed.unwrap_or(host);
    !plain.contains(['[', ']'])
        && !port.contains(['[', ']'])
        && (bracketed.is_some() || !host.contains(':'))
}

fn check_fibre_channel(source: &Field<'_>, causes: &mut Causes) {
    let (names, ids) = (source.child("targetWWNs"), source.child("wwids"));
    match (names.len(), ids.len()) {
        (0, 0) => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            causes.required(&names, detail);
        }
        (0, _) | (_, 0) => {}
        _ => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            causes.invalid(&names, detail);
        }
    }
    if names.len() == 0 {
        return;
    }
    let lun = source.child("lun");
    if !lun.is_set() {
        causes.required(&lun, "lun is required if targetWWNs is specified");
    }
    causes.check_range(&lun, 0, 255, "must be between 0 and 255, inclusive");
}

fn check_flex(source: &Field<'_>, causes: &mut Causes) {
    causes.check_required(&source.child("driver"));
    for (key, option) in source.child("options").entries() {
        let domain = key.split('/').next().unwrap_or_default().to_lowercase();
        let domain = format!(".{domain}");
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            causes.invalid_at(option.path(), key, detail);
        }
    }
}

fn check_azure_disk(source: &Field<'_>, causes: &mut Causes) {
    let (uri, kind) = (source.child("diskURI"), source.child("kind"));
    causes.check_required(&source.child("diskName"));
    causes.check_required(&uri);
    causes.check_one_of(
        &source.child("cachingMode"),
        &["None", "ReadOnly", "ReadWrite"],
    );
    causes.check_one_of(&kind, &["Dedicated", "Managed", "Shared"]);
    let (start, form) = match kind.text() {
        "" => return,
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !uri.text().starts_with(start) {
        causes.not_supported(&uri, &[form]);
    }
}

fn check_storage_os(source: &Field<'_>, secret: &[&'static str], causes: &mut Causes) {
    causes.check_required_label(&source.child("volumeName"));
    causes.check_text(&source.child("volumeNamespace"), names::dns_label_error);
    check_secret(&source.child("secretRef"), secret, causes);
}

/// The maximum length of the name of a driver.
const DRIVER_BYTES_MAX: usize = 63;

/// Checks the name of a driver of volumes.
pub(in crate::builtin) fn check_csi_driver_name(name: &Field<'_>, causes: &mut Causes) {
    if !causes.check_required(name) {
        return;
    }
    if name.text().len() > DRIVER_BYTES_MAX {
        causes.push(StatusCause::too_long(name.path(), DRIVER_BYTES_MAX));
    }
    if let Some(detail) = names::subdomain_error(&name.text().to_lowercase()) {
        causes.invalid(name, &detail);
    }
}

fn check_persistent_csi(source: &Field<'_>, causes: &mut Causes) {
    check_csi_driver_name(&source.child("driver"), causes);
    causes.check_required(&source.child("volumeHandle"));
    for name in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let secret = source.child(name);
        if !secret.is_set() {
            continue;
        }
        if causes.check_required(&secret.child("name")) {
            causes.check_text(&secret.child("name"), names::subdomain_error);
        }
        causes.check_required_label(&secret.child("namespace"));
    }
}
