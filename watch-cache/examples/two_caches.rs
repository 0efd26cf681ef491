//! Two resources in one cache over one engine, and a watch that continues from a bookmark after a
//! compaction.
//!
//! `cargo run -p revstore-watch-cache --example two_caches`

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use pollster::block_on;
use revstore_engine::{Engine, ManualClock};
use revstore_watch_cache::{
    CacheWatcher, EngineSource, JsonKind, ListOptions, ResourceConfig, Scope, Selector, WatchCache,
    WatchEvent, WatchOptions,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let clock = ManualClock::new();
    let engine = Engine::builder().clock(clock.clone()).build();
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source)
        .clock(Arc::new(clock.clone()))
        .build();
    let kind = JsonKind::new("v1", "Pod").with_fields(["spec.nodeName"]);
    let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/registry/pods"))?;
    let kind = JsonKind::new("v1", "Secret");
    let secrets = cache.add(ResourceConfig::namespaced(
        kind,
        "secrets",
        "/registry/secrets",
    ))?;
    let running = feeder.spawn();
    block_on(pods.wait_until_ready())?;
    block_on(secrets.wait_until_ready())?;

    let pod = |name: &str, node: &str| {
        let value = format!(
            "{{\"metadata\":{{\"name\":\"{name}\"}},\"spec\":{{\"nodeName\":\"{node}\"}}}}"
        );
        engine.put(format!("/registry/pods/default/{name}"), value)
    };
    let secret = |name: &str| {
        let value = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}");
        engine.put(format!("/registry/secrets/default/{name}"), value)
    };

    // The watch of a kubelet: the pods of one node, with bookmarks.
    let on_node_1 = |resource_version: String| -> Result<CacheWatcher, Box<dyn Error>> {
        let options = WatchOptions::default()
            .resource_version(resource_version)
            .allow_bookmarks(true)
            .selector(Selector::parse("", "spec.nodeName=node-1")?);
        Ok(block_on(pods.watch(&Scope::All, &options))?)
    };
    pod("mine", "node-1")?;
    let mut watcher = on_node_1("1".into())?;
    show(&mut out, watcher.next_blocking().as_ref())?;

    // Many changes of other objects. The next bookmark has a newer revision, although no event
    // matches.
    for number in 0..1000 {
        pod(&format!("other-{number}"), "node-2")?;
        secret(&format!("secret-{number}"))?;
    }
    block_on(pods.wait_until_fresh(engine.current_revision()))?;
    assert!(watcher.try_next().is_none(), "no event matches node-1");
    clock.advance(Duration::from_secs(60));
    let bookmark = watcher.next_blocking();
    show(&mut out, bookmark.as_ref())?;
    let resume = bookmark
        .and_then(|event| event.revision())
        .ok_or("the watcher returned no bookmark")?;

    // The client disconnects, the store compacts its history, and the pod moves to another node.
    drop(watcher);
    engine.compact(resume)?.run();
    pod("mine", "node-2")?;

    // The watch resumes from the bookmark without a list and without a lost event.
    let mut watcher = on_node_1(resume.to_string())?;
    show(&mut out, watcher.next_blocking().as_ref())?;

    // Lists of both resources include the newest write of the store.
    let newest = secret("last")?.revision;
    for cache in [&pods, &secrets] {
        let list = block_on(cache.list(&Scope::All, &ListOptions::default()))?;
        assert!(list.revision >= newest);
        writeln!(out, "{} objects at {}", list.items.count(), newest)?;
    }
    drop(running);
    Ok(())
}

fn show(out: &mut impl std::io::Write, event: Option<&WatchEvent>) -> std::io::Result<()> {
    match event {
        Some(WatchEvent::Object { event, object, .. }) => {
            writeln!(
                out,
                "{} {} at {}",
                event.as_str(),
                object.store_key(),
                object.revision()
            )
        }
        Some(WatchEvent::Bookmark { revision, .. }) => writeln!(out, "BOOKMARK at {revision}"),
        Some(WatchEvent::Error(error)) => writeln!(out, "ERROR {error}"),
        None => writeln!(out, "the watcher has ended"),
    }
}
