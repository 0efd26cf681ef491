//! Listers: typed reads of a store, and objects that cannot be decoded.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pollster::block_on;
use revstore_reflector::{FinalState, Informer, Lister, Reflector, StorageListWatch};
use revstore_watch_cache::selector::LabelSelector;
use revstore_watch_cache::{Object, Scope, Selector};
use serde::Deserialize;

use crate::support::{Fixture, pod};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
}

fn informer(fixture: &Fixture) -> Informer {
    let storage = Arc::new(fixture.pods.clone());
    let source = StorageListWatch::new(storage, Scope::All, Selector::default());
    let reflector = Reflector::builder(Arc::new(source))
        .clock(Arc::new(fixture.clock.clone()))
        .build();
    Informer::builder(reflector)
        .index("app", |pod: &Object| {
            pod.label("app").map(str::to_owned).into_iter().collect()
        })
        .build()
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.metadata.name.as_str()).collect()
}

// Shows WC-517.
#[test]
fn wc_517_objects_are_found_by_key_namespace_labels_and_index_as_values() {
    let fixture = Fixture::new();
    let revision = fixture.put("ns/a", pod("ns/a", "web", "n1"));
    fixture.put("ns/b", pod("ns/b", "db", "n2"));
    fixture.put("ns2/c", pod("ns2/c", "web", ""));
    // A pod whose spec is not that of a pod.
    let bad = fixture.put("ns/x", r#"{"metadata":{"name":"x"},"spec":"none"}"#.into());
    fixture.wait_until_fresh();
    let informer = informer(&fixture);
    let handle = informer.handle();
    let _running = informer.spawn();
    assert!(block_on(handle.synced()));
    let pods: Lister<Pod> = Lister::new(handle.store().clone());
    let a = pods.get("ns/a").unwrap().unwrap();
    assert_eq!(a.spec.node_name, "n1");
    assert_eq!(a.metadata.resource_version, revision.to_string());
    let again = pods.clone().get("ns/a").unwrap().unwrap();
    assert!(Arc::ptr_eq(&a, &again), "an object is decoded once");
    assert!(pods.get("ns/missing").unwrap().is_none());

    let listed = pods.list();
    assert_eq!(names(&listed.objects), ["a", "b", "c"]);
    let failures = [listed.failures, vec![pods.get("ns/x").unwrap_err()]].concat();
    for failure in &failures {
        assert_eq!((failure.key.as_str(), failure.revision.0), ("ns/x", bad));
        assert!(
            failure
                .to_string()
                .starts_with("unable to decode ns/x at revision")
        );
    }
    assert_eq!(failures.len(), 2);
    assert_eq!(names(&pods.namespace("ns").objects), ["a", "b"]);
    assert_eq!(pods.namespace("n").objects.len(), 0);
    assert_eq!(names(&pods.by_index("app", "web").objects), ["a", "c"]);
    let selector = LabelSelector::parse("app!=db,app").unwrap();
    assert_eq!(names(&pods.matching(&selector).objects), ["a", "c"]);

    // A changed object is decoded again, and one that is repaired is no failure.
    let changed = fixture.put("ns/a", pod("ns/a", "web", "n9"));
    let repaired = fixture.put("ns/x", pod("ns/x", "", ""));
    fixture.delete("ns/b");
    let deleted = revstore_watch_cache::Revision(fixture.current());
    block_on(handle.reached(deleted, None)).unwrap();
    assert!(changed < repaired);
    assert_eq!(pods.get("ns/a").unwrap().unwrap().spec.node_name, "n9");
    assert_eq!(names(&pods.list().objects), ["a", "x", "c"]);
    assert_eq!(
        a.spec.node_name, "n1",
        "a value that was read does not change"
    );
}

#[test]
fn typed_handlers_report_objects_that_cannot_be_decoded() {
    let fixture = Fixture::new();
    let informer = informer(&fixture);
    let handle = informer.handle();
    let pods: Lister<Pod> = Lister::new(handle.store().clone());
    let (calls, log) = channel();
    let calls = Arc::new(Mutex::new(calls));
    let say = move |text: String| calls.lock().unwrap().send(text).unwrap();
    let [add, update, delete, failure] = [(); 4].map(|()| say.clone());
    let handlers = pods
        .handlers()
        .on_add(move |pod, _| add(format!("add {}", pod.metadata.name)))
        .on_update(move |old, new| {
            update(format!(
                "update {} {}",
                old.spec.node_name, new.spec.node_name
            ));
        })
        .on_delete(move |state| {
            let is_known = matches!(state, FinalState::Known(_));
            delete(format!(
                "delete {} {is_known}",
                state.object().metadata.name
            ));
        })
        .on_failure(move |found| failure(format!("failure {}", found.key)));
    let registration = handle.add_handler(handlers);
    let running = informer.spawn();
    assert!(block_on(handle.synced()));
    fixture.put("ns/a", pod("ns/a", "", "n1"));
    fixture.put("ns/a", pod("ns/a", "", "n2"));
    fixture.put("ns/a", r#"{"metadata":{"name":"a"},"spec":1}"#.into());
    fixture.put("ns/a", pod("ns/a", "", "n3"));
    fixture.delete("ns/a");
    let calls: Vec<String> = log.iter().take(5).collect();
    assert_eq!(
        calls,
        [
            "add a",
            "update n1 n2",
            "failure ns/a",
            "add a",
            "delete a true"
        ]
    );
    drop((registration, running));
}
