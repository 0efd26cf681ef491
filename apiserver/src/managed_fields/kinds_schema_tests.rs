use revstore_structured_merge::{CompareError, FieldSet, Write, track_update};
use serde_json::json;

use crate::managed_fields::{KindsSchema, zero_object};

static NOTHING: FieldSet = FieldSet::EMPTY;

fn write<'a>(manager: &'a str, time: &'a str) -> Write<'a> {
    Write {
        manager,
        api_version: "v1",
        subresource: "",
        time,
        ignored: &NOTHING,
    }
}

#[test]
fn lists_of_built_in_kinds_are_tracked_by_their_keys() {
    let ty = revstore_kinds::kind("apps", "v1", "Deployment").unwrap();
    let mut new = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "finalizers": ["f"]},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "a"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{
                    "name": "c", "image": "i", "resources": {}, "args": ["x"],
                    "ports": [{"containerPort": 80}],
                }]},
            },
        },
        "status": {},
    });
    let apps = Write {
        api_version: "apps/v1",
        ..write("kubectl-create", "t1")
    };
    let live = zero_object(ty);
    let object = new.as_object_mut().unwrap();
    track_update(&live, object, &KindsSchema::new(ty), &apps).unwrap();
    assert_eq!(
        new["metadata"]["managedFields"][0]["fieldsV1"],
        json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"f\"": {}}},
            "f:spec": {
                "f:replicas": {}, "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                        ".": {}, "f:args": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                            ".": {}, "f:containerPort": {},
                        }},
                    }}},
                },
            },
        })
    );
}

#[test]
fn objects_that_cannot_be_compared_lose_their_entries() {
    let ty = revstore_kinds::kind("", "v1", "Pod").unwrap();
    let mut new = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"image": "i"}]}});
    let live = zero_object(ty);
    let object = new.as_object_mut().unwrap();
    let error = track_update(&live, object, &KindsSchema::new(ty), &write("m", "t"));
    assert_eq!(error, Err(CompareError::NoKeys(vec!["name".to_owned()])));
    assert_eq!(new["metadata"], json!({"name": "a"}));
}
