//! The objects that exist on a fresh server.

use futures_util::{StreamExt, TryStreamExt, stream};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::{GetOptions, ObjectRef};
use revstore_watch_cache::registry::{JsonObject, WriteRequest};
use revstore_watch_cache::source::{ConditionalWrite, WriteAction};
use serde_json::{Value, json};

use crate::allocation::empty_node_ports;
use crate::catalog::Catalog;
use crate::storage::Storage;
use crate::verbs::Tracker;

/// The namespaces of a fresh server.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The priority classes of a fresh server: their names, values and descriptions, which are those of kube-apiserver.
const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];
/// The name of the service of the server itself, and of the object with the ranges of addresses.
const KUBERNETES: &str = "kubernetes";

/// The number of objects that are written at the same time. With all of them in turn, the start of a server over an etcd
/// cluster would be mostly waits for single answers.
const WRITES_MAX: usize = 32;

/// Makes writes of objects that do not need each other, many at the same time. Returns their results in their order.
///
/// # Errors
/// That of the first write that fails. Others may have been made.
pub(crate) async fn together<T>(
    writes: impl IntoIterator<Item = impl Future<Output = Result<T, RequestError>>>,
) -> Result<Vec<T>, RequestError> {
    // Collected because the type of a lazy iterator is too general for the compiler across awaits.
    let writes: Vec<_> = writes.into_iter().collect();
    stream::iter(writes)
        .buffered(WRITES_MAX)
        .try_collect()
        .await
}

/// Creates the objects of a fresh server that do not exist. `port` is that of the server.
pub(crate) async fn create(
    catalog: &Catalog,
    storage: &Storage,
    port: u16,
) -> Result<(), RequestError> {
    let now = (storage.now())();
    for name in NAMESPACES {
        let namespace = json!({"metadata": {"name": name}});
        create_one(catalog, ("", "namespaces"), "", namespace, &now).await?;
    }
    for (name, value, description) in SYSTEM_CLASSES {
        let names = ("scheduling.k8s.io", "priorityclasses");
        let class = json!({"metadata": {"name": name}, "value": value, "description": description});
        create_one(catalog, names, "", class, &now).await?;
    }
    create_node_ports(storage).await?;
    create_ranges(catalog, storage).await?;
    create_service(catalog, storage, port).await
}

/// Creates the bitmap of ports of the nodes, which kube-apiserver expects.
async fn create_node_ports(storage: &Storage) -> Result<(), RequestError> {
    let write = ConditionalWrite {
        key: storage.service_allocator(true).node_ports_key(),
        expected: None,
        action: WriteAction::Put {
            value: empty_node_ports(storage.ranges().ports)?,
            time_to_live: None,
        },
    };
    // It may exist.
    let written = storage.source().write(write).await;
    written
        .map(drop)
        .map_err(|error| RequestError::Internal(error.to_string()))
}

/// Creates the object with the ranges of the flags, which is ready at once.
async fn create_ranges(catalog: &Catalog, storage: &Storage) -> Result<(), RequestError> {
    let names = ("networking.k8s.io", "servicecidrs");
    let now = (storage.now())();
    let addresses = storage.ranges().addresses.iter();
    let cidrs: Vec<String> = addresses.map(ToString::to_string).collect();
    let object = json!({"metadata": {"name": KUBERNETES}, "spec": {"cidrs": cidrs}});
    if !create_one(catalog, names, "", object, &now).await? {
        return Ok(());
    }
    let condition = json!({
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
    });
    let Ok(resource) = catalog.find(names.0, "v1", names.1) else {
        return Ok(());
    };
    let Some(status) = resource
        .stored
        .as_ref()
        .and_then(|stored| stored.status.as_ref())
    else {
        return Ok(());
    };
    let tracker = Tracker::of_server(&resource, "status", now);
    let change = |old: Option<&JsonObject>| {
        let mut new = old.cloned().unwrap_or_default();
        new.insert("status".to_owned(), json!({"conditions": [condition]}));
        tracker.track(old, &mut new);
        Ok(new)
    };
    let reference = ObjectRef::cluster(KUBERNETES);
    let request = WriteRequest::default();
    let written = status.update_with(&reference, &request, change);
    written.await.map(drop)
}

/// Creates the service of the server itself. It has the first address for services.
async fn create_service(
    catalog: &Catalog,
    storage: &Storage,
    port: u16,
) -> Result<(), RequestError> {
    let now = (storage.now())();
    let address = storage.ranges().addresses.first();
    let service = json!({
        "metadata": {
            "name": KUBERNETES,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address.map(|range| range.first().to_string()),
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    let exists = async || -> Result<bool, RequestError> {
        let Some(stored) = catalog
            .find("", "v1", "services")
            .ok()
            .and_then(|it| it.stored.clone())
        else {
            return Ok(true);
        };
        let reference = ObjectRef::namespaced("default", KUBERNETES);
        let found = stored.cache.get(&reference, &GetOptions::default()).await?;
        Ok(found.is_some())
    };
    if exists().await? {
        return Ok(());
    }
    match create_one(catalog, ("", "services"), "default", service, &now).await {
        // Another server was faster: the address is taken before the name is.
        Err(_) if exists().await? => Ok(()),
        created => created.map(drop),
    }
}

/// Creates an object of a group and resource. Returns whether it did not exist.
pub(crate) async fn create_one(
    catalog: &Catalog,
    (group, plural): (&str, &str),
    namespace: &str,
    object: Value,
    now: &str,
) -> Result<bool, RequestError> {
    let Ok(resource) = catalog.find(group, "v1", plural) else {
        return Ok(false);
    };
    let (Some(stored), Value::Object(object)) = (&resource.stored, object) else {
        return Ok(false);
    };
    let mut object: JsonObject = object;
    resource.rules.conform(&mut object)?;
    Tracker::of_server(&resource, "", now.to_owned()).track(None, &mut object);
    match stored
        .store
        .create(namespace, object, &WriteRequest::default())
        .await
    {
        Ok(_) => Ok(true),
        Err(RequestError::AlreadyExists { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
