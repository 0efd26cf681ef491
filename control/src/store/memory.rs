//! The memory that checkpoints and received files may take together.

use std::sync::Arc;

use parking_lot::Mutex;

/// The default of the memory that checkpoints and files may take, 1 GiB.
pub const MEMORY_LIMIT_DEFAULT: u64 = 1 << 30;

/// The memory of one server. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit: u64,
    /// A leaf lock.
    used: Mutex<u64>,
}

/// More memory than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exceeded {
    pub(super) needed: u64,
    pub(super) limit: u64,
}

/// Memory that is given back when the reservation is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: Memory,
    bytes: u64,
}

impl Memory {
    pub(super) fn new(limit: u64) -> Self {
        let used = Mutex::new(0);
        Self {
            inner: Arc::new(Inner { limit, used }),
        }
    }

    /// Reserves memory for something that replaces another reservation, which exists until then.
    pub(super) fn reserve(&self, bytes: u64, replaced: u64) -> Result<Reservation, Exceeded> {
        let mut reservation = Reservation {
            memory: self.clone(),
            bytes: 0,
        };
        reservation.grow(bytes, replaced)?;
        Ok(reservation)
    }
}

impl Reservation {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves more, instead of another reservation.
    pub(super) fn grow(&mut self, bytes: u64, replaced: u64) -> Result<(), Exceeded> {
        let limit = self.memory.inner.limit;
        let mut used = self.memory.inner.used.lock();
        let needed = (*used - replaced).saturating_add(bytes);
        if needed > limit {
            return Err(Exceeded { needed, limit });
        }
        *used = used.saturating_add(bytes);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.memory.inner.used.lock() -= self.bytes;
    }
}
