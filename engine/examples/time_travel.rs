//! History and time travel: each version of a key stays readable at its revision until a
//! compaction drops it.
//!
//! `cargo run -p revstore-engine --example time_travel`

use std::error::Error;
use std::io::{Write as _, stdout};

use revstore_engine::{Engine, Filter, KeyRange, Range, ReadError, SortBy, SortOrder};

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().build();
    let mut out = stdout();

    // Three deployments of two services, and the removal of one of them.
    engine.put("/deploy/api", "v1")?;
    let initial = engine.put("/deploy/web", "v1")?.revision;
    let upgrade = engine.put("/deploy/api", "v2")?.revision;
    engine.delete(&KeyRange::one("/deploy/web"))?;

    // The state at each revision, from the first write to the current one.
    let services = KeyRange::prefix("/deploy/");
    let mut revision = initial;
    while revision <= engine.current_revision() {
        let found = engine.range(&Range::of(services.clone()).at(revision))?;
        writeln!(out, "revision {revision}:")?;
        for kv in &found.kvs {
            let (key, value) = (kv.key().escape_ascii(), kv.value().escape_ascii());
            writeln!(out, "  {key} = {value} (version {})", kv.version())?;
        }
        revision = revision.next();
    }

    // The keys that changed at or after the upgrade, the latest first.
    let changed = Range::of(services.clone())
        .filtered(Filter::default().min_mod_revision(upgrade))
        .sorted(SortBy::ModRevision, SortOrder::Descending);
    for kv in engine.range(&changed)?.kvs {
        writeln!(out, "changed: {}", kv.key().escape_ascii())?;
    }

    // A compaction drops the history below a revision. The versions that are live at that revision
    // stay readable.
    engine.compact(upgrade)?.run();
    match engine.range(&Range::of(services).at(initial)) {
        Err(ReadError::Compacted { compacted, .. }) => {
            writeln!(
                out,
                "revision {initial} is compacted; the oldest is {compacted}"
            )?;
        }
        other => panic!("expected ReadError::Compacted, got {other:?}"),
    }
    let api = engine.get("/deploy/api").ok_or("the key is live")?;
    writeln!(out, "api is {}", api.value().escape_ascii())?;
    Ok(())
}
