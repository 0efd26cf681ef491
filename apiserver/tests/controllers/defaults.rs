//! What controllers create, compute and remove without being asked.

use std::time::Duration;

use revstore_apiserver::auth::AuthorizationMode;
use revstore_apiserver::{ApiServer, Controllers};
use revstore_engine::ManualClock;
use serde_json::{Value, json};

use crate::client::{TestResult, send};
use crate::support::{
    CONFIG_MAPS, NAMESPACES, create, create_owned, define_widgets, delete, get, patch, reference,
    started, wait, wait_gone, widget,
};

#[test]
fn namespaces_have_an_account_and_the_authority() -> TestResult {
    let server = ApiServer::builder()
        .authorization_mode(AuthorizationMode::Rbac)
        .controllers(Controllers::all())
        .start()?;
    create(&server, NAMESPACES, &json!({"metadata": {"name": "team"}}));
    for namespace in ["default", "team"] {
        let accounts = format!("{NAMESPACES}/{namespace}/serviceaccounts");
        wait(&server, &accounts, "default", |account| account.is_some());
        delete(&server, &format!("{accounts}/default"), "Background");
        wait(&server, &accounts, "default", |account| account.is_some());
        let maps = format!("{NAMESPACES}/{namespace}/configmaps");
        let name = "kube-root-ca.crt";
        let is_whole = |map: Option<&Value>| {
            let text = map.and_then(|map| map["data"]["ca.crt"].as_str());
            text.is_some_and(|text| text.starts_with("-----BEGIN CERTIFICATE-----"))
        };
        wait(&server, &maps, name, is_whole);
        patch(
            &server,
            &format!("{maps}/{name}"),
            &json!({"data": {"ca.crt": "x"}}),
        );
        wait(&server, &maps, name, is_whole);
    }
    Ok(())
}

#[test]
fn finished_jobs_are_deleted_when_the_clock_says_so() -> TestResult {
    let clock = ManualClock::new();
    let server = ApiServer::builder()
        .clock(clock.clone())
        .https(None)
        .authorization_mode(AuthorizationMode::Rbac)
        .controllers(Controllers::all())
        .start()?;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let now =
        create_owned(&server, CONFIG_MAPS, "now", &[])["metadata"]["creationTimestamp"].clone();
    for (name, ttl) in [("soon", 60), ("late", 600)] {
        let job = json!({"metadata": {"name": name},
            "spec": {"ttlSecondsAfterFinished": ttl, "template": template}});
        let job = create(&server, jobs, &job);
        create_owned(&server, CONFIG_MAPS, name, &[reference(&job)]);
        let status = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1,
        "conditions": [
            {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now},
            {"type": "Complete", "status": "True", "lastTransitionTime": now},
        ]}});
        patch(&server, &format!("{jobs}/{name}/status"), &status);
    }
    assert_eq!(get(&server, &format!("{jobs}/soon")).0, 200);
    clock.advance(Duration::from_secs(61));
    wait_gone(&server, jobs, "soon");
    wait_gone(&server, CONFIG_MAPS, "soon");
    assert_eq!(get(&server, &format!("{jobs}/late")).0, 200);
    clock.advance(Duration::from_secs(600));
    wait_gone(&server, jobs, "late");
    Ok(())
}

#[test]
fn aggregated_roles_have_the_rules_of_those_they_select() {
    let server = started("clusterrole-aggregation-controller");
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let rule =
        |resource: &str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]});
    let labelled = |name: &str, label: &str, rules: Value| json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": rules});
    create(
        &server,
        roles,
        &json!({"metadata": {"name": "all"}, "aggregationRule": {
        "clusterRoleSelectors": [{"matchLabels": {"to": "all"}}]}}),
    );
    create(
        &server,
        roles,
        &labelled("b", "all", json!([rule("pods"), rule("secrets")])),
    );
    create(
        &server,
        roles,
        &labelled("a", "all", json!([rule("nodes"), rule("pods")])),
    );
    create(
        &server,
        roles,
        &labelled("c", "other", json!([rule("events")])),
    );
    let has = |expected: Value| {
        wait(&server, roles, "all", |all| {
            all.is_some_and(|all| all["rules"] == expected)
        });
    };
    has(json!([rule("nodes"), rule("pods"), rule("secrets")]));
    // What others write into it does not stay.
    patch(
        &server,
        &format!("{roles}/all"),
        &json!({"rules": [rule("events")]}),
    );
    has(json!([rule("nodes"), rule("pods"), rule("secrets")]));
    send(&server, "DELETE", &format!("{roles}/a"), "");
    has(json!([rule("pods"), rule("secrets")]));
}

#[test]
fn quotas_show_what_is_used() {
    let server = started("resourcequota-controller");
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"pods": "5", "requests.cpu": "1", "limits.memory": "1Gi", "count/configmaps": "3",
        "count/widgets.example.com": "1", "services": "2", "services.nodeports": "4", "example.com/unknown": "1"});
    create(
        &server,
        quotas,
        &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}),
    );
    let scoped = json!({"hard": {"pods": "5"}, "scopes": ["BestEffort"]});
    create(
        &server,
        quotas,
        &json!({"metadata": {"name": "scoped"}, "spec": scoped}),
    );
    let has = |name: &str, expected: &Value| {
        wait(&server, quotas, name, |quota| {
            quota.is_some_and(|quota| quota["status"]["used"] == *expected)
        });
    };
    // The service of the server itself counts.
    let mut used = json!({"pods": "0", "requests.cpu": "0", "limits.memory": "0", "count/configmaps": "0",
        "services": "1", "services.nodeports": "0"});
    has("q", &used);
    let resources = json!({"requests": {"cpu": "150m"}, "limits": {"memory": "512Mi"}});
    let pods = "/api/v1/namespaces/default/pods";
    for name in ["a", "b"] {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": resources}]}});
        create(&server, pods, &pod);
    }
    create_owned(&server, CONFIG_MAPS, "a", &[]);
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    create(&server, "/api/v1/namespaces/default/services", &service);
    for (name, value) in [
        ("pods", "2"),
        ("requests.cpu", "300m"),
        ("limits.memory", "1Gi"),
        ("count/configmaps", "1"),
        ("services", "2"),
        ("services.nodeports", "1"),
    ] {
        used[name] = json!(value);
    }
    has("q", &used);
    has("scoped", &json!({"pods": "0"}));
    // Pods that have ended use nothing.
    patch(
        &server,
        &format!("{pods}/a/status"),
        &json!({"status": {"phase": "Succeeded"}}),
    );
    send(&server, "DELETE", &format!("{pods}/b"), "");
    // The quotas demand that all containers say what they need.
    let nothing = json!({"requests": {"cpu": "0"}, "limits": {"memory": "0"}});
    let idle = json!({"metadata": {"name": "c"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": nothing}]}});
    create(&server, pods, &idle);
    for (name, value) in [("pods", "1"), ("requests.cpu", "0"), ("limits.memory", "0")] {
        used[name] = json!(value);
    }
    has("q", &used);
    has("scoped", &json!({"pods": "1"}));
    // Limits that are gone are not counted any more.
    let fewer = json!({"spec": {"hard": {"pods": "9", "requests.cpu": null, "limits.memory": null,
        "count/configmaps": null, "services": null, "services.nodeports": null}}});
    patch(&server, &format!("{quotas}/q"), &fewer);
    has("q", &json!({"pods": "1"}));
}

#[test]
fn quotas_of_custom_resources_are_counted_from_the_time_of_their_definition_on() {
    let server = started("resourcequota-controller");
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"hard": {"count/widgets.example.com": "2", "pods": "1"}});
    create(
        &server,
        quotas,
        &json!({"metadata": {"name": "q"}, "spec": hard}),
    );
    let has = |expected: &Value| {
        wait(&server, quotas, "q", |quota| {
            quota.is_some_and(|quota| quota["status"]["used"] == *expected)
        });
    };
    has(&json!({"pods": "0"}));
    define_widgets(&server);
    has(&json!({"count/widgets.example.com": "0", "pods": "0"}));
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    create(&server, widgets, &widget("a"));
    has(&json!({"count/widgets.example.com": "1", "pods": "0"}));

    // A definition goes with all objects.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    delete(
        &server,
        &format!("{definitions}/widgets.example.com"),
        "Background",
    );
    has(&json!({"count/widgets.example.com": "0", "pods": "0"}));
    while get(&server, "/apis/example.com/v1").0 != 404 {}
    patch(
        &server,
        &format!("{quotas}/q"),
        &json!({"spec": {"hard": {"pods": "3"}}}),
    );
    let counted = wait(&server, quotas, "q", |quota| {
        quota.is_some_and(|quota| quota["status"]["hard"]["pods"] == "3")
    });
    let used = json!({"count/widgets.example.com": "0", "pods": "0"});
    assert_eq!(counted.expect("it exists")["status"]["used"], used);
}
