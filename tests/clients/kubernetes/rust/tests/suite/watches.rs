//! Watches: those of the API, and the watchers and reflectors of kube-runtime.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_with};
use serde_json::json;

use crate::custom::{define, dynamic_widget, dynamic_widgets};
use crate::server::{Server, create_maps, within};

#[tokio::test]
async fn watches_with_bookmarks() {
    let server = Server::start(&[]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    create_maps(&maps, &["a"]).await;
    let version = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version;
    let params = WatchParams::default().labels("app=test").timeout(3);
    let mut events = pin!(maps.watch(&params, &version.unwrap()).await.unwrap());
    create_maps(&maps, &["b"]).await;
    let patch = Patch::Merge(json!({"data": {"size": "large"}}));
    maps.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    let mut last = String::new();
    while let Some(event) = within(events.try_next()).await.unwrap() {
        seen.push(match event {
            WatchEvent::Added(map) => format!("added {}", map.metadata.name.unwrap()),
            WatchEvent::Modified(map) => format!("modified {}", map.metadata.name.unwrap()),
            WatchEvent::Deleted(map) => format!("deleted {}", map.metadata.name.unwrap()),
            WatchEvent::Bookmark(bookmark) => {
                last = bookmark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => panic!("{status:?}"),
        });
    }
    assert_eq!(seen, ["added b", "modified a", "deleted b"]);
    // The watch has ended with a bookmark, from which the next one begins.
    let mut events = pin!(maps.watch(&WatchParams::default(), &last).await.unwrap());
    create_maps(&maps, &["c"]).await;
    let event = within(events.try_next()).await.unwrap();
    assert!(
        matches!(event, Some(WatchEvent::Added(map)) if map.metadata.name.as_deref() == Some("c"))
    );
}

/// Reads events until the store has exactly these objects.
async fn until(
    store: &reflector::Store<ConfigMap>,
    events: &mut (impl Stream<Item = watcher::Result<Event<ConfigMap>>> + Unpin),
    names: &[&str],
) {
    loop {
        let mut found: Vec<_> = store
            .state()
            .iter()
            .filter_map(|map| map.metadata.name.clone())
            .collect();
        found.sort();
        if found == names {
            return;
        }
        within(events.next())
            .await
            .expect("watchers do not end")
            .unwrap();
    }
}

async fn reflects(config: watcher::Config) {
    let server = Server::start(&[]);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    create_maps(&maps, &["a", "b", "c"]).await;
    let (store, writer) = reflector::store();
    let config = config.labels("app=test");
    let mut events = pin!(reflector::reflector(
        writer,
        watch_with(maps.clone(), config)
    ));
    until(&store, &mut events, &["a", "b", "c"]).await;
    create_maps(&maps, &["d"]).await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    until(&store, &mut events, &["b", "c", "d"]).await;
    // An object that the selector no longer selects is a deletion.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": null}}}));
    maps.patch("b", &PatchParams::default(), &patch)
        .await
        .unwrap();
    until(&store, &mut events, &["c", "d"]).await;
    let found = store.get(&ObjectRef::new("c").within("default")).unwrap();
    assert_eq!(*found, maps.get("c").await.unwrap());
}

#[tokio::test]
async fn reflectors_that_list() {
    reflects(watcher::Config::default().page_size(2)).await;
}

#[tokio::test]
async fn reflectors_with_streaming_lists() {
    reflects(watcher::Config::default().streaming_lists()).await;
}

/// A watch from a compacted version gets 410, and the watcher lists again.
async fn recovers(config: watcher::Config) {
    let server = Server::start(&[]);
    let is_outdated = Arc::new(AtomicBool::new(false));
    let next = is_outdated.clone();
    let client = server.client_with(move |request| {
        let uri = request.uri().to_string();
        let is_resumed = uri.contains("/widgets?")
            && uri.contains("watch=true")
            && !uri.contains("sendInitialEvents");
        if is_resumed && next.swap(false, Ordering::SeqCst) {
            let (before, version) = uri.split_once("resourceVersion=").unwrap();
            let after = version.find('&').map_or("", |at| &version[at..]);
            *request.uri_mut() = format!("{before}resourceVersion=1{after}").parse().unwrap();
        }
    });
    let client = client.await;
    // The history of the custom resource begins after the compaction.
    create_maps(&Api::default_namespaced(client.clone()), &["a"]).await;
    server.compact().await;
    define(&client).await;
    let widgets = dynamic_widgets(client);
    widgets
        .create(&PostParams::default(), &dynamic_widget("a"))
        .await
        .unwrap();
    let mut events = pin!(watch_with(widgets, config.timeout(1)));
    let (mut inits, mut expired) = (0, false);
    while inits < 2 {
        match within(events.next()).await.expect("watchers do not end") {
            Ok(Event::InitDone) => {
                inits += 1;
                is_outdated.store(inits == 1, Ordering::SeqCst);
            }
            Ok(_) => {}
            Err(watcher::Error::WatchError(status)) => expired |= status.code == 410,
            Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) => {
                expired |= status.code == 410;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(expired, "the watcher has listed again without 410");
}

#[tokio::test]
async fn watchers_that_list_recover_from_410() {
    recovers(watcher::Config::default()).await;
}

#[tokio::test]
async fn watchers_with_streaming_lists_recover_from_410() {
    recovers(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn watches_of_metadata() {
    let server = Server::start(&[]);
    let client = server.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create_maps(&maps, &["a"]).await;
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(client);
    let config = watcher::Config::default().labels("app=test");
    let mut objects = pin!(watch_with(maps, config).applied_objects());
    let found = within(objects.next()).await.unwrap().unwrap();
    assert_eq!(found.metadata.name.as_deref(), Some("a"));
}
