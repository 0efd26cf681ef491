//! The options of a builder.

use revstore_apiserver::auth::{AuthorizationMode, User};
use revstore_apiserver::{ApiServer, Chance, ServiceRanges};
use serde_json::{Value, json};

use crate::TestResult;
use crate::client::{send, send_as};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn users_have_the_rights_of_their_groups() -> TestResult {
    let server = ApiServer::builder()
        .authorization_mode(AuthorizationMode::Rbac)
        .user("t1", User::new("ann", ["devs"]))
        .user("t2", User::new("root", ["system:masters"]))
        .start()?;
    let code = |token| send_as(&server, token, "GET", PODS, &Value::Null).0;
    assert_eq!((code("t1"), code("t2"), code("t3")), (403, 200, 401));
    let (_, answer) = send_as(&server, "t1", "GET", PODS, &Value::Null);
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(message.contains("User \"ann\" cannot list"), "{message}");
    Ok(())
}

#[test]
fn services_get_addresses_of_the_ranges() -> TestResult {
    let ranges = ServiceRanges {
        addresses: vec!["10.96.0.0/29".parse()?],
        ports: "31000-31000".parse()?,
    };
    let server = ApiServer::builder().service_ranges(ranges).start()?;
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let (_, created) = send(
        &server,
        "POST",
        "/api/v1/namespaces/default/services",
        &service,
    );
    assert_eq!(created["spec"]["ports"][0]["nodePort"], 31000, "{created}");
    let address = created["spec"]["clusterIP"].as_str().unwrap_or_default();
    assert!(address.starts_with("10.96.0."), "{created}");
    Ok(())
}

#[test]
fn keys_begin_with_the_prefix() -> TestResult {
    let server = ApiServer::builder()
        .etcd_prefix("a/b/")
        .https(None)
        .start()?;
    assert_eq!(server.endpoints().len(), 1);
    let kvs = server
        .engine()
        .ok_or("embedded")?
        .range(&revstore_engine::Range::of(
            revstore_engine::KeyRange::prefix("/a/b/namespaces/"),
        ))?
        .kvs;
    assert_eq!(kvs.len(), 4);
    assert!(Chance::try_from(0.01).is_ok() && Chance::try_from(0.03).is_err());
    Ok(())
}
