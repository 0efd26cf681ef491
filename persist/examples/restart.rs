//! Measures how long a restart with many keys takes: the number of keys is the first argument, a million by
//! default. Keys have 33 bytes and values 256.

#![expect(clippy::print_stdout, reason = "the output of an example")]

use std::error::Error;
use std::time::Instant;

use revstore_engine::Engine;
use revstore_persist::{Fsync, Options, open};

fn main() -> Result<(), Box<dyn Error>> {
    let keys: u64 = match std::env::args().nth(1) {
        Some(keys) => keys.parse()?,
        None => 1_000_000,
    };
    let dir = tempfile::tempdir()?;
    let options = Options::default().fsync(Fsync::Never);
    let reopen = |what: &str| -> Result<_, Box<dyn Error>> {
        let started = Instant::now();
        let opened = open(dir.path(), Engine::builder(), options)?;
        let (live, elapsed) = (opened.engine.stats().live_keys, started.elapsed());
        println!("{what}: {live} keys in {:.2} s", elapsed.as_secs_f64());
        Ok(opened)
    };
    let opened = reopen("new directory")?;
    let started = Instant::now();
    for number in 0..keys {
        opened
            .engine
            .put(format!("/registry/example/{number:015}"), vec![b'v'; 256])?;
    }
    opened.persist.close()?;
    let elapsed = started.elapsed().as_secs_f64();
    println!(
        "written and closed in {elapsed:.2} s: {:?}",
        opened.persist.stats()
    );
    drop(opened);

    let opened = reopen("journal or snapshot of revisions")?;
    let current = opened.engine.current_revision();
    opened.engine.compact(current)?.run();
    // A snapshot of the compacted store replaces the journal.
    opened.engine.put("last", "")?;
    opened.persist.close()?;
    drop(opened);
    reopen("after a compaction")?.persist.close()?;
    Ok(())
}
