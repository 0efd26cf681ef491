//! The checkpoints of a server.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use revstore_engine::Revision;

use super::memory::{Exceeded, Memory, Reservation};
use super::{Frozen, free};
use crate::error::ControlError;

/// The maximum number of checkpoints of one server.
pub const CHECKPOINTS_MAX: usize = 1_000;

/// The maximum length of a name.
const NAME_BYTES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Checkpoints {
    memory: Memory,
    /// Held for a look or a change, before `Memory::used`.
    by_name: Mutex<BTreeMap<String, Checkpoint>>,
}

#[derive(Debug)]
struct Checkpoint {
    frozen: Frozen,
    reserved: Reservation,
}

impl Checkpoint {
    /// Gives its memory back, and frees the store.
    fn free(self) {
        let Self { frozen, reserved } = self;
        drop(reserved);
        free(frozen);
    }
}

impl Checkpoints {
    pub(super) fn new(memory: Memory) -> Self {
        Self {
            memory,
            by_name: Mutex::default(),
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
        // Reserved while the checkpoint is made.
        let reserved = {
            let by_name = self.by_name.lock();
            let replaced = by_name.get(name);
            if replaced.is_none() && by_name.len() >= CHECKPOINTS_MAX {
                return Err(ControlError::TooManyCheckpoints);
            }
            let replaced = replaced.map_or(0, |checkpoint| checkpoint.reserved.bytes());
            let reserved = self.memory.reserve(history_bytes, replaced);
            reserved.map_err(
                |Exceeded { needed, limit }| ControlError::CheckpointMemory { needed, limit },
            )?
        };
        let frozen = freeze();
        let revision = frozen.engine.current_revision();
        let checkpoint = Checkpoint { frozen, reserved };
        let old = self.by_name.lock().insert(name.to_owned(), checkpoint);
        if let Some(old) = old {
            old.free();
        }
        Ok(revision)
    }

    pub(super) fn get(&self, name: &str) -> Result<Frozen, ControlError> {
        let by_name = self.by_name.lock();
        let frozen = by_name.get(name).map(|it| it.frozen.clone());
        frozen.ok_or_else(|| ControlError::NoSuchCheckpoint(name.to_owned()))
    }

    pub(super) fn clear(&self) {
        let removed = std::mem::take(&mut *self.by_name.lock());
        removed.into_values().for_each(Checkpoint::free);
    }

    /// Returns whether there was one.
    pub(super) fn remove(&self, name: &str) -> bool {
        let removed = self.by_name.lock().remove(name);
        removed.map(Checkpoint::free).is_some()
    }
}
