//! A controller over an embedded watch cache: it gives each pod without a node to a node.
//!
//! `cargo run -p revstore-reflector --example controller`

use std::error::Error;
use std::sync::Arc;

use pollster::block_on;
use revstore_engine::Engine;
use revstore_reflector::work_queue::WorkQueue;
use revstore_reflector::{
    Action, Controller, Handlers, Informer, ListWatch, Lister, Reflector, StorageListWatch,
};
use revstore_watch_cache::{EngineSource, JsonKind, ResourceConfig, Scope, Selector, WatchCache};
use serde::Deserialize;

/// The part of a pod that the controller reads. A type of `k8s-openapi` would serve as well.
#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

/// Runs the controller over any source until `has_finished` returns true for the pods. `bind` gives a
/// pod to a node; an error means that it is tried again later.
pub(crate) fn run(
    source: Arc<dyn ListWatch>,
    bind: impl Fn(&str, &str) -> Result<(), String> + Send + Sync + 'static,
    has_finished: impl Fn(usize) -> bool + Send + Sync + 'static,
) {
    let informer = Informer::builder(Reflector::builder(source).build()).build();
    let handle = informer.handle();
    let pods: Lister<Pod> = Lister::new(handle.store().clone());
    let queue = WorkQueue::new();
    let adder = queue.clone();
    let registration = handle.add_handler(Handlers::keys(move |key| adder.add(key)));
    let running = informer.spawn();
    let stop = queue.clone();
    let controller = Controller::new(queue, move |key: String| {
        let reconciled = reconcile(&pods, &key, &bind);
        let bound = pods.list().objects.into_iter();
        if has_finished(bound.filter(|pod| pod.spec.node_name.is_some()).count()) {
            stop.shut_down();
        }
        async move { reconciled }
    });
    block_on(controller.workers(2).run());
    drop((registration, running));
}

/// Brings one pod closer to the state that is wanted. It is called again after each change.
fn reconcile(
    pods: &Lister<Pod>,
    key: &str,
    bind: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<Action, String> {
    match pods.get(key).map_err(|failure| failure.to_string())? {
        Some(pod) if pod.spec.node_name.is_none() => bind(key, &pod.metadata.name)?,
        _ => {}
    }
    Ok(Action::Done)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // The embedded store, and the cache that follows it.
    let engine = Engine::builder().build();
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let kind = JsonKind::new("v1", "Pod");
    let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/registry/pods"))?;
    let _feeder = feeder.spawn();
    for name in ["a", "b", "c"] {
        let pod = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        engine.put(format!("/registry/pods/default/{name}"), pod)?;
    }
    let source = StorageListWatch::new(Arc::new(pods), Scope::All, Selector::default());
    let bind = move |key: &str, name: &str| {
        let pod = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"n1"}}}}"#);
        let put = engine.put(format!("/registry/pods/{key}"), pod);
        put.map(drop).map_err(|error| error.to_string())
    };
    run(Arc::new(source), bind, |bound| bound == 3);
    Ok(())
}
