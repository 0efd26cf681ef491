use serde_json::json;

use super::*;
use crate::table;

#[track_caller]
fn check(group: &str, version: &str, kind: &str, mut object: Value, expected: &Value) {
    let ty = table::kind(group, version, kind).unwrap();
    let unknown = normalize(ty, &mut object, Storage::Protobuf).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(&object, expected);
    normalize(ty, &mut object, Storage::Protobuf).unwrap();
    assert_eq!(&object, expected, "normalized twice");
}

#[track_caller]
fn check_error(kind: &str, mut object: Value, expected: &str) {
    let resource = table::resources()
        .find(|resource| resource.kind() == kind)
        .unwrap();
    let error = normalize(resource.object(), &mut object, Storage::Protobuf).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn structs_appear_and_empty_values_vanish() {
    check(
        "apps",
        "v1",
        "Deployment",
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {}, "generateName": ""},
            "spec": {"replicas": 0, "paused": false, "minReadySeconds": 0, "selector": {"matchLabels": {"a": ""}},
                "template": {"spec": {"containers": [{"name": "c", "command": [], "tty": false}], "volumes": null}}}}),
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": ""}}, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}}},
            "status": {}}),
    );
}

#[test]
fn null_is_the_zero_value() {
    check(
        "",
        "v1",
        "Pod",
        json!({"metadata": null, "spec": {"containers": null, "nodeName": null, "securityContext": null}, "status": null}),
        &json!({"metadata": {}, "spec": {"containers": null}, "status": {}}),
    );
    check(
        "rbac.authorization.k8s.io",
        "v1",
        "Role",
        json!({"rules": []}),
        &json!({"metadata": {}, "rules": null}),
    );
    let mut event =
        json!({"eventTime": null, "metadata": {}, "involvedObject": {}, "reportingComponent": ""});
    normalize(
        table::kind("", "v1", "Event").unwrap(),
        &mut event,
        Storage::Protobuf,
    )
    .unwrap();
    assert_eq!(event["eventTime"], Value::Null);
    assert_eq!(event["source"], json!({}));
}

#[test]
fn an_empty_list_stays_one_where_json_is_stored() {
    let ty = table::kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let mut object = json!({"spec": {"versions": [], "names": {"plural": "w", "kind": "W"}}});
    normalize(ty, &mut object, Storage::Json).unwrap();
    assert_eq!(object["spec"]["versions"], json!([]));
    assert_eq!(object["status"]["conditions"], Value::Null);
}

#[test]
fn texts_become_canonical() {
    check(
        "",
        "v1",
        "ResourceQuota",
        json!({"spec": {"hard": {"cpu": 0.5, "memory": "1024Mi", "pods": 10, "count": " 1000m "}}}),
        &json!({"metadata": {}, "spec": {"hard": {"cpu": "500m", "memory": "1Gi", "pods": "10", "count": "1"}}, "status": {}}),
    );
    check(
        "coordination.k8s.io",
        "v1",
        "Lease",
        json!({"metadata": {"creationTimestamp": "2024-01-01T01:00:00.5+01:00"},
            "spec": {"renewTime": "2024-01-01T00:00:00.000001Z"}}),
        &json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"renewTime": "2024-01-01T00:00:00.000001Z"}}),
    );
    check(
        "",
        "v1",
        "Secret",
        json!({"data": {"a": "YQ==", "b": "Y\nQ==", "c": "YR==", "d": [97], "e": ""}}),
        &json!({"metadata": {}, "data": {"a": "YQ==", "b": "YQ==", "c": "YQ==", "d": "YQ==", "e": ""}}),
    );
    check(
        "",
        "v1",
        "Service",
        json!({"spec": {"ports": [{"port": 1, "targetPort": "http"}, {"port": 2, "targetPort": 3}, {"port": 4}]}}),
        &json!({"metadata": {}, "spec": {"ports": [{"port": 1, "targetPort": "http"}, {"port": 2, "targetPort": 3},
            {"port": 4, "targetPort": 0}]}, "status": {"loadBalancer": {}}}),
    );
}

#[test]
fn unknown_fields_are_removed_and_named() {
    let ty = table::kind("", "v1", "Pod").unwrap();
    let mut pod = json!({"Spec": {}, "metadata": {"Name": "a", "annotations": {"x": "y"}},
        "spec": {"containers": [{"name": "c"}, {"name": "d", "env": [{"name": "e", "valueFromm": {"a": 1}}]}],
            "nodeSelector": {"any": "thing"}}});
    let unknown = normalize(ty, &mut pod, Storage::Protobuf).unwrap();
    let paths: Vec<_> = unknown.iter().map(|field| field.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "Spec",
            "metadata.Name",
            "spec.containers[1].env[0].valueFromm"
        ]
    );
    assert!(
        normalize(ty, &mut pod, Storage::Protobuf)
            .unwrap()
            .is_empty()
    );

    let mut many = Value::Object(
        (0..1000)
            .map(|index| (format!("x{index}"), Value::Null))
            .collect(),
    );
    assert_eq!(
        normalize(ty, &mut many, Storage::Protobuf).unwrap().len(),
        UNKNOWN_FIELDS_MAX
    );
}

/// The texts are those of Go's decoder.
#[test]
fn values_of_other_types_are_errors() {
    check_error(
        "Deployment",
        json!({"spec": {"replicas": "3"}}),
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    check_error(
        "Deployment",
        json!({"spec": {"replicas": 1.5}}),
        "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    check_error(
        "ConfigMap",
        json!({"data": {"a": 1}}),
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    check_error(
        "ConfigMap",
        json!({"data": []}),
        "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
    );
    check_error(
        "Pod",
        json!({"spec": {"containers": {}}}),
        "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
    );
    check_error(
        "Pod",
        json!({"spec": {"restartPolicy": true}}),
        "json: cannot unmarshal bool into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
    );
    check_error(
        "Pod",
        json!([]),
        "json: cannot unmarshal array into Go value of type v1.Pod",
    );
    check_error(
        "Secret",
        json!({"data": {"a": "*"}}),
        "illegal base64 data at input byte 0",
    );
    check_error(
        "Pod",
        json!({"metadata": {"creationTimestamp": 1}}),
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
    );
    check_error(
        "ResourceQuota",
        json!({"spec": {"hard": {"cpu": "1K"}}}),
        "unable to parse quantity's suffix",
    );
}

#[test]
fn schemas_may_be_something_else() {
    let ty = table::type_named("apiextensions.v1.JSONSchemaProps").unwrap();
    let mut schema = json!({"type": "object", "additionalProperties": false, "items": [{"type": "string", "x": 1}],
        "dependencies": {"a": ["b"], "c": {"not": {"type": "null"}}, "d": []}, "default": {"any": [null]},
        "properties": {"p": {"additionalProperties": {"maximum": 1.5}}}, "enum": [null, 1], "uniqueItems": false});
    let expected = json!({"type": "object", "additionalProperties": false, "items": [{"type": "string"}],
        "dependencies": {"a": ["b"], "c": {"not": {"type": "null"}}, "d": null}, "default": {"any": [null]},
        "properties": {"p": {"additionalProperties": {"maximum": 1.5}}}, "enum": [null, 1]});
    let unknown = normalize(ty, &mut schema, Storage::Json).unwrap();
    assert_eq!((schema, unknown), (expected, Vec::new()));
    let mut schema = json!({"additionalProperties": "x"});
    assert_eq!(
        normalize(ty, &mut schema, Storage::Json)
            .unwrap_err()
            .to_string(),
        "boolean or JSON schema expected"
    );
}

#[test]
fn depth_is_bounded() {
    let ty = table::type_named("apiextensions.v1.JSONSchemaProps").unwrap();
    let mut schema = json!({});
    for _ in 0..DEPTH_MAX {
        schema = json!({"not": schema});
    }
    assert_eq!(
        normalize(ty, &mut schema, Storage::Json),
        Err(DecodeError::TooDeep)
    );
}

#[test]
fn the_number_of_objects_is_bounded() {
    let ty = table::type_named("core.v1.PodSpec").unwrap();
    let mut spec = json!({"containers": vec![json!({}); OBJECTS_MAX]});
    assert_eq!(
        normalize(ty, &mut spec, Storage::Protobuf),
        Err(DecodeError::TooMany)
    );
}
