//! Namespaces that are deleted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use revstore_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::client::send;
use crate::support::{
    NAMESPACES, create, create_owned, define_widgets, delete, get, is_deleting, patch, started,
    wait, wait_empty, wait_gone, widget,
};

fn condition<'a>(namespace: &'a Value, kind: &str) -> &'a Value {
    let conditions = namespace["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|it| it["type"] == kind)
        .unwrap_or(&Value::Null)
}

#[test]
fn the_content_of_a_namespace_goes_first() {
    let server = started("namespace-controller");
    define_widgets(&server);
    create(&server, NAMESPACES, &json!({"metadata": {"name": "team"}}));
    let widgets = "/apis/example.com/v1/namespaces/team/widgets";
    create(&server, widgets, &widget("w"));
    let maps = "/api/v1/namespaces/team/configmaps";
    create_owned(&server, maps, "a", &[]);
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "team"}});
    create(&server, "/api/v1/namespaces/team/events", &event);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/team/leases";
    create(
        &server,
        lease,
        &json!({"metadata": {"name": "l"}, "spec": {}}),
    );
    delete(&server, &format!("{NAMESPACES}/team"), "Background");
    wait_gone(&server, NAMESPACES, "team");
    for path in [widgets, maps, lease, "/api/v1/namespaces/team/events"] {
        let (code, list) = get(&server, path);
        assert_eq!((code, &list["items"]), (200, &json!([])), "{path}");
    }
    // The name is free again.
    create(&server, NAMESPACES, &json!({"metadata": {"name": "team"}}));
    create_owned(&server, maps, "a", &[]);
    assert_eq!(get(&server, &format!("{maps}/a")).0, 200);
}

#[test]
fn what_is_left_in_a_namespace_is_in_its_conditions() {
    let server = started("*");
    create(&server, NAMESPACES, &json!({"metadata": {"name": "team"}}));
    let maps = "/api/v1/namespaces/team/configmaps";
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&server, maps, &held);
    let scheduled = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n",
        "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/team/pods";
    create(&server, pods, &scheduled);
    delete(&server, &format!("{NAMESPACES}/team"), "Background");
    // Pods go first. Nobody ends this one.
    wait(&server, NAMESPACES, "team", |team| {
        let remaining = team.map(|team| condition(team, "NamespaceContentRemaining").clone());
        let message = remaining.map(|it| it["message"].clone());
        message
            == Some(json!(
                "Some resources are remaining: pods. has 1 resource instances"
            ))
    });
    assert!(!is_deleting(Some(&get(&server, &format!("{maps}/held")).1)));
    let force = json!({"gracePeriodSeconds": 0});
    send(&server, "DELETE", &format!("{pods}/p"), &force.to_string());
    let team = wait(&server, NAMESPACES, "team", |team| {
        team.is_some_and(|team| condition(team, "NamespaceFinalizersRemaining")["status"] == "True")
    });
    let team = team.unwrap_or_default();
    let found = condition(&team, "NamespaceFinalizersRemaining");
    assert_eq!(found["reason"], "SomeFinalizersRemain", "{team}");
    assert_eq!(
        found["message"],
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    let found = condition(&team, "NamespaceContentRemaining");
    assert_eq!(
        found["message"],
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    assert_eq!(
        condition(&team, "NamespaceDeletionContentFailure")["status"],
        "False"
    );
    patch(
        &server,
        &format!("{maps}/held"),
        &json!({"metadata": {"finalizers": null}}),
    );
    wait_gone(&server, NAMESPACES, "team");
}

/// Creates objects until the namespace refuses them.
fn fill(server: &ApiServer, writer: usize, has_begun: &AtomicBool) {
    for number in 0.. {
        let object = json!({"metadata": {"name": format!("c{writer}-{number}")}});
        let path = "/api/v1/namespaces/team/configmaps";
        let (code, _) = send(server, "POST", path, &object.to_string());
        match code {
            201 => has_begun.store(true, Ordering::Relaxed),
            403 | 404 => return,
            code => panic!("{code}"),
        }
    }
}

#[test]
fn nothing_is_left_by_writers() {
    let server = started("*");
    create(&server, NAMESPACES, &json!({"metadata": {"name": "team"}}));
    let has_begun = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..4 {
            let (server, has_begun) = (&server, &has_begun);
            scope.spawn(move || fill(server, writer, has_begun));
        }
        while !has_begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        delete(&server, &format!("{NAMESPACES}/team"), "Background");
    });
    wait_gone(&server, NAMESPACES, "team");
    // What was admitted before the deletion is found by the last look.
    wait_empty(&server, "/api/v1/namespaces/team/configmaps");
    wait_empty(&server, "/api/v1/namespaces/team/serviceaccounts");
}

#[test]
fn without_the_controller_namespaces_stay() {
    let server = started("*,-namespace-controller");
    create(&server, NAMESPACES, &json!({"metadata": {"name": "team"}}));
    delete(&server, &format!("{NAMESPACES}/team"), "Background");
    let (code, team) = get(&server, &format!("{NAMESPACES}/team"));
    assert_eq!(
        (code, &team["status"]),
        (200, &json!({"phase": "Terminating"}))
    );
}
