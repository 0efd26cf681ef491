//! Versions that are turned on and off.

use revstore_apiserver::auth::{AuthorizationMode, User};
use revstore_apiserver::{ApiServer, Controllers};
use serde_json::{Value, json};

use crate::client::exchange::{answer, exchange};
use crate::client::{TestResult, Watch, send, value};

fn server(config: &str) -> Result<ApiServer, Box<dyn std::error::Error>> {
    Ok(ApiServer::builder()
        .runtime_config(config.parse()?)
        .start()?)
}

fn names<'a>(list: &'a Value, name: &str) -> Vec<&'a str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item[name].as_str()).collect()
}

#[test]
fn beta_versions_that_are_turned_on_are_in_all_documents() -> TestResult {
    let get = |server: &ApiServer, path: &str| value(&send(server, "GET", path, "")).1;
    let (default, beta) = (server("")?, server("api/beta=true")?);
    let group = get(&beta, "/apis/resource.k8s.io");
    assert_eq!(
        names(&group["versions"], "version"),
        ["v1", "v1beta2", "v1beta1"]
    );
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let list = get(&beta, "/apis/networking.k8s.io/v1beta1");
    assert_eq!(
        names(&list["resources"], "name"),
        ["ipaddresses", "servicecidrs", "servicecidrs/status"]
    );
    let migrations = "apis/storagemigration.k8s.io/v1beta1";
    let (index, old) = (get(&beta, "/openapi/v3"), get(&default, "/openapi/v3"));
    assert!(index["paths"][migrations].is_object());
    assert!(old["paths"][migrations].is_null());
    let address = |index: &Value| index["paths"]["apis/apps/v1"].clone();
    assert_ne!(address(&index), address(&old));
    let document = get(&beta, &format!("/openapi/v3/{migrations}"));
    let path = format!("/{migrations}/storageversionmigrations/{{name}}");
    assert!(document["paths"][&path]["patch"].is_object());
    let document = get(&beta, "/openapi/v2");
    assert!(document["paths"][&path]["patch"].is_object());
    for path in [
        migrations,
        "openapi/v3/apis/storagemigration.k8s.io/v1beta1",
    ] {
        assert_eq!(send(&default, "GET", &format!("/{path}"), "").0, 404);
    }
    Ok(())
}

#[test]
fn objects_are_those_of_all_versions() -> TestResult {
    let server = server("resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true")?;
    let path = |version: &str, plural: &str| {
        format!("/apis/resource.k8s.io/{version}/namespaces/default/{plural}")
    };
    let request = json!({"name": "r", "deviceClassName": "x", "count": 2});
    let either = json!({"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "x"}]});
    let claim =
        json!({"metadata": {"name": "a"}, "spec": {"devices": {"requests": [request, either]}}});
    let beta = path("v1beta1", "resourceclaims");
    let (code, created) = value(&send(&server, "POST", &beta, &claim.to_string()));
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["apiVersion"], "resource.k8s.io/v1beta1");
    let requests = &created["spec"]["devices"]["requests"];
    assert_eq!(requests[0]["count"], 2);
    assert_eq!(requests[0]["deviceClassName"], "x");
    assert_eq!(requests[1]["firstAvailable"][0]["name"], "s");
    for version in ["v1", "v1beta2"] {
        let object = format!("{}/a", path(version, "resourceclaims"));
        let (code, found) = value(&send(&server, "GET", &object, ""));
        assert_eq!(code, 200);
        assert_eq!(found["apiVersion"], format!("resource.k8s.io/{version}"));
        let requests = &found["spec"]["devices"]["requests"];
        assert_eq!(requests[0]["exactly"]["deviceClassName"], "x");
        assert_eq!(requests[0]["exactly"]["count"], 2);
        assert!(requests[1]["exactly"].is_null(), "{found}");
        assert_eq!(found["metadata"]["uid"], created["metadata"]["uid"]);
        assert_eq!(
            found["metadata"]["managedFields"][0]["apiVersion"],
            "resource.k8s.io/v1beta1"
        );
    }
    let mut watch = Watch::open(&server, &format!("{beta}?watch=true"));
    let event = watch.next().ok_or("the watch has ended")?;
    assert_eq!(event["object"]["apiVersion"], "resource.k8s.io/v1beta1");
    // A write of another version changes the entry of its own fields only.
    let label = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let object = format!("{}/a", path("v1", "resourceclaims"));
    assert_eq!(send(&server, "PATCH", &object, &label).0, 200);
    let event = watch.next().ok_or("the watch has ended")?;
    assert_eq!(event["object"]["metadata"]["labels"]["a"], "b");
    let entries = &event["object"]["metadata"]["managedFields"];
    let mut versions = names(entries, "apiVersion");
    versions.sort_unstable();
    assert_eq!(versions, ["resource.k8s.io/v1", "resource.k8s.io/v1beta1"]);
    for entry in entries.as_array().into_iter().flatten() {
        let has_spec = entry["apiVersion"] == "resource.k8s.io/v1beta1";
        assert_eq!(
            !entry["fieldsV1"]["f:spec"].is_null(),
            has_spec,
            "{entries}"
        );
    }
    let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d.e", "nodeName": "n", "pool": {
        "name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [
            {"name": "x", "basic": {"capacity": {"m": {"value": "1Gi"}}}}, {"name": "y", "basic": {}}]}});
    let slices = "/apis/resource.k8s.io/v1beta1/resourceslices";
    let (code, created) = value(&send(&server, "POST", slices, &slice.to_string()));
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["spec"]["devices"], slice["spec"]["devices"]);
    let (_, found) = value(&send(
        &server,
        "GET",
        "/apis/resource.k8s.io/v1/resourceslices/s",
        "",
    ));
    let devices = json!([{"name": "x", "capacity": {"m": {"value": "1Gi"}}}, {"name": "y"}]);
    assert_eq!(found["spec"]["devices"], devices);
    let head = answer(server.endpoint(), "GET", slices, "", "");
    let warning = "299 - \"resource.k8s.io/v1beta1 ResourceSlice is deprecated in v1.35+, unavailable in v1.38+\"";
    assert!(head.contains(warning), "{head}");
    Ok(())
}

#[test]
fn what_is_turned_off_is_not_served() -> TestResult {
    let server = server("apps/v1=false,batch/v1/jobs=false")?;
    let discovered = value(&send(&server, "GET", "/apis/batch/v1", "")).1;
    let names = names(&discovered["resources"], "name");
    assert_eq!(names, ["cronjobs", "cronjobs/status"]);
    for path in [
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/apps/v1/deployments",
        "/apis/batch/v1/jobs",
        "/apis/batch/v1/namespaces/default/jobs/a/status",
        "/openapi/v3/apis/apps/v1",
    ] {
        assert_eq!(send(&server, "GET", path, "").0, 404, "{path}");
    }
    assert_eq!(send(&server, "GET", "/apis/batch/v1/cronjobs", "").0, 200);
    let (_, document) = value(&send(&server, "GET", "/openapi/v3/apis/batch/v1", ""));
    let paths = document["paths"].as_object().ok_or("no paths")?;
    assert!(paths.contains_key("/apis/batch/v1/cronjobs"));
    assert!(!paths.contains_key("/apis/batch/v1/jobs"));
    let namespace = json!({"metadata": {"name": "a"}}).to_string();
    assert_eq!(
        send(&server, "POST", "/api/v1/namespaces", &namespace).0,
        201
    );
    Ok(())
}

#[test]
fn the_server_uses_what_is_turned_off() -> TestResult {
    let config = "rbac.authorization.k8s.io/v1=false,apiextensions.k8s.io/v1=false,\
                  networking.k8s.io/v1=false,admissionregistration.k8s.io/v1=false";
    let server = ApiServer::builder()
        .runtime_config(config.parse()?)
        .authorization_mode(AuthorizationMode::Rbac)
        .controllers(Controllers::all())
        .user("secret", User::new("ann", ["devs"]))
        .start()?;
    // The roles of a fresh cluster count.
    let user = "Authorization: Bearer secret\r\n";
    for (path, code) in [("/apis", 200), ("/api/v1/pods", 403)] {
        let answer = exchange(server.endpoint(), "GET", path, user, "");
        assert_eq!(answer.0, code, "{path}");
    }
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    assert_eq!(send(&server, "GET", roles, "").0, 404);
    // A service gets an address, which is in the store.
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}).to_string();
    let services = "/api/v1/namespaces/default/services";
    let (code, created) = value(&send(&server, "POST", services, &service));
    assert_eq!(code, 201);
    assert!(created["spec"]["clusterIP"].is_string());
    Ok(())
}
