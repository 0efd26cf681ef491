//! The objects of the loads, and their paths.

use bytes::Bytes;
use serde_json::Value;

use crate::BoxError;
use crate::kube::client::{Call, Connection};

/// The namespace of the objects.
pub(crate) const NAMESPACE: &str = "load";

/// The length of the values in objects.
const VALUE_BYTES: usize = 1_000;

pub(crate) const OBJECTS: &str = "/api/v1/namespaces/load/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/load/pods";
pub(crate) const CUSTOM: &str = "/apis/load.example.org/v1/namespaces/load/widgets";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) fn namespace(name: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#)
}

pub(crate) fn name(number: u64) -> String {
    format!("cm-{number:05}")
}

pub(crate) fn path(number: u64) -> String {
    format!("{OBJECTS}/{}", name(number))
}

pub(crate) fn object(number: u64, change: u64) -> String {
    let (name, shard, value) = (name(number), number % 10, "x".repeat(VALUE_BYTES));
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"{NAMESPACE}","labels":{{"app":"load","shard":"{shard}"}}}},"data":{{"n":"{number}","change":"{change}","blob":"{value}"}}}}"#
    )
}

pub(crate) fn pod(number: u64) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{number}"}},"spec":{{"nodeName":"node-{number}","containers":[{{"name":"c","image":"example.org/image:1"}}]}}}}"#
    )
}

pub(crate) fn custom_path(number: u64) -> String {
    format!("{CUSTOM}/w-{number}")
}

pub(crate) fn custom(number: u64) -> String {
    let value = "y".repeat(VALUE_BYTES / 2);
    format!(
        r#"{{"apiVersion":"load.example.org/v1","kind":"Widget","metadata":{{"name":"w-{number}"}},"spec":{{"size":{number},"name":"{value}"}}}}"#
    )
}

/// The definition of the custom resource.
const DEFINITION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"widgets.load.example.org"},"spec":{"group":"load.example.org","scope":"Namespaced",
"names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":
{"size":{"type":"integer","minimum":0},"name":{"type":"string"}}},
"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}"#;

/// Creates the definition of the custom resource, and waits until it is established.
pub(crate) async fn define(connection: &mut Connection) -> Result<(), BoxError> {
    connection
        .call(Call::create(DEFINITIONS, DEFINITION))
        .await?;
    let path = format!("{DEFINITIONS}/widgets.load.example.org");
    loop {
        let definition = connection.call(Call::get(&path)).await?;
        let definition: Value = serde_json::from_slice(&definition)?;
        let conditions = definition["status"]["conditions"].as_array();
        let is_established =
            |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        if conditions.is_some_and(|all| all.iter().any(is_established)) {
            break;
        }
    }
    // kube-apiserver serves it some time later.
    while !connection.exchange(Call::get(CUSTOM)).await?.0.is_success() {}
    Ok(())
}

/// Returns a text of the metadata of a list.
pub(crate) fn metadata(list: &Bytes, field: &str) -> Option<String> {
    let list: Value = serde_json::from_slice(list).ok()?;
    Some(list["metadata"][field].as_str()?.to_owned())
}
