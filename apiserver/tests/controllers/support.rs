//! Objects, and waiting for what controllers do with them.

use revstore_apiserver::auth::AuthorizationMode;
use revstore_apiserver::{ApiServer, Controllers};
use serde_json::{Value, json};

use crate::client::{Watch, send, value};

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
/// The seconds after which something that a controller has not done is a failure.
const LIMIT_SECONDS: u32 = 120;

pub(crate) fn started(controllers: &str) -> ApiServer {
    let controllers: Controllers = controllers.parse().expect("known names");
    // The service accounts of the controllers need rights, as in a cluster.
    let builder = ApiServer::builder()
        .https(None)
        .authorization_mode(AuthorizationMode::Rbac)
        .controllers(controllers);
    builder.start().expect("the server starts")
}

pub(crate) fn get(server: &ApiServer, path: &str) -> (u16, Value) {
    value(&send(server, "GET", path, ""))
}

/// Creates an object, and returns it.
pub(crate) fn create(server: &ApiServer, path: &str, object: &Value) -> Value {
    let (code, created) = value(&send(server, "POST", path, &object.to_string()));
    assert_eq!(code, 201, "{path}: {created}");
    created
}

/// Creates an object with a name and owners.
pub(crate) fn create_owned(server: &ApiServer, path: &str, name: &str, owners: &[Value]) -> Value {
    let object = json!({"metadata": {"name": name, "ownerReferences": owners}});
    create(server, path, &object)
}

pub(crate) fn patch(server: &ApiServer, path: &str, change: &Value) -> Value {
    let (code, patched) = value(&send(server, "PATCH", path, &change.to_string()));
    assert_eq!(code, 200, "{path}: {patched}");
    patched
}

pub(crate) fn delete(server: &ApiServer, path: &str, policy: &str) {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    let (code, answer) = value(&send(server, "DELETE", path, &options.to_string()));
    assert_eq!(code, 200, "{path}: {answer}");
}

/// Returns a reference to an owner that waits for its dependents.
pub(crate) fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    })
}

/// Waits until an object is as it should be; `None` is one that does not exist. Returns it.
pub(crate) fn wait(
    server: &ApiServer,
    collection: &str,
    name: &str,
    is_done: impl Fn(Option<&Value>) -> bool,
) -> Option<Value> {
    let selected = format!("{collection}?fieldSelector=metadata.name%3D{name}");
    let (code, list) = get(server, &selected);
    assert_eq!(code, 200, "{selected}: {list}");
    let mut seen = list["items"].get(0).cloned();
    if is_done(seen.as_ref()) {
        return seen;
    }
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    let path =
        format!("{selected}&watch=1&resourceVersion={version}&timeoutSeconds={LIMIT_SECONDS}");
    let mut watch = Watch::open(server, &path);
    while let Some(event) = watch.next() {
        assert_ne!(event["type"], "ERROR", "{event}");
        seen = (event["type"] != "DELETED").then(|| event["object"].clone());
        if is_done(seen.as_ref()) {
            return seen;
        }
    }
    panic!("{collection}/{name} did not become as it should be: {seen:?}")
}

/// Waits until an object does not exist.
pub(crate) fn wait_gone(server: &ApiServer, collection: &str, name: &str) {
    wait(server, collection, name, |object| object.is_none());
}

/// Waits until a collection is empty.
pub(crate) fn wait_empty(server: &ApiServer, collection: &str) {
    loop {
        let (_, list) = get(server, &format!("{collection}?limit=1"));
        let Some(first) = list["items"].get(0) else {
            return;
        };
        wait_gone(
            server,
            collection,
            first["metadata"]["name"].as_str().unwrap_or_default(),
        );
    }
}

pub(crate) fn is_deleting(object: Option<&Value>) -> bool {
    object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
}

/// Creates the definition of `widgets.example.com`, and waits until it is established.
pub(crate) fn define_widgets(server: &ApiServer) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        },
    });
    create(server, path, &definition);
    wait(server, path, "widgets.example.com", |object| {
        let conditions = object.and_then(|object| object["status"]["conditions"].as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
    });
}

/// Returns a new custom resource.
pub(crate) fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}})
}
