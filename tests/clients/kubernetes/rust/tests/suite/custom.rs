//! Custom resources: typed objects, their status and scale.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Object, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::server::{Server, status, within};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct WidgetSpec {
    replicas: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct WidgetStatus {
    replicas: i64,
}

type Widget = Object<WidgetSpec, WidgetStatus>;

fn definition() -> CustomResourceDefinition {
    let integer = json!({"type": "integer"});
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "size": {"type": "integer", "minimum": 1, "default": 3},
                        "replicas": integer,
                    }},
                    "status": {"type": "object", "properties": {"replicas": integer}},
                }}},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
            }],
        },
    }))
    .unwrap()
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"))
}

/// Creates the definition of widgets, and waits until it is established.
pub async fn define(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = definition();
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let established = await_condition(definitions, "widgets.example.com", is_crd_established());
    within(established).await.unwrap();
}

/// Returns widgets without a type.
pub fn dynamic_widgets(client: Client) -> Api<DynamicObject> {
    Api::default_namespaced_with(client, &resource())
}

pub fn dynamic_widget(name: &str) -> DynamicObject {
    DynamicObject::new(name, &resource()).data(json!({"spec": {"replicas": 1}}))
}

#[tokio::test]
async fn custom_objects() {
    let server = Server::start(&[]);
    let client = server.client().await;
    define(&client).await;
    let (post, resource) = (PostParams::default(), resource());
    let widgets: Api<Widget> = Api::default_namespaced_with(client.clone(), &resource);
    let spec = WidgetSpec {
        replicas: 1,
        size: None,
    };
    let created = widgets
        .create(&post, &Widget::new("a", &resource, spec))
        .await
        .unwrap();
    assert_eq!(created.spec.size, Some(3));
    let invalid = Patch::Merge(json!({"spec": {"size": 0}}));
    let refused = status(widgets.patch("a", &PatchParams::default(), &invalid).await);
    assert!(refused.is_invalid());
    assert_eq!(refused.details.unwrap().causes[0].field, "spec.size");

    let mut changed = created;
    changed.status = Some(WidgetStatus { replicas: 4 });
    let updated = widgets.replace_status("a", &post, &changed).await.unwrap();
    assert_eq!(updated.status, Some(WidgetStatus { replicas: 4 }));
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    let scale = widgets
        .patch_scale("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(scale.status.unwrap().replicas, 4);
    assert_eq!(widgets.get("a").await.unwrap().spec.replicas, 7);

    let objects = dynamic_widgets(client);
    let applied = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "b"}, "spec": {"replicas": 2},
    });
    let params = PatchParams::apply("test");
    let applied = objects
        .patch("b", &params, &Patch::Apply(applied))
        .await
        .unwrap();
    assert_eq!(applied.data["spec"], json!({"replicas": 2, "size": 3}));
}
