//! Dumps: a whole store as one file in the format of snapshots, outside of a directory.

use std::fmt;
use std::io::{self, BufReader, Read, Write};

use revstore_engine::{Engine, EngineBuilder};
use thiserror::Error;

use crate::disk::DiskFile;
use crate::error::Corruption;
use crate::format::{MAGIC, Metadata};
use crate::snapshot::{self, ReadError};

/// The number of bytes that are read at a time.
const READ_BYTES: usize = 256 * 1024;

/// The reason for which a dump cannot be read.
#[derive(Debug, Error)]
pub enum DumpError {
    /// The bytes cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The dump is damaged, or none.
    #[error("damaged at offset {offset}: {reason}")]
    Corrupt {
        /// The offset of the damaged part, in bytes.
        offset: u64,
        /// What is wrong with it.
        reason: Corruption,
    },
}

/// Returns whether a file with these first bytes is in the format of dumps.
///
/// ```
/// assert!(revstore_persist::is_dump(b"revstore..."));
/// ```
pub fn is_dump(first: &[u8]) -> bool {
    first.starts_with(MAGIC)
}

/// Writes a whole store at one revision, with its history, its leases, and the time that they have left, and
/// with metadata. Returns the number of bytes.
///
/// Writers and compactions of the engine go on. The memory that the call needs does not depend on the size of
/// the store: 1 MiB, and the largest version.
///
/// ```
/// use revstore_engine::Engine;
/// use revstore_persist::{Metadata, read_dump, write_dump};
///
/// let engine = Engine::builder().build();
/// engine.put("key", "value")?;
/// let mut dump = Vec::new();
/// write_dump(&mut dump, &engine, &Metadata::new())?;
/// let (copy, _) = read_dump(&dump[..], dump.len() as u64, Engine::builder())?;
/// assert_eq!(copy.get("key"), engine.get("key"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of `to`.
pub fn write_dump(
    to: &mut (dyn Write + Send),
    engine: &Engine,
    metadata: &Metadata,
) -> io::Result<u64> {
    let dump = engine.dump();
    let leases = dump.leases().iter().copied();
    snapshot::write(&mut Output(to), 0, &dump, leases, metadata)
}

/// Reads a dump of `len` bytes into a new engine, which `builder` has the clock and the options of. A snapshot
/// file of a directory is a dump, too.
///
/// # Errors
/// See [`DumpError`]. Everything is checked: a dump that is read is one that [`write_dump`] has written, or a
/// snapshot.
pub fn read_dump(
    from: impl Read,
    len: u64,
    builder: EngineBuilder,
) -> Result<(Engine, Metadata), DumpError> {
    let from = BufReader::with_capacity(READ_BYTES, from);
    let (replay, end) = snapshot::read(from, len, None, builder).map_err(|error| match error {
        ReadError::Io(error) => DumpError::Io(error),
        ReadError::Corrupt { offset, reason } => DumpError::Corrupt { offset, reason },
    })?;
    // Only the end shows which leases the dump does not contain.
    replay.finish().map_err(|error| DumpError::Corrupt {
        offset: end,
        reason: error.into(),
    })
}

/// An output in the place of a file.
struct Output<'a>(&'a mut (dyn Write + Send));

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

impl DiskFile for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn set_len(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
