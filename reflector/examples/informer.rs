//! An informer over an embedded watch cache, which prints each change of the pods with a label.
//!
//! `cargo run -p revstore-reflector --example informer`

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use pollster::block_on;
use revstore_engine::{Engine, KeyRange};
use revstore_reflector::{Informer, Notification, Reflector, ReflectorMode, StorageListWatch};
use revstore_watch_cache::{EngineSource, JsonKind, ResourceConfig, Scope, Selector, WatchCache};

fn main() -> Result<(), Box<dyn Error>> {
    // The embedded store, and the cache that follows it.
    let engine = Engine::builder().build();
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let kind = JsonKind::new("v1", "Pod");
    let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/registry/pods"))?;
    let _feeder = feeder.spawn();

    let put = |name: &str, app: &str| {
        let pod = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"app":"{app}"}}}}}}"#);
        engine.put(format!("/registry/pods/default/{name}"), pod)
    };
    put("a", "web")?;
    put("b", "db")?;

    // The informer: one watch that begins with the existing pods.
    let source = StorageListWatch::new(Arc::new(pods), Scope::All, Selector::parse("app=web", "")?);
    let reflector = Reflector::builder(Arc::new(source))
        .mode(ReflectorMode::WatchList)
        .build();
    let informer = Informer::builder(reflector)
        .on_error(|error| {
            let _ = writeln!(std::io::stderr(), "retrying after: {error}");
        })
        .build();
    let handle = informer.handle();
    let mut changes = handle.subscribe();
    let _informer = informer.spawn();
    assert!(block_on(handle.synced()), "the informer is running");

    // The changes of all pods, in order. The loop ends at the pod `last` only because this is an
    // example.
    put("b", "web")?;
    put("a", "db")?;
    engine.delete(&KeyRange::one("/registry/pods/default/b"))?;
    put("last", "web")?;
    let mut out = std::io::stdout();
    while let Some(change) = changes.next_blocking() {
        match change {
            Notification::Added { object, initial } => {
                let kind = if initial { "existing" } else { "added" };
                writeln!(out, "{kind} {}", object.store_key())?;
                if object.name() == "last" {
                    break;
                }
            }
            Notification::Updated { new, .. } => writeln!(out, "updated {}", new.store_key())?,
            Notification::Deleted(state) => {
                writeln!(out, "deleted {}", state.object().store_key())?;
            }
        }
    }
    writeln!(out, "in the store: {:?}", handle.store().keys())?;
    Ok(())
}
