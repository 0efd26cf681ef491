//! A reflector that continues after the last revision of a previous one, such as in a client that
//! keeps its state over a restart. If that revision is compacted, the reflector delivers an initial
//! state.
//!
//! `cargo run -p revstore-reflector --example resumed_reflector`

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use pollster::block_on;
use revstore_engine::{Engine, KeyRange};
use revstore_reflector::{Reflector, ReflectorEvent, StorageListWatch};
use revstore_watch_cache::clock::SystemClock;
use revstore_watch_cache::source::RawStore;
use revstore_watch_cache::{EngineSource, JsonKind, ResourceConfig, Revision, Scope, Selector};

/// Prints the events of a reflector up to a revision, and returns that revision.
fn follow(reflector: &mut Reflector, until: Revision) -> Result<Revision, Box<dyn Error>> {
    let mut out = std::io::stdout();
    loop {
        match block_on(reflector.next()) {
            ReflectorEvent::Init => writeln!(out, "  initial state:")?,
            ReflectorEvent::InitApply(object) => writeln!(out, "    {}", object.store_key())?,
            ReflectorEvent::InitDone(revision) => writeln!(out, "  complete at {revision}")?,
            ReflectorEvent::Apply(object) => writeln!(out, "  apply {}", object.store_key())?,
            ReflectorEvent::Delete(object) => writeln!(out, "  delete {}", object.store_key())?,
            ReflectorEvent::Failed(error) => writeln!(out, "  failed: {error}")?,
            _ => {}
        }
        match reflector.last_revision() {
            Some(revision) if revision >= until => return Ok(revision),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let engine = Engine::builder().build();
    let source = Arc::new(EngineSource::new(engine.clone()));
    let kind = JsonKind::new("coordination.k8s.io/v1", "Lease");
    let config = ResourceConfig::namespaced(kind, "leases", "/registry/leases");
    let leases = RawStore::new(source, config, Arc::new(SystemClock::new()));
    let leases = StorageListWatch::new(Arc::new(leases), Scope::All, Selector::default());
    let leases = Arc::new(leases);
    let put = |name: &str| {
        let lease = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        engine.put(format!("/registry/leases/kube-system/{name}"), lease)
    };

    writeln!(out, "first run: a list, then a watch")?;
    put("scheduler")?;
    let current = put("controller")?.revision;
    let mut reflector = Reflector::builder(leases.clone()).build();
    let last = follow(&mut reflector, current)?;
    drop(reflector);

    // Changes while no reflector runs.
    put("node-1")?;
    let deleted = engine.delete(&KeyRange::one("/registry/leases/kube-system/scheduler"))?;

    writeln!(out, "second run: only the changes after {last}")?;
    let mut reflector = Reflector::builder(leases.clone())
        .resume_after(last)
        .build();
    follow(&mut reflector, deleted.revision)?;
    drop(reflector);

    // The changes after `last` are no longer available.
    let current = put("node-2")?.revision;
    engine.compact(current)?.run();

    writeln!(out, "third run: {last} is compacted")?;
    let mut reflector = Reflector::builder(leases).resume_after(last).build();
    follow(&mut reflector, current)?;
    Ok(())
}
