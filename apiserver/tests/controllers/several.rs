//! Servers over one store, and servers that stop.

use revstore_apiserver::{ApiServer, Controllers};
use serde_json::json;

use crate::client::TestResult;
use crate::support::{
    CONFIG_MAPS, NAMESPACES, SECRETS, create, create_owned, delete, get, reference, started, wait,
    wait_empty, wait_gone,
};

#[test]
fn two_servers_over_one_store_do_not_disturb_each_other() -> TestResult {
    let first = ApiServer::builder()
        .controllers(Controllers::all())
        .start()?;
    let engine = first.engine().expect("embedded").clone();
    let second = ApiServer::builder()
        .engine(engine)
        .controllers(Controllers::all());
    let second = second.start()?;
    for policy in ["Background", "Foreground", "Orphan"] {
        let owner = create_owned(&first, CONFIG_MAPS, "owner", &[]);
        for number in 0..20 {
            create_owned(
                &second,
                SECRETS,
                &format!("s{number}"),
                &[reference(&owner)],
            );
        }
        delete(&second, &format!("{CONFIG_MAPS}/owner"), policy);
        wait_gone(&first, CONFIG_MAPS, "owner");
        if policy == "Orphan" {
            let (_, list) = get(&second, SECRETS);
            assert_eq!(list["items"].as_array().map(Vec::len), Some(20));
        } else {
            wait_empty(&second, SECRETS);
        }
    }
    create(&first, NAMESPACES, &json!({"metadata": {"name": "team"}}));
    let maps = "/api/v1/namespaces/team/configmaps";
    // Each server has an authority of its own: both are in the bundle.
    wait(&second, maps, "kube-root-ca.crt", |map| {
        let text = map.and_then(|map| map["data"]["ca.crt"].as_str());
        text.is_some_and(|text| text.matches("BEGIN CERTIFICATE").count() >= 2)
    });
    delete(&second, &format!("{NAMESPACES}/team"), "Background");
    wait_gone(&first, NAMESPACES, "team");
    Ok(())
}

#[test]
fn a_server_goes_on_with_what_another_has_begun() -> TestResult {
    let first = started("garbage-collector-controller,namespace-controller");
    let engine = first.engine().expect("embedded").clone();
    create(&first, NAMESPACES, &json!({"metadata": {"name": "team"}}));
    let owner = create_owned(&first, CONFIG_MAPS, "owner", &[]);
    for number in 0..500 {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": format!("s{number}"), "namespace": "default", "uid": format!("u{number}"),
            "ownerReferences": [reference(&owner)],
        }});
        let key = format!("/registry/secrets/default/s{number}");
        engine.put(key, object.to_string())?;
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": format!("c{number}"), "namespace": "team", "uid": format!("v{number}"),
        }});
        let key = format!("/registry/configmaps/team/c{number}");
        engine.put(key, object.to_string())?;
    }
    delete(&first, &format!("{CONFIG_MAPS}/owner"), "Foreground");
    delete(&first, &format!("{NAMESPACES}/team"), "Background");
    first.stop();
    let second = ApiServer::builder()
        .engine(engine)
        .https(None)
        .controllers(Controllers::all());
    let second = second.start()?;
    wait_gone(&second, CONFIG_MAPS, "owner");
    wait_empty(&second, SECRETS);
    wait_gone(&second, NAMESPACES, "team");
    wait_empty(&second, "/api/v1/namespaces/team/configmaps");
    Ok(())
}
