//! A store with indexes and a reconcile loop: for each node with changed pods, the loop reads the
//! pods of the node from the store, without a request to the server.
//!
//! `cargo run -p revstore-reflector --example indexed_store`

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use pollster::block_on;
use revstore_engine::Engine;
use revstore_reflector::{
    EventHandler, FinalState, Informer, InformerHandle, Reflector, StorageListWatch,
};
use revstore_watch_cache::{
    EngineSource, JsonKind, Object, ResourceConfig, Scope, Selector, WatchCache,
};

/// Returns the name of a pod's node: the first selectable field of the kind, `spec.nodeName`.
fn node_of(pod: &Object) -> Option<String> {
    let fields = &pod.attributes()?.fields;
    Some(fields.first()?.as_deref()?.to_owned())
}

/// A handler that sends the name of each node with changed pods.
struct ChangedNodes(Sender<String>);

impl ChangedNodes {
    fn send(&self, pod: &Object) {
        if let Some(node) = node_of(pod) {
            // The receiver is dropped when the program ends.
            let _ = self.0.send(node);
        }
    }
}

impl EventHandler for ChangedNodes {
    fn on_add(&mut self, pod: &Object, _initial: bool) {
        self.send(pod);
    }
    fn on_update(&mut self, old: &Object, new: &Object) {
        self.send(old);
        self.send(new);
    }
    fn on_delete(&mut self, state: &FinalState) {
        self.send(state.object());
    }
}

/// Acts on the current pods of a node. The channel contains only the name of the node; the pods are
/// in the store.
fn reconcile(informer: &InformerHandle, node: &str) -> Result<(), Box<dyn Error>> {
    let pods = informer.store().index_keys("node", node);
    writeln!(std::io::stdout(), "{node}: {pods:?}")?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().build();
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName"]);
    let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/registry/pods"))?;
    let _feeder = feeder.spawn();

    let put = |name: &str, node: &str| {
        let pod = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}"}}}}"#);
        engine.put(format!("/registry/pods/default/{name}"), pod)
    };
    for name in ["a", "b", "c"] {
        put(name, "node-1")?;
    }

    let source = StorageListWatch::new(Arc::new(pods), Scope::All, Selector::default());
    let informer = Informer::builder(Reflector::builder(Arc::new(source)).build())
        .index("node", |pod: &Object| node_of(pod).into_iter().collect())
        // Each pod is reconciled again every 10 minutes, in case an action has failed.
        .resync(Duration::from_secs(600))
        .build();
    let handle = informer.handle();
    let (sender, changed_nodes) = channel();
    let subscription = handle.subscribe();
    let handler = std::thread::spawn(move || block_on(subscription.run(ChangedNodes(sender))));
    let informer = informer.spawn();
    assert!(block_on(handle.synced()), "the informer is running");

    // A pod is moved to another node.
    let last = put("c", "node-2")?.revision;
    for node in changed_nodes {
        reconcile(&handle, &node)?;
        if handle.store().revision() >= Some(last) && node == "node-2" {
            break;
        }
    }
    // Ends the informer, then the subscription and its thread.
    drop(informer);
    handler.join().map_err(|_| "the handler panicked")?;
    Ok(())
}
