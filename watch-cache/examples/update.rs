//! Writes without lost updates: four threads increment a counter in the same object.
//!
//! The update function gets the current version of the object and returns the new one. When another
//! thread has written the object meanwhile, the store calls the function again.
//!
//! `cargo run -p revstore-watch-cache --example update`

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::thread;

use pollster::block_on;
use revstore_engine::Engine;
use revstore_watch_cache::api::{Storage, Update, UpdateOptions};
use revstore_watch_cache::{
    EngineSource, GetOptions, JsonKind, Object, ObjectRef, RequestError, ResourceConfig, WatchCache,
};

const THREADS: u64 = 4;
const INCREMENTS: u64 = 25;

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().build();
    let source = Arc::new(EngineSource::new(engine));
    let (cache, feeder) = WatchCache::builder(source).build();
    let kind = JsonKind::new("example.org/v1", "Counter");
    let counters = cache.add(ResourceConfig::cluster(kind, "counters", "/counters"))?;
    let running = feeder.spawn();
    block_on(counters.wait_until_ready())?;

    let name = ObjectRef::cluster("visits");
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| (0..INCREMENTS).try_for_each(|_| increment(&counters, &name))))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("the thread did not panic"))
    })?;

    let counter = block_on(counters.get(&name, &GetOptions::default()))?
        .ok_or("the counter does not exist")?;
    let mut out = std::io::stdout();
    writeln!(out, "count {} at {}", count(&counter), counter.revision())?;
    assert_eq!(count(&counter), THREADS * INCREMENTS);
    drop(running);
    Ok(())
}

/// Adds 1 to the counter, which is created with the value 1 if it does not exist.
fn increment(counters: &dyn Storage, name: &ObjectRef) -> Result<(), RequestError> {
    let options = UpdateOptions::default().create_if_missing(true);
    let update = Box::new(|current: Option<&Object>| {
        let next = current.map_or(0, count) + 1;
        let value = format!(r#"{{"metadata":{{"name":"visits"}},"count":{next}}}"#);
        Ok(Update::new(value))
    });
    block_on(counters.guaranteed_update(name, &options, update))?;
    Ok(())
}

fn count(object: &Object) -> u64 {
    let value: serde_json::Value = serde_json::from_slice(object.value()).unwrap_or_default();
    value["count"].as_u64().unwrap_or_default()
}
