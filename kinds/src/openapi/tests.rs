use super::*;
use crate::protobuf::wire::Reader;
use crate::table::{Group, groups};

fn v2_of_defaults() -> Value {
    v2(
        groups()
            .iter()
            .flat_map(Group::versions)
            .filter(|version| version.on_by_default()),
        "v1.36.0",
    )
}

/// All references in a document.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                match value.as_str() {
                    Some(reference) if name == "$ref" => found.push(reference),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[track_caller]
fn check_references(document: &Value) {
    let mut found = Vec::new();
    references(document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
    }
}

#[test]
fn documents_are_complete() {
    for version in groups().iter().flat_map(Group::versions) {
        check_references(&v3(version, "v1.36.0"));
    }
    check_references(&v2_of_defaults());
}

/// What a real server says.
#[test]
fn definitions_are_those_of_a_real_server() {
    let document = v2_of_defaults();
    let definitions = &document["definitions"];
    assert_eq!(
        definitions["io.k8s.api.core.v1.ConfigMap"],
        json!({"type": "object", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "binaryData": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
            "data": {"type": "object", "additionalProperties": {"type": "string"}}, "immutable": {"type": "boolean"},
            "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}},
            "x-kubernetes-group-version-kind": [{"group": "", "kind": "ConfigMap", "version": "v1"}]})
    );
    let spec = &definitions["io.k8s.api.core.v1.PodSpec"];
    assert_eq!(spec["required"], json!(["containers"]));
    let volumes = &spec["properties"]["volumes"];
    assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(volumes["x-kubernetes-list-map-keys"], json!(["name"]));
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchCoreV1NamespacedConfigMap");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"]["kind"],
        "ConfigMap"
    );
    let options = &definitions["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
    assert!(
        options["x-kubernetes-group-version-kind"]
            .as_array()
            .unwrap()
            .len()
            > 10
    );

    let document = v3(
        crate::version("apiextensions.k8s.io", "v1").unwrap(),
        "v1.36.0",
    );
    let operation = &document["paths"]["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"]
        ["patch"];
    assert_eq!(
        operation["operationId"],
        "patchApiextensionsV1CustomResourceDefinition"
    );
    let names: Vec<_> = operation["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| &parameter["name"])
        .collect();
    assert_eq!(
        names,
        ["dryRun", "fieldManager", "fieldValidation", "force"]
    );
    let port = schema(
        crate::type_named("core.v1.ContainerPort").unwrap(),
        Dialect::V3,
        &[],
    );
    assert_eq!(
        port["properties"]["protocol"],
        json!({"type": "string", "default": "TCP"})
    );
    assert_eq!(
        port["properties"]["containerPort"],
        json!({"type": "integer", "format": "int32", "default": 0})
    );
}

#[test]
fn custom_resources_have_paths() {
    let text = |text: &str| text.to_owned();
    let resource = ApiResource {
        group: text("stable.example.com"),
        version: text("v1"),
        plural: text("widgets"),
        kind: text("Widget"),
        namespaced: true,
        verbs: [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
        .map(text)
        .into(),
        schema: text("com.example.stable.v1.Widget"),
        list_schema: Some(text("com.example.stable.v1.WidgetList")),
        built_in: false,
        subresources: Vec::new(),
    };
    let paths = resource.paths(Dialect::V3);
    let patch =
        &paths["/apis/stable.example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert_eq!(
        patch["operationId"],
        "patchStableExampleComV1NamespacedWidget"
    );
    assert_eq!(patch["tags"], json!(["stableExampleCom_v1"]));
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_null());
    let mut schemas = common_schemas("stable.example.com", "v1", Dialect::V3, None);
    for name in [
        "com.example.stable.v1.Widget",
        "com.example.stable.v1.WidgetList",
    ] {
        schemas.insert(text(name), json!({"type": "object"}));
    }
    check_references(&v3_document(paths, schemas, "v1.36.0"));
}

/// The value of the first field with a number.
fn field(message: &[u8], wanted: u64, skip: usize) -> &[u8] {
    let mut reader = Reader::new(message);
    let mut left = skip;
    while let Some((number, wire)) = reader.tag().unwrap() {
        if number == wanted {
            let bytes = reader.bytes(wire, "").unwrap();
            if left == 0 {
                return bytes;
            }
            left -= 1;
        } else {
            reader.skip(wire).unwrap();
        }
    }
    panic!("no field {wanted}");
}

#[test]
fn the_document_in_protobuf_has_its_definitions() {
    let document = json!({"swagger": "2.0", "info": {"title": "t", "version": "v"}, "paths": {"/a": {"get": {
        "operationId": "id", "responses": {"200": {"description": "OK"}}, "x-kubernetes-action": "get"}}},
        "definitions": {"A": {"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}},
            "x-kubernetes-group-version-kind": [{"group": "", "kind": "A", "version": "v1"}]}}});
    let bytes = v2_protobuf(&document);
    assert_eq!(field(&bytes, 1, 0), b"2.0");
    let definition = field(field(&bytes, 9, 0), 1, 0);
    assert_eq!(field(definition, 1, 0), b"A");
    let schema = field(definition, 2, 0);
    assert_eq!(field(field(schema, 22, 0), 1, 0), b"object");
    assert_eq!(field(schema, 19, 0), b"b");
    assert_eq!(field(field(field(schema, 25, 0), 1, 0), 1, 0), b"b");
    let extension = field(schema, 31, 0);
    assert_eq!(field(extension, 1, 0), b"x-kubernetes-group-version-kind");
    let yaml = field(field(extension, 2, 0), 2, 0);
    assert_eq!(
        yaml,
        b"[{\"group\":\"\",\"kind\":\"A\",\"version\":\"v1\"}]\n"
    );
    let path = field(field(&bytes, 8, 0), 2, 0);
    assert_eq!(field(path, 1, 0), b"/a");
    assert_eq!(field(field(field(path, 2, 0), 2, 0), 5, 0), b"id");
}

#[test]
fn the_document_of_version_3_in_protobuf_has_its_schemas() {
    let reference = json!({"$ref": "#/components/schemas/A"});
    let document = json!({"openapi": "3.0.0", "info": {"title": "t", "version": "v"}, "paths": {"/a": {
        "get": {"operationId": "id", "responses": {"200": {"description": "OK", "content": {
            "application/json": {"schema": reference}}}}},
        "parameters": [{"name": "p", "in": "query", "schema": {"type": "string"}}]}},
        "components": {"schemas": {"A": {"type": "object", "required": ["b"], "properties": {
            "b": {"type": "string", "default": ""}, "c": {"allOf": [reference], "default": {}},
            "d": {"type": "array", "items": reference}},
            "additionalProperties": true, "x-kubernetes-map-type": "atomic"}}}});
    let bytes = v3_protobuf(&document);
    assert_eq!(field(&bytes, 1, 0), b"3.0.0");
    assert_eq!(field(field(&bytes, 2, 0), 6, 0), b"v");
    let named = field(field(field(&bytes, 5, 0), 1, 0), 1, 0);
    assert_eq!(field(named, 1, 0), b"A");
    let schema = field(field(named, 2, 0), 1, 0);
    assert_eq!(field(schema, 25, 0), b"object");
    assert_eq!(field(schema, 23, 0), b"b");
    assert_eq!(field(schema, 32, 0), [2 << 3, 1]);
    let property = |index| {
        let named = field(field(schema, 31, 0), 1, index);
        (field(named, 1, 0), field(field(named, 2, 0), 1, 0))
    };
    let (name, b) = property(0);
    assert_eq!((name, field(b, 33, 0)), (&b"b"[..], &[3 << 3 | 2, 0][..]));
    let (_, c) = property(1);
    assert_eq!(field(c, 33, 0), b"");
    assert_eq!(
        field(field(field(c, 26, 0), 2, 0), 1, 0),
        b"#/components/schemas/A"
    );
    let (_, d) = property(2);
    let items = field(field(field(d, 30, 0), 1, 0), 2, 0);
    assert_eq!(field(items, 1, 0), b"#/components/schemas/A");
    let extension = field(schema, 36, 0);
    assert_eq!(field(field(extension, 2, 0), 2, 0), b"\"atomic\"\n");
    let path = field(field(&bytes, 4, 0), 1, 0);
    assert_eq!(field(path, 1, 0), b"/a");
    let item = field(path, 2, 0);
    assert_eq!(field(field(field(item, 13, 0), 1, 0), 1, 0), b"p");
    let response = field(field(field(item, 4, 0), 8, 0), 2, 0);
    assert_eq!(field(response, 1, 0), b"200");
    let response = field(field(response, 2, 0), 1, 0);
    let media = field(field(response, 3, 0), 1, 0);
    assert_eq!(field(media, 1, 0), b"application/json");
}
