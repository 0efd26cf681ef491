//! The deletion of definitions: their objects go first.

use revstore_watch_cache::registry::{
    DeleteRequest, Deleted, JsonObject, ObjectStore, WriteRequest,
};
use revstore_watch_cache::{ListOptions, ObjectRef, RequestError, ResourceCache, Scope};
use serde_json::{Value, json};

use super::condition;
use super::status::set_condition;

/// The finalizer that holds a definition until its objects are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The stores of definitions: with the strategy [`Definitions`](super::Definitions), and with
/// [`DefinitionStatus`](super::DefinitionStatus).
#[derive(Clone, Copy, Debug)]
pub struct DefinitionStores<'a> {
    /// The store of definitions.
    pub definitions: &'a ObjectStore,
    /// The store of their status.
    pub status: &'a ObjectStore,
}

/// The objects of a definition.
#[derive(Clone, Copy, Debug)]
pub struct Instances<'a> {
    /// The cache, which lists them.
    pub cache: &'a ResourceCache,
    /// The store, which deletes them.
    pub store: &'a ObjectStore,
}

/// How far the deletion of a definition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The definition does not exist, or is not being deleted.
    Nothing,
    /// So many objects are held by finalizers. Try again when one of them is removed.
    Waiting(usize),
    /// The objects and the definition are removed.
    Removed,
}

fn metadata<'a>(definition: &'a JsonObject, name: &str) -> Option<&'a Value> {
    definition
        .get("metadata")?
        .get(name)
        .filter(|value| !value.is_null())
}

fn is_terminating(definition: &JsonObject) -> bool {
    metadata(definition, "deletionTimestamp").is_some()
}

fn finalizers(definition: &JsonObject) -> Vec<Value> {
    let list = metadata(definition, "finalizers").and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

fn set_finalizers(definition: &mut JsonObject, finalizers: Vec<Value>) {
    if let Some(metadata) = definition
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
    {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

/// Begins the deletion of a definition, for a request to delete it. The definition gets a finalizer
/// first, so that it is removed by [`finish_deletion`]. `now` is the time in RFC 3339.
///
/// # Errors
/// As [`ObjectStore::delete`].
pub async fn begin_deletion(
    stores: DefinitionStores<'_>,
    name: &str,
    request: &DeleteRequest,
    now: &str,
) -> Result<Deleted, RequestError> {
    let reference = ObjectRef::cluster(name);
    let wanted = &request.preconditions;
    let mut holds = true;
    let mark = |current: Option<&JsonObject>| {
        let mut definition = current.cloned().unwrap_or_default();
        let is = |name: &str, wanted: &Option<String>| {
            let found = metadata(&definition, name).and_then(Value::as_str);
            wanted.is_none() || wanted.as_deref() == found
        };
        holds = is("uid", &wanted.uid) && is("resourceVersion", &wanted.resource_version);
        if holds && !is_terminating(&definition) {
            let mut list = finalizers(&definition);
            if !list.contains(&json!(CLEANUP_FINALIZER)) {
                list.push(json!(CLEANUP_FINALIZER));
                set_finalizers(&mut definition, list);
            }
            let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
            set_condition(
                &mut definition,
                "Terminating",
                "True",
                "InstanceDeletionPending",
                message,
                now,
            );
        }
        Ok(definition)
    };
    let write = WriteRequest::default().dry_run(request.dry_run);
    stores.status.update_with(&reference, &write, mark).await?;
    let mut request = request.clone();
    if holds && !request.dry_run {
        // The mark has changed the version.
        request.preconditions.resource_version = None;
    }
    stores.definitions.delete(&reference, &request).await
}

/// Goes on with the deletion of a definition that has begun: deletes its objects, and removes it when
/// there are none. `instances` is `None` if the resource was never served.
///
/// Call it for each definition that is being deleted: when its deletion begins, after each removal of an
/// object while it is [`Progress::Waiting`], and after a start of the server.
///
/// # Errors
/// Errors of the stores. Try again after a pause.
pub async fn finish_deletion(
    status: &ObjectStore,
    name: &str,
    instances: Option<Instances<'_>>,
    now: &str,
) -> Result<Progress, RequestError> {
    let reference = ObjectRef::cluster(name);
    let mut is_deleted = false;
    let mut is_established = false;
    let began = update(status, &reference, |definition| {
        is_deleted = is_terminating(definition)
            && finalizers(definition).contains(&json!(CLEANUP_FINALIZER));
        is_established = condition(definition, "Established") == Some("True");
        if is_deleted {
            let message = "CustomResource deletion is in progress";
            set_condition(
                definition,
                "Terminating",
                "True",
                "InstanceDeletionInProgress",
                message,
                now,
            );
        }
    });
    if !began.await? || !is_deleted {
        return Ok(Progress::Nothing);
    }
    let (reason, message) = match instances {
        Some(instances) if is_established => match delete_instances(instances).await {
            Ok(0) => ("InstanceDeletionCompleted", "removed all instances"),
            Ok(left) => return Ok(Progress::Waiting(left)),
            Err(error) => {
                let failed = format!("could not issue all deletes: {error}");
                let reported = update(status, &reference, |definition| {
                    set_condition(
                        definition,
                        "Terminating",
                        "True",
                        "InstanceDeletionFailed",
                        &failed,
                        now,
                    );
                });
                reported.await?;
                return Err(error);
            }
        },
        _ => ("NeverEstablished", "resource was never established"),
    };
    let removed = update(status, &reference, |definition| {
        set_condition(definition, "Terminating", "False", reason, message, now);
        let mut list = finalizers(definition);
        list.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
        set_finalizers(definition, list);
    });
    removed.await?;
    Ok(Progress::Removed)
}

/// Changes a definition. Returns `false` if it does not exist.
async fn update(
    status: &ObjectStore,
    reference: &ObjectRef,
    mut change: impl FnMut(&mut JsonObject) + Send,
) -> Result<bool, RequestError> {
    let request = WriteRequest::default();
    let written = status.update_with(reference, &request, |current| {
        let mut definition = current.cloned().unwrap_or_default();
        change(&mut definition);
        Ok(definition)
    });
    match written.await {
        Ok(_) => Ok(true),
        Err(RequestError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes the objects of a definition. Returns how many are held by finalizers.
async fn delete_instances(instances: Instances<'_>) -> Result<usize, RequestError> {
    let list = instances
        .cache
        .list(&Scope::All, &ListOptions::default())
        .await?;
    let mut held = 0;
    for object in list.into_objects()? {
        let reference = ObjectRef {
            namespace: Some(object.namespace().to_owned())
                .filter(|namespace| !namespace.is_empty()),
            name: object.name().to_owned(),
        };
        match instances
            .store
            .delete(&reference, &DeleteRequest::default())
            .await
        {
            Ok(Deleted::Terminating(_)) => held += 1,
            Ok(_) | Err(RequestError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(held)
}
