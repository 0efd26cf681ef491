//! Whether the objects that a token names still exist.

use revstore_watch_cache::Object;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::claims::{Claims, LEEWAY_SECONDS, Reference};
use crate::catalog::Catalog;

/// Checks that the service account of a token, and the object to which it is bound, exist with the same uid, and were not
/// deleted before a time of leeway. A server over a network reads its cache, and asks the store only if that differs.
///
/// # Errors
/// Why the token is invalid.
pub(crate) async fn check_objects(
    catalog: &Catalog,
    is_remote: bool,
    claims: &Claims,
    now: i64,
) -> Result<(), String> {
    let namespace = claims.namespace.as_str();
    let invalidated = "service account token has been invalidated";
    // The node of a pod is only a note.
    let node = claims.node.as_ref().filter(|_| claims.pod.is_none());
    let bound = [
        ("secrets", "secret", namespace, claims.secret.as_ref()),
        ("pods", "pod", namespace, claims.pod.as_ref()),
        ("nodes", "node", "", node),
    ];
    let account = Some(&claims.account);
    let account = [("serviceaccounts", "service account", namespace, account)];
    for (plural, kind, namespace, reference) in account.into_iter().chain(bound) {
        let Some(reference) = reference else {
            continue;
        };
        let mut state = State::Absent;
        let versions: &[&str] = if is_remote { &["0", ""] } else { &[""] };
        for version in versions {
            state = read(catalog, plural, namespace, reference, version, now).await?;
            if matches!(state, State::Live) {
                break;
            }
        }
        let Reference { name, uid } = reference;
        let is_account = plural == "serviceaccounts";
        match state {
            State::Live => {}
            State::Absent if is_account => return Err(format!("{plural} {name:?} not found")),
            State::Deleted if is_account => {
                return Err(format!("{kind} {namespace}/{name} has been deleted"));
            }
            State::Absent | State::Deleted => return Err(invalidated.to_owned()),
            State::Other(found) if is_account => {
                return Err(format!(
                    "service account UID ({found}) does not match claim ({uid})"
                ));
            }
            State::Other(found) => {
                return Err(format!(
                    "{kind} UID ({found}) does not match service account {kind} ref claim ({uid})"
                ));
            }
        }
    }
    Ok(())
}

/// What became of an object.
enum State {
    Live,
    Absent,
    Deleted,
    /// There is another one with the name, which has this uid.
    Other(String),
}

async fn read(
    catalog: &Catalog,
    plural: &str,
    namespace: &str,
    reference: &Reference,
    version: &str,
    now: i64,
) -> Result<State, String> {
    let absent = Ok(State::Absent);
    let Ok(resource) = catalog.find("", "v1", plural) else {
        return absent;
    };
    let Some(stored) = &resource.stored else {
        return absent;
    };
    let name = reference.name.as_str();
    if name.is_empty() || (resource.namespaced && namespace.is_empty()) {
        return absent;
    }
    let object = if resource.namespaced {
        ObjectRef::namespaced(namespace, name)
    } else {
        ObjectRef::cluster(name)
    };
    let options = GetOptions::default().resource_version(version);
    let found = stored.cache.get(&object, &options).await;
    let Some(found) = found.map_err(|error| error.to_string())? else {
        return absent;
    };
    let uid = found.stored().uid();
    if uid != reference.uid {
        return Ok(State::Other(uid.to_owned()));
    }
    let limit = OffsetDateTime::from_unix_timestamp(now - LEEWAY_SECONDS);
    let limit = limit.ok().and_then(|limit| limit.format(&Rfc3339).ok());
    // Texts of the same form, whose order is that of the times.
    let is_deleted = deleted_at(&found).is_some_and(|time| limit.is_some_and(|limit| time < limit));
    Ok(if is_deleted {
        State::Deleted
    } else {
        State::Live
    })
}

/// Returns the time at which an object is or was deleted.
fn deleted_at(object: &Object) -> Option<String> {
    let json = object.to_json();
    // Nearly no object has the field, and most need not be read.
    let field = b"\"deletionTimestamp\"";
    json.windows(field.len()).find(|window| window == field)?;
    let value: Value = serde_json::from_slice(&json).ok()?;
    let time = value["metadata"]["deletionTimestamp"].as_str()?;
    Some(time.to_owned())
}
