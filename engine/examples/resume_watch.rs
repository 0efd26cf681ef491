//! A watch that resumes: a follower keeps a copy of a range, stops reading, and continues later. It
//! then gets either every change since, or `WatchEnd::Compacted`, after which it reads the state
//! again.
//!
//! `cargo run -p revstore-engine --example resume_watch`

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Write as _, stdout};

use revstore_engine::{
    Engine, KeyRange, Range, Revision, WatchBatch, WatchEnd, WatchOptions, Watcher,
};

/// A copy of a range, which follows the store by a watch.
struct Follower {
    engine: Engine,
    range: KeyRange,
    copy: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The copy contains all changes up to this revision.
    revision: Revision,
}

impl Follower {
    /// Reads the current state.
    fn new(engine: &Engine, range: KeyRange) -> Result<Self, Box<dyn Error>> {
        let mut follower = Self {
            engine: engine.clone(),
            range,
            copy: BTreeMap::new(),
            revision: Revision::FIRST,
        };
        follower.read_all()?;
        Ok(follower)
    }

    fn read_all(&mut self) -> Result<(), Box<dyn Error>> {
        let found = self.engine.range(&Range::of(self.range.clone()))?;
        let pairs = found.kvs.iter();
        self.copy = pairs
            .map(|kv| (kv.key().to_vec(), kv.value().to_vec()))
            .collect();
        self.revision = found.revision;
        Ok(())
    }

    /// Applies all changes since the last call. Returns how the copy was brought up to date.
    fn catch_up(&mut self) -> Result<&'static str, Box<dyn Error>> {
        let mut watcher = self.watch()?;
        while let Some(batch) = watcher.try_next() {
            match batch {
                Ok(batch) => self.apply(&batch),
                Err(WatchEnd::Compacted { .. }) => {
                    // Changes after `self.revision` are lost, so the state is read again.
                    self.read_all()?;
                    return Ok("read everything");
                }
            }
        }
        Ok("applied the changes")
    }

    /// Watches from the first revision that the copy does not contain.
    fn watch(&self) -> Result<Watcher, Box<dyn Error>> {
        let options = WatchOptions::of(self.range.clone()).from(self.revision.next());
        Ok(self.engine.watch(options)?)
    }

    fn apply(&mut self, batch: &WatchBatch) {
        for event in &batch.events {
            let key = event.kv.key().to_vec();
            if event.kv.is_tombstone() {
                self.copy.remove(&key);
            } else {
                self.copy.insert(key, event.kv.value().to_vec());
            }
            self.revision = event.kv.mod_revision();
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().build();
    let mut out = stdout();
    engine.put("job/1", "queued")?;
    let mut follower = Follower::new(&engine, KeyRange::prefix("job/"))?;
    writeln!(
        out,
        "{} job at revision {}",
        follower.copy.len(),
        follower.revision
    )?;

    // The follower does not read for a while. The history since then is kept.
    engine.put("job/2", "queued")?;
    engine.put("job/1", "done")?;
    engine.delete(&KeyRange::one("job/2"))?;
    let how = follower.catch_up()?;
    writeln!(
        out,
        "{how}: {} job at revision {}",
        follower.copy.len(),
        follower.revision
    )?;

    // The follower does not read again, and a compaction drops a part of the history.
    engine.put("job/3", "queued")?;
    let last = engine.put("job/4", "queued")?.revision;
    engine.compact(last)?.run();
    let how = follower.catch_up()?;
    writeln!(
        out,
        "{how}: {} jobs at revision {}",
        follower.copy.len(),
        follower.revision
    )?;

    // Then it reads each change when it is made, on a thread that waits for changes.
    let mut watcher = follower.watch()?;
    let thread = std::thread::spawn(move || {
        for batch in watcher.iter().take(2) {
            match batch {
                Ok(batch) => follower.apply(&batch),
                Err(end) => return Err(end),
            }
        }
        Ok(follower.revision)
    });
    engine.put("job/3", "done")?;
    let last = engine.put("job/4", "done")?.revision;
    let reached = thread.join().expect("the thread does not panic")?;
    writeln!(out, "followed to revision {reached} of {last}")?;
    Ok(())
}
