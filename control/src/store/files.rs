//! Stores in files: dumps that are being written, and files that are being received.

use std::io::{self, Write};

use tokio::sync::OwnedSemaphorePermit;

use super::Frozen;
use super::memory::{Exceeded, Memory, Reservation};
use crate::control::Point;
use crate::error::ControlError;
use crate::target::Target;

/// The maximum number of dumps that one server writes at the same time. Each has a copy of the store and a thread.
pub const DUMPS_MAX: usize = 16;

/// The form of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DumpForm {
    /// One event in each line, in JSON.
    #[default]
    Text,
    /// That of the snapshots of a journal.
    Binary,
}

/// A file that a store is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFile {
    /// A dump, as text or binary.
    Dump,
    /// A file of `etcdctl snapshot save`.
    EtcdSnapshot,
}

/// A dump that is being written: a copy of the store.
#[derive(Debug)]
pub(crate) struct OpenDump {
    pub(super) frozen: Frozen,
    /// The revision of the copy, and the time at which it was made.
    pub(crate) point: Point,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl OpenDump {
    pub(crate) fn write(
        &self,
        target: &dyn Target,
        form: DumpForm,
        to: &mut (dyn Write + Send),
    ) -> io::Result<()> {
        target.write_dump(&self.frozen, form, to)
    }
}

/// The bytes of a file that is being received. They count against the memory limit until the store is read.
#[derive(Debug)]
pub(crate) struct Upload {
    bytes: Vec<u8>,
    reserved: Reservation,
}

impl Upload {
    /// Begins to receive a file, of this length if it is known.
    pub(super) fn new(memory: &Memory, length: u64) -> Result<Self, ControlError> {
        let reserved = memory.reserve(length, 0);
        let refused = |exceeded| refusal(length, exceeded);
        Ok(Self {
            bytes: Vec::new(),
            reserved: reserved.map_err(refused)?,
        })
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        let length = (self.bytes.len() + bytes.len()) as u64;
        let more = length.saturating_sub(self.reserved.bytes());
        let grown = self.reserved.grow(more, 0);
        grown.map_err(|exceeded| refusal(length, exceeded))?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn refusal(length: u64, Exceeded { needed, limit }: Exceeded) -> ControlError {
    if length > limit {
        ControlError::FileTooLarge { limit }
    } else {
        ControlError::FileMemory { needed, limit }
    }
}
