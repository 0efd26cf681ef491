//! The checkpoints of a server, and their memory.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use revstore_engine::Revision;

use super::Frozen;
use crate::error::ControlError;

/// The maximum number of checkpoints of one server.
pub const CHECKPOINTS_MAX: usize = 1_000;

/// The default of the memory that checkpoints may take, 1 GiB.
pub const MEMORY_LIMIT_DEFAULT: u64 = 1 << 30;

/// The maximum length of a name.
const NAME_BYTES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Checkpoints {
    /// The maximum of `State::bytes`.
    memory_limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_name: BTreeMap<String, Checkpoint>,
    /// The sum over all checkpoints, those that are being made included.
    bytes: u64,
}

#[derive(Debug)]
struct Checkpoint {
    frozen: Frozen,
    bytes: u64,
}

impl Checkpoints {
    pub(super) fn new(memory_limit: u64) -> Self {
        Self {
            memory_limit,
            state: Mutex::default(),
        }
    }

    /// Adds a checkpoint, or replaces the one with its name. `history_bytes` is the size of the store, with which the
    /// checkpoint counts: it shares most of that with the server, but alone has it after a reset. Returns the revision
    /// of the checkpoint.
    pub(super) fn insert(
        &self,
        name: &str,
        history_bytes: u64,
        freeze: impl FnOnce() -> Frozen,
    ) -> Result<Revision, ControlError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let message = format!("the name of a checkpoint has from 1 to {NAME_BYTES_MAX} bytes");
            return Err(ControlError::Invalid(message));
        }
        let bytes = history_bytes;
        {
            let mut state = self.state.lock();
            let replaced = state.by_name.get(name);
            if replaced.is_none() && state.by_name.len() >= CHECKPOINTS_MAX {
                return Err(ControlError::TooManyCheckpoints);
            }
            let replaced = replaced.map_or(0, |checkpoint| checkpoint.bytes);
            let needed = (state.bytes - replaced).saturating_add(bytes);
            if needed > self.memory_limit {
                return Err(ControlError::CheckpointMemory {
                    needed,
                    limit: self.memory_limit,
                });
            }
            // Reserved while the checkpoint is made.
            state.bytes = state.bytes.saturating_add(bytes);
        }
        let reserved = Reserved { of: self, bytes };
        let frozen = freeze();
        let revision = frozen.engine.current_revision();
        let old = {
            let mut state = self.state.lock();
            std::mem::forget(reserved);
            let checkpoint = Checkpoint { frozen, bytes };
            let old = state.by_name.insert(name.to_owned(), checkpoint);
            state.bytes -= old.as_ref().map_or(0, |old| old.bytes);
            old
        };
        free(old);
        Ok(revision)
    }

    pub(super) fn get(&self, name: &str) -> Result<Frozen, ControlError> {
        let state = self.state.lock();
        let checkpoint = state.by_name.get(name);
        let frozen = checkpoint.map(|checkpoint| checkpoint.frozen.clone());
        frozen.ok_or_else(|| ControlError::NoSuchCheckpoint(name.to_owned()))
    }

    pub(super) fn clear(&self) {
        let removed = {
            let mut state = self.state.lock();
            let removed = std::mem::take(&mut state.by_name);
            state.bytes -= removed.values().map(|removed| removed.bytes).sum::<u64>();
            removed
        };
        for removed in removed.into_values() {
            free(Some(removed));
        }
    }

    /// Returns whether there was one.
    pub(super) fn remove(&self, name: &str) -> bool {
        let removed = {
            let mut state = self.state.lock();
            let removed = state.by_name.remove(name);
            state.bytes -= removed.as_ref().map_or(0, |removed| removed.bytes);
            removed
        };
        let is_removed = removed.is_some();
        free(removed);
        is_removed
    }
}

/// Frees a store in a thread of its own, because that takes time.
fn free(checkpoint: Option<Checkpoint>) {
    if let Some(checkpoint) = checkpoint {
        // Without a thread, the store is freed here.
        let _ = std::thread::Builder::new()
            .name("revstore-free".to_owned())
            .spawn(move || drop(checkpoint));
    }
}

/// Memory that is given back if the checkpoint is not made.
struct Reserved<'a> {
    of: &'a Checkpoints,
    bytes: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.of.state.lock().bytes -= self.bytes;
    }
}
