//! Config maps, secrets and service accounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::StatusCause;

use crate::builtin::causes::Causes;
use crate::builtin::edit;
use crate::builtin::field::Field;
use crate::builtin::names;
use crate::builtin::rules::Kind;

/// The maximum size of the data of a config map or a secret.
const DATA_BYTES_MAX: usize = 1 << 20;
/// The text about a change of an object that is marked as immutable.
const MARKED_IMMUTABLE: &str = "field is immutable when `immutable` is set";

pub(super) const KINDS: &[Kind] = &[
    Kind {
        validate: check_config_map,
        validate_update: |new, old, causes| {
            check_marked(new, old, &["data", "binaryData"], causes);
        },
        ..Kind::new("", "ConfigMap")
    },
    Kind {
        default: default_secret,
        validate: check_secret,
        validate_update: |new, old, causes| {
            causes.check_immutable(&new.child("type"), &old.child("type"));
            check_marked(new, old, &["data"], causes);
        },
        ..Kind::new("", "Secret")
    },
    Kind::new("", "ServiceAccount"),
];

/// Moves the plain texts of a secret to its data.
fn default_secret(secret: &mut JsonObject) {
    edit::set_zero(secret, "type", "Opaque");
    let Some(Value::Object(texts)) = secret.remove("stringData") else {
        return;
    };
    if texts.is_empty() {
        return;
    }
    if let Some(data) = edit::ensure(secret, "data") {
        for (key, text) in texts {
            let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
            data.insert(key, encoded.into());
        }
    }
}

/// Returns the number of bytes of a text in base64.
fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count()
}

fn check_keys(data: &Field<'_>, causes: &mut Causes) {
    for (key, value) in data.entries() {
        if let Some(detail) = names::config_key_error(key) {
            causes.invalid_at(value.path(), key, &detail);
        }
    }
}

fn check_config_map(map: &Field<'_>, causes: &mut Causes) {
    let (data, binary) = (map.child("data"), map.child("binaryData"));
    check_keys(&data, causes);
    check_keys(&binary, causes);
    let mut size = 0;
    for (key, value) in data.entries() {
        size += value.text().len();
        if binary.key(key).is_set() {
            let detail = "duplicate of key present in binaryData";
            causes.invalid_at(value.path(), key, detail);
        }
    }
    for (_, value) in binary.entries() {
        size += decoded_len(value.text());
    }
    if size > DATA_BYTES_MAX {
        causes.push(StatusCause::too_long("[]", DATA_BYTES_MAX));
    }
}

/// The keys that a secret of a type must have.
const REQUIRED_KEYS: [(&str, &[&str]); 5] = [
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/basic-auth", &["username", "password"]),
];
/// The annotation that names the account of a token.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

fn check_secret(secret: &Field<'_>, causes: &mut Causes) {
    let data = secret.child("data");
    check_keys(&data, causes);
    let size: usize = data
        .entries()
        .map(|(_, value)| decoded_len(value.text()))
        .sum();
    if size > DATA_BYTES_MAX {
        causes.push(StatusCause::too_long("data", DATA_BYTES_MAX));
    }
    let kind = secret.child("type").text();
    if kind == "kubernetes.io/service-account-token" {
        causes.check_required(&secret.at(&["metadata", "annotations"]).key(ACCOUNT_NAME));
    }
    let required = REQUIRED_KEYS.iter().find(|(of, _)| *of == kind);
    let Some((_, required)) = required else {
        return;
    };
    // One of the two is enough.
    let either = kind == "kubernetes.io/basic-auth";
    if either && required.iter().any(|key| data.key(key).is_set()) {
        return;
    }
    for key in *required {
        let value = data.key(key);
        let key_is_empty = kind.ends_with("ssh-auth") && value.text().is_empty();
        if !value.is_set() || key_is_empty {
            causes.required(&value, "");
        } else if kind.contains("docker") && !is_json_object(value.text()) {
            let detail = "must be a JSON object";
            causes.invalid_at(value.path(), "<secret contents redacted>", detail);
        }
    }
}

fn is_json_object(encoded: &str) -> bool {
    let decoded = STANDARD.decode(encoded).unwrap_or_default();
    serde_json::from_slice::<JsonObject>(&decoded).is_ok()
}

fn check_marked(new: &Field<'_>, old: &Field<'_>, fields: &[&'static str], causes: &mut Causes) {
    if !old.child("immutable").flag() {
        return;
    }
    if !new.child("immutable").flag() {
        causes.forbidden(&new.child("immutable"), MARKED_IMMUTABLE);
    }
    for name in fields {
        if !new.child(name).equals(&old.child(name)) {
            causes.forbidden(&new.child(name), MARKED_IMMUTABLE);
        }
    }
}
