//! Lists in pages: the limit, the continue token, and the error of an expired token as a Kubernetes
//! `Status` with a new token.
//!
//! `cargo run -p revstore-watch-cache --example pages`

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use pollster::block_on;
use revstore_engine::Engine;
use revstore_watch_cache::api::{Expired, ObjectList};
use revstore_watch_cache::status::Reason;
use revstore_watch_cache::{
    EngineSource, JsonKind, ListOptions, RequestError, ResourceCache, ResourceConfig, Scope,
    WatchCache,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let engine = Engine::builder().build();
    for number in 0..10 {
        let value = format!(r#"{{"metadata":{{"name":"pod-{number}"}}}}"#);
        engine.put(format!("/pods/default/pod-{number}"), value)?;
    }
    let source = Arc::new(EngineSource::new(engine.clone()));
    let (cache, feeder) = WatchCache::builder(source).build();
    let kind = JsonKind::new("v1", "Pod");
    let pods = cache.add(ResourceConfig::namespaced(kind, "pods", "/pods"))?;
    let running = feeder.spawn();
    block_on(pods.wait_until_ready())?;

    // All pages have the revision of the first one, although an object changes meanwhile.
    let first = list(&pods, &ListOptions::default().limit(4))?;
    let revision = first.revision;
    let remaining = first.remaining_item_count.unwrap_or_default();
    let token = first
        .continue_token
        .clone()
        .ok_or("the first page has no continue token")?;
    let count = first.into_objects()?.len();
    writeln!(out, "{count} pods at {revision}, {remaining} more")?;
    engine.put(
        "/pods/default/pod-9",
        r#"{"metadata":{"name":"pod-9"},"spec":{}}"#,
    )?;
    let second = list(
        &pods,
        &ListOptions::default().limit(4).continue_token(token),
    )?;
    let token = second
        .continue_token
        .clone()
        .ok_or("the second page has no continue token")?;
    writeln!(out, "{} pods at {}", second.items.count(), revision)?;

    // The store compacts the revision of the pages, so the token expires. The error contains a token
    // that continues at the latest revision.
    let newest = engine.put("/pods/default/pod-0", r#"{"metadata":{"name":"pod-0"}}"#)?;
    engine.compact(newest.revision)?.run();
    match list(
        &pods,
        &ListOptions::default().limit(4).continue_token(token),
    ) {
        Err(error @ RequestError::Expired(Expired::Continue { .. })) => {
            let status = error.status();
            let reason = status.reason.map_or("", Reason::name);
            writeln!(out, "{} {reason}", status.code)?;
            let token = status
                .continue_token
                .ok_or("the status has no continue token")?;
            let rest = list(
                &pods,
                &ListOptions::default().limit(4).continue_token(token),
            )?;
            writeln!(out, "{} pods at {}", rest.items.count(), newest.revision)?;
        }
        other => return Err(format!("expected an expired token, got {other:?}").into()),
    }
    drop(running);
    Ok(())
}

fn list(pods: &ResourceCache, options: &ListOptions) -> Result<ObjectList, RequestError> {
    block_on(pods.list(&Scope::All, options))
}
