//! Tables, metadata, and the order of the members of JSON.

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::exchange::exchange;
use crate::client::{TestResult, send, value};
use crate::server::{DEFINITIONS, WIDGETS, definition, established};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn tables_and_metadata_have_the_version_that_a_client_accepts() -> TestResult {
    let server = ApiServer::builder().start()?;
    let object = json!({"metadata": {"name": "p1"}}).to_string();
    assert_eq!(send(&server, "POST", MAPS, &object).0, 201);
    let get = |path: &str, accept: &str| -> Value {
        let field = format!("Accept: {accept}\r\n");
        let answer = exchange(server.endpoint(), "GET", path, &field, "");
        assert_eq!(answer.0, 200, "{}", answer.1);
        value(&answer).1
    };
    for version in ["v1", "v1beta1"] {
        let api_version = format!("meta.k8s.io/{version}");
        let accept = |form| format!("application/json;as={form};v={version};g=meta.k8s.io");
        for path in [MAPS.to_owned(), format!("{MAPS}/p1")] {
            let table = get(&path, &accept("Table"));
            assert_eq!(table["kind"], "Table", "{path}");
            assert_eq!(table["apiVersion"], api_version, "{path}");
            let row = &table["rows"][0]["object"];
            assert_eq!(row["apiVersion"], api_version, "{path}");
            assert_eq!(row["metadata"]["name"], "p1");
        }
        let list = get(MAPS, &accept("PartialObjectMetadataList"));
        assert_eq!(list["apiVersion"], api_version);
        assert_eq!(list["items"][0]["apiVersion"], api_version);
        let object = get(&format!("{MAPS}/p1"), &accept("PartialObjectMetadata"));
        assert_eq!(object["apiVersion"], api_version);
    }
    // kubectl prefers v1.
    let both = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    assert_eq!(get(MAPS, both)["apiVersion"], "meta.k8s.io/v1");
    Ok(())
}

/// As answered by kube-apiserver 1.36.3, whose tables of scales differ between built-in kinds and custom resources.
#[test]
fn scales_have_all_forms() -> TestResult {
    let server = ApiServer::builder().start()?;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    assert_eq!(
        send(&server, "POST", deployments, &deployment.to_string()).0,
        201
    );
    let mut scaled: Value = serde_json::from_str(&definition())?;
    scaled["spec"]["versions"][0]["subresources"] =
        json!({"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}});
    assert_eq!(
        send(&server, "POST", DEFINITIONS, &scaled.to_string()).0,
        201
    );
    established(&server);
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 2}});
    assert_eq!(send(&server, "POST", WIDGETS, &widget.to_string()).0, 201);

    let call = |method: &str, path: &str, form: &str, body: &str| {
        let fields = format!(
            "Accept: application/json;as={form};v=v1;g=meta.k8s.io\r\nContent-Type: application/json\r\n"
        );
        value(&exchange(server.endpoint(), method, path, &fields, body))
    };
    for (path, name, replicas, name_format, age_type, ty) in [
        (
            format!("{deployments}/d/scale"),
            "d",
            1,
            "",
            "string",
            "*autoscaling.Scale",
        ),
        (
            format!("{WIDGETS}/w/scale"),
            "w",
            2,
            "name",
            "date",
            "*v1.Scale",
        ),
    ] {
        let (code, table) = call("GET", &path, "Table", "");
        assert_eq!((code, &table["kind"]), (200, &json!("Table")), "{table}");
        let columns = table["columnDefinitions"].as_array().unwrap();
        let of =
            |field: &str| -> Vec<&Value> { columns.iter().map(|column| &column[field]).collect() };
        assert_eq!(of("name"), ["Name", "Desired", "Available", "Age"]);
        assert_eq!(of("type"), ["string", "integer", "integer", age_type]);
        assert_eq!(of("format"), [name_format, "", "", ""]);
        let row = &table["rows"][0];
        assert_eq!(
            row["cells"].as_array().unwrap()[..3],
            [json!(name), json!(replicas), json!(0)]
        );
        assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(
            table["metadata"]["resourceVersion"],
            row["object"]["metadata"]["resourceVersion"]
        );
        let (_, table) = call("GET", &format!("{path}?includeObject=Object"), "Table", "");
        assert_eq!(table["rows"][0]["object"]["kind"], "Scale");
        assert_eq!(table["rows"][0]["object"]["spec"]["replicas"], replicas);
        let (_, metadata) = call("GET", &path, "PartialObjectMetadata", "");
        assert_eq!(metadata["kind"], "PartialObjectMetadata");
        assert_eq!(
            (&metadata["metadata"]["name"], &metadata["spec"]),
            (&json!(name), &Value::Null)
        );
        let (code, error) = call("GET", &path, "PartialObjectMetadataList", "");
        assert_eq!(code, 406);
        let message = error["message"].as_str().unwrap();
        assert!(
            message.ends_with(&format!("is not a list ({ty})")),
            "{message}"
        );
        // A write answers in the form, too.
        let scale =
            json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": 3}});
        let (code, table) = call("PUT", &path, "Table", &scale.to_string());
        assert_eq!(
            (code, &table["rows"][0]["cells"][1]),
            (200, &json!(3)),
            "{table}"
        );
    }
    let (code, error) = call(
        "GET",
        &format!("{deployments}/d"),
        "PartialObjectMetadataList",
        "",
    );
    let message = error["message"].as_str().unwrap();
    assert!(
        code == 406 && message.ends_with("is not a list (*apps.Deployment)"),
        "{message}"
    );
    Ok(())
}

/// kube-apiserver writes built-in kinds in the order of the members of Go's types, and custom resources, which have no
/// types, in the order of the names.
#[test]
fn the_type_comes_first_as_in_go() -> TestResult {
    let server = ApiServer::builder().start()?;
    let of_map = r#"{"kind":"ConfigMap","apiVersion":"v1","#;
    let begins = |text: &str, with: &str| assert!(text.starts_with(with), "{with}: {text}");
    let object =
        r#"{"metadata":{"name":"a"},"data":{"b":"c"},"apiVersion":"v1","kind":"ConfigMap"}"#;
    begins(&send(&server, "POST", MAPS, object).1, of_map);
    let one = format!("{MAPS}/a");
    begins(&send(&server, "GET", &one, "").1, of_map);
    begins(
        &send(&server, "PATCH", &one, r#"{"data":{"b":"d"}}"#).1,
        of_map,
    );
    let (_, pretty) = send(&server, "GET", &format!("{one}?pretty=true"), "");
    begins(
        &pretty,
        "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n",
    );
    assert!(pretty.ends_with("  }\n}\n"), "{pretty}");
    let (_, list) = send(&server, "GET", MAPS, "");
    begins(&list, r#"{"kind":"ConfigMapList","apiVersion":"v1","#);
    let events = format!("{MAPS}?watch=true&timeoutSeconds=1");
    let (_, events) = send(&server, "GET", &events, "");
    begins(&events, &format!(r#"{{"type":"ADDED","object":{of_map}"#));
    begins(
        &send(&server, "DELETE", &one, "").1,
        r#"{"kind":"Status","apiVersion":"v1","#,
    );
    let (_, failure) = send(&server, "GET", &one, "");
    begins(
        &failure,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#,
    );

    begins(
        &send(&server, "POST", DEFINITIONS, &definition()).1,
        r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","#,
    );
    established(&server);
    let of_widget = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":"#;
    let object = r#"{"metadata":{"name":"a"},"kind":"Widget","apiVersion":"example.com/v1"}"#;
    begins(&send(&server, "POST", WIDGETS, object).1, of_widget);
    begins(
        &send(&server, "GET", &format!("{WIDGETS}/a"), "").1,
        of_widget,
    );
    let (_, pretty) = send(&server, "GET", &format!("{WIDGETS}/a?pretty=true"), "");
    begins(
        &pretty,
        "{\n  \"apiVersion\": \"example.com/v1\",\n  \"kind\": \"Widget\",\n",
    );
    Ok(())
}

#[test]
fn an_update_of_a_scale_is_of_the_object_that_it_names() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }});
    let (code, created) = value(&send(&server, "POST", path, &deployment.to_string()));
    assert_eq!(code, 201, "{created}");
    let scale = |uid: &Value| {
        let body = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "default", "uid": uid},
            "spec": {"replicas": 3},
        });
        value(&send(
            &server,
            "PUT",
            &format!("{path}/d/scale"),
            &body.to_string(),
        ))
    };
    let (code, refused) = scale(&json!("00000000-0000-4000-8000-000000000001"));
    assert_eq!(code, 409, "{refused}");
    assert_eq!(scale(&created["metadata"]["uid"]).0, 200);
    assert_eq!(scale(&json!(null)).0, 200);
    Ok(())
}

#[test]
fn the_priority_classes_of_the_system_stay() -> TestResult {
    let server = ApiServer::builder().start()?;
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    for name in ["system-node-critical", "system-cluster-critical"] {
        let one = format!("{path}/{name}");
        let (code, answer) = value(&send(&server, "DELETE", &one, ""));
        let message = format!(
            "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: this is a system priority class and cannot be \
             deleted"
        );
        assert_eq!((code, &answer["message"]), (403, &json!(message)));
        assert_eq!(send(&server, "GET", &one, "").0, 200);
    }
    Ok(())
}
