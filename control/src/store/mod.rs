//! Copies of the store and its replacement: checkpoints, forks, files, resets and jumps.
//!
//! | file | contents |
//! |---|---|
//! | `checkpoints.rs` | the checkpoints of a server |
//! | `memory.rs` | the memory that checkpoints and received files may take together |
//! | `files.rs` | dumps that are being written, and files that are being received |
//! | `forks.rs` | the forks of a server |
//! | `free.rs` | the end of a store |

mod checkpoints;
mod files;
mod forks;
mod free;
mod memory;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use revstore_engine::{Clock, Engine, Jump, JumpError, ManualClock, Revision};
use tokio::sync::Semaphore;

pub use self::checkpoints::CHECKPOINTS_MAX;
pub use self::files::{DUMPS_MAX, DumpForm, StoreFile};
pub use self::forks::{FORKS_MAX, Fork, ForkId, ForkInfo};
pub use self::free::free;
pub use self::memory::MEMORY_LIMIT_DEFAULT;

pub(crate) use self::files::{OpenDump, Upload};

use self::checkpoints::Checkpoints;
use self::forks::Forks;
use self::memory::Memory;
use crate::clock::ControlClock;
use crate::control::Point;
use crate::error::ControlError;
use crate::target::{ServedNode, Target};

/// A store with the state of its node. Nothing changes it.
#[derive(Clone)]
pub struct Frozen {
    /// The keys with their history, and the leases.
    pub engine: Engine,
    /// What the node has besides, such as users and alarms, in a type of the server; `None` for a new node.
    pub node: Option<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// The options of [`Control::restore`](crate::Control::restore). The default continues at the revision of the
/// checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// A number to add to the revision of the checkpoint, so that no client has seen the next revisions.
    pub bump_revision: i64,
    /// Whether everything below the new revision counts as compacted, so that watches of clients list again.
    pub mark_compacted: bool,
}

/// The copies of the store of one server.
#[derive(Debug)]
pub(crate) struct Stores {
    memory: Memory,
    checkpoints: Checkpoints,
    forks: Forks,
    /// One permit for each dump.
    dumps: Arc<Semaphore>,
    /// Held for one replacement of the store, before the locks of the target and of engines.
    replacing: Mutex<()>,
}

impl Stores {
    pub(crate) fn new(memory_limit: u64) -> Self {
        let memory = Memory::new(memory_limit);
        Self {
            checkpoints: Checkpoints::new(memory.clone()),
            memory,
            dumps: Arc::new(Semaphore::new(DUMPS_MAX)),
            forks: Forks::default(),
            replacing: Mutex::new(()),
        }
    }

    pub(crate) fn checkpoint(
        &self,
        target: &dyn Target,
        name: &str,
    ) -> Result<Revision, ControlError> {
        target.check_store()?;
        let node = target.node();
        let history_bytes = node.engine().stats().history_bytes;
        self.checkpoints
            .insert(name, history_bytes, || freeze(&*node))
    }

    /// Makes a copy of the store for a dump.
    pub(crate) fn open_dump(
        &self,
        target: &dyn Target,
        clock: &ControlClock,
    ) -> Result<OpenDump, ControlError> {
        let permit = self.dumps.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ControlError::TooManyDumps)?;
        target.check_store()?;
        let frozen = freeze(&*target.node());
        let point = Point {
            revision: frozen.engine.current_revision(),
            time: clock.time(),
        };
        Ok(OpenDump {
            frozen,
            point,
            _permit: permit,
        })
    }

    /// Begins to receive a file that replaces the store, of this length if it is known.
    pub(crate) fn upload(&self, target: &dyn Target, length: u64) -> Result<Upload, ControlError> {
        target.check_replaceable()?;
        Upload::new(&self.memory, length)
    }

    /// Replaces the store by that of a file.
    pub(crate) fn load(
        &self,
        target: &dyn Target,
        bytes: &[u8],
        file: StoreFile,
    ) -> Result<(), ControlError> {
        target.check_replaceable()?;
        // With the clock and the options of the server, which are those of each of its stores.
        let frozen = target.read_store(bytes, file, target.engine().to_builder())?;
        let _replacing = self.replacing.lock();
        target.replace(frozen)
    }

    pub(crate) fn restore(
        &self,
        target: &dyn Target,
        name: &str,
        options: RestoreOptions,
    ) -> Result<(), ControlError> {
        let frozen = self.checkpoints.get(name)?;
        let origin = frozen.engine.current_revision();
        if options.bump_revision < 0 {
            let message = format!("the revision cannot be bumped by {}", options.bump_revision);
            return Err(ControlError::Invalid(message));
        }
        let current = Revision(origin.0.saturating_add(options.bump_revision));
        let _replacing = self.replacing.lock();
        target.check_replaceable()?;
        let jump = Jump {
            current,
            mark_compacted: options.mark_compacted,
        };
        // With the clock and the options of the server.
        let engine = target.engine().to_builder().fork_at(&frozen.engine, jump)?;
        let node = frozen.node;
        target.replace(Frozen { engine, node })
    }

    pub(crate) fn reset(
        &self,
        target: &dyn Target,
        keep_revision: bool,
    ) -> Result<(), ControlError> {
        let _replacing = self.replacing.lock();
        target.check_replaceable()?;
        let old = target.engine();
        let builder = old.to_builder();
        let ended = keep_revision.then(|| EndedWrites::of(&old));
        let builder = match &ended {
            Some(ended) => {
                let kept = builder.start_revision(ended.last);
                kept.map_err(|error| ControlError::Refused(error.to_string()))?
            }
            None => builder,
        };
        target.replace(Frozen {
            engine: builder.build(),
            node: None,
        })?;
        if let Some(ended) = ended {
            ended.keep();
        }
        Ok(())
    }

    /// Makes the next write get at least this revision.
    pub(crate) fn jump(&self, target: &dyn Target, next: Revision) -> Result<(), ControlError> {
        let _replacing = self.replacing.lock();
        target.check_replaceable()?;
        let node = target.node();
        let old = node.engine();
        let current = Revision(next.0.saturating_sub(1));
        if current <= old.current_revision() {
            return Err(ControlError::Jump(JumpError {
                requested: next,
                current: old.current_revision(),
            }));
        }
        let jump = Jump {
            current,
            mark_compacted: false,
        };
        let engine = old.to_builder().fork_at(&old, jump)?;
        let node = node.state();
        target.replace(Frozen { engine, node })
    }

    pub(crate) fn fork(
        &self,
        target: &dyn Target,
        clock: &ControlClock,
    ) -> Result<ForkInfo, ControlError> {
        self.forks.insert(|| {
            let (frozen, clock) = Self::copy_with_clock(target, clock)?;
            let taken = Point {
                revision: frozen.engine.current_revision(),
                time: clock.time(),
            };
            Ok((target.fork(frozen, clock)?, taken))
        })
    }

    /// Copies the store, over a copy of the clock.
    pub(crate) fn copy_with_clock(
        target: &dyn Target,
        clock: &ControlClock,
    ) -> Result<(Frozen, ControlClock), ControlError> {
        target.check_store()?;
        let clock = clock.copy();
        Ok((copy(&*target.node(), clock.clone()), clock))
    }

    pub(crate) fn forks(&self) -> Vec<ForkInfo> {
        self.forks.list()
    }

    /// Ends all forks and removes all checkpoints.
    pub(crate) fn clear(&self) {
        self.forks.clear();
        self.checkpoints.clear();
    }

    /// Ends a fork or removes a checkpoint.
    pub(crate) fn drop_copy(&self, id: &str) -> Result<(), ControlError> {
        if self.forks.remove(id) || self.checkpoints.remove(id) {
            return Ok(());
        }
        Err(ControlError::NoSuchCopy(id.to_owned()))
    }
}

/// The end of the writes of a store that is being replaced, so that no client gets a revision that the new store uses again.
/// Unless it is kept, the store takes writes again.
struct EndedWrites<'a> {
    engine: &'a Engine,
    /// The revision of the last write.
    last: Revision,
}

impl<'a> EndedWrites<'a> {
    fn of(engine: &'a Engine) -> Self {
        let last = engine.end_writes();
        Self { engine, last }
    }

    /// Leaves the store without writes, as it was replaced.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for EndedWrites<'_> {
    fn drop(&mut self) {
        self.engine.resume_writes();
    }
}

/// Copies a node. A clock that nobody moves keeps the time that leases have left.
fn freeze(node: &dyn ServedNode) -> Frozen {
    copy(node, ManualClock::new())
}

/// Copies a node: first the engine, so that no key refers to a later state. A replacement of the node does not wait for the
/// copy, and is not part of it.
fn copy(node: &dyn ServedNode, clock: impl Clock + 'static) -> Frozen {
    let engine = node.engine();
    Frozen {
        engine: engine.to_builder().clock(clock).fork(&engine),
        node: node.state(),
    }
}
