//! Recovery: from the files of a directory to an engine.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use revstore_engine::{Engine, EngineBuilder, Revision};

use crate::disk::Disk;
use crate::error::{Corruption, OpenError};
use crate::format::{
    BATCH_FRAME_BYTES, FileKind, FrameReader, MAGIC, Metadata, Replay, batch_offset,
};
use crate::snapshot::{self, ReadError};

/// The number of bytes that are read from a file at a time.
const READ_BYTES: usize = 1024 * 1024;

/// What the recovery of a directory has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Whether the directory contained a store.
    pub is_found: bool,
    /// The journal whose end was not complete, and the number of bytes that were cut off. A crash in the
    /// middle of a write causes this; nothing that was synced is lost.
    pub cut: Option<(PathBuf, u64)>,
}

/// The state of a directory after its recovery.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) revision: Revision,
    pub(crate) compacted: Option<Revision>,
    pub(crate) metadata: Metadata,
    pub(crate) report: Recovered,
    pub(crate) snapshot: u64,
    /// The last journal, with its valid length; `None` if there is none.
    pub(crate) journal: Option<(u64, u64)>,
    /// The bytes of the journals before the last one.
    pub(crate) earlier_bytes: u64,
    pub(crate) snapshot_bytes: u64,
}

/// The paths of the files of one directory.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) dir: PathBuf,
}

impl Paths {
    pub(crate) fn snapshot(&self, sequence: u64) -> PathBuf {
        self.dir.join(format!("snapshot-{sequence:016}"))
    }

    /// Returns the path of a snapshot that is not complete.
    pub(crate) fn unfinished(&self, sequence: u64) -> PathBuf {
        self.dir.join(format!("snapshot-{sequence:016}.tmp"))
    }

    pub(crate) fn journal(&self, sequence: u64) -> PathBuf {
        self.dir.join(format!("journal-{sequence:016}"))
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("LOCK")
    }
}

/// The numbers of the files of a directory, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) snapshots: Vec<u64>,
    pub(crate) journals: Vec<u64>,
    pub(crate) unfinished: Vec<u64>,
}

impl Files {
    pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> std::io::Result<Self> {
        let mut files = Self::default();
        for name in disk.list(dir)? {
            if let Some(number) = name.strip_prefix("journal-") {
                files.journals.extend(number.parse::<u64>());
            } else if let Some(number) = name.strip_prefix("snapshot-") {
                match number.strip_suffix(".tmp") {
                    Some(number) => files.unfinished.extend(number.parse::<u64>()),
                    None => files.snapshots.extend(number.parse::<u64>()),
                }
            }
        }
        for numbers in [
            &mut files.snapshots,
            &mut files.journals,
            &mut files.unfinished,
        ] {
            numbers.sort_unstable();
        }
        Ok(files)
    }

    /// Returns a number that is above all others.
    pub(crate) fn next(&self) -> u64 {
        let all = [&self.snapshots, &self.journals, &self.unfinished];
        let last = all.iter().filter_map(|numbers| numbers.last()).max();
        last.map_or(1, |last| last + 1)
    }
}

/// Restores the engine of a directory: the newest snapshot, then the journals from its number on.
pub(crate) fn recover(
    disk: &dyn Disk,
    paths: &Paths,
    builder: EngineBuilder,
) -> Result<Option<State>, OpenError> {
    let files = Files::list(disk, &paths.dir).map_err(OpenError::io(&paths.dir))?;
    let Some(snapshot) = files.snapshots.last().copied() else {
        return match files.journals.first() {
            // A journal is created when the snapshot before it is durable.
            Some(first) => Err(OpenError::Missing {
                path: paths.snapshot(*first),
            }),
            None => Ok(None),
        };
    };
    let path = paths.snapshot(snapshot);
    let (reader, snapshot_bytes) = disk.read(&path).map_err(OpenError::io(&path))?;
    let reader = BufReader::with_capacity(READ_BYTES, reader);
    let (mut replay, _) = snapshot::read(reader, snapshot_bytes, Some(snapshot), builder)
        .map_err(|error| open_error(&path, error))?;

    let journals = files.journals.iter().filter(|number| **number >= snapshot);
    let journals: Vec<u64> = journals.copied().collect();
    let mut report = Recovered {
        is_found: true,
        cut: None,
    };
    let (mut earlier_bytes, mut last) = (0, None);
    for (expected, number) in (snapshot..).zip(&journals) {
        if *number != expected {
            return Err(OpenError::Missing {
                path: paths.journal(expected),
            });
        }
        let path = paths.journal(*number);
        let (reader, len) = disk.read(&path).map_err(OpenError::io(&path))?;
        let reader = BufReader::with_capacity(READ_BYTES, reader);
        let mut journal = Journal {
            number: *number,
            len,
            replay: &mut replay,
        };
        let read = journal.read(reader);
        let ReadEnd { valid, is_damaged } = read.map_err(|error| open_error(&path, error))?;
        earlier_bytes += last.map_or(0, |(_, len)| len);
        last = Some((*number, valid));
        if valid == len {
            continue;
        }
        let is_last = journals.last() == Some(number);
        if is_damaged && (!is_last || was_synced(disk, &path, valid)?) {
            return Err(OpenError::Corrupt {
                path,
                offset: valid,
                reason: Corruption::Checksum,
            });
        }
        if !is_last {
            return Err(OpenError::Corrupt {
                path,
                offset: valid,
                reason: Corruption::Incomplete,
            });
        }
        report.cut = Some((path, len - valid));
    }
    let (revision, compacted) = (replay.revision(), replay.compacted);
    let (engine, metadata) = replay.finish().map_err(|source| OpenError::State {
        path: paths.dir.clone(),
        source,
    })?;
    Ok(Some(State {
        engine,
        revision,
        compacted,
        metadata,
        report,
        snapshot,
        journal: last,
        earlier_bytes,
        snapshot_bytes,
    }))
}

fn open_error(path: &Path, error: ReadError) -> OpenError {
    let path = path.to_owned();
    match error {
        ReadError::Io(source) => OpenError::Io { path, source },
        ReadError::Corrupt { offset, reason } => OpenError::Corrupt {
            path,
            offset,
            reason,
        },
    }
}

/// A journal that is read.
struct Journal<'a> {
    number: u64,
    len: u64,
    replay: &'a mut Replay,
}

/// Where the valid part of a journal ends.
struct ReadEnd {
    /// The end of the last whole revision, or of another record after it.
    valid: u64,
    /// Whether the first frame that is not valid comes before the end.
    is_damaged: bool,
}

impl Journal<'_> {
    fn read(&mut self, reader: impl Read) -> Result<ReadEnd, ReadError> {
        let damaged = ReadEnd {
            valid: 0,
            is_damaged: true,
        };
        let Some(mut frames) = FrameReader::new(reader, self.len)? else {
            return Ok(damaged);
        };
        let mut body = Vec::new();
        let offset = frames.offset();
        if !frames.read(&mut body)? {
            return Ok(damaged);
        }
        let corrupt = |offset, reason| ReadError::Corrupt { offset, reason };
        let header = snapshot::header_of(&body, FileKind::Journal, self.number)
            .map_err(|reason| corrupt(offset, reason))?;
        if header.revision != self.replay.revision() {
            let (found, expected) = (header.revision.0, self.replay.revision().0);
            return Err(corrupt(offset, Corruption::Gap { found, expected }));
        }
        let mut valid = frames.offset();
        while !frames.is_at_end() {
            let offset = frames.offset();
            if !frames.read(&mut body)? {
                self.replay.drop_parts();
                return Ok(ReadEnd {
                    valid,
                    is_damaged: true,
                });
            }
            let applied = self.replay.apply(&body);
            applied.map_err(|reason| corrupt(offset, reason))?;
            if self.replay.is_whole() {
                valid = frames.offset();
            }
        }
        self.replay.drop_parts();
        Ok(ReadEnd {
            valid,
            is_damaged: false,
        })
    }
}

/// Returns whether a later frame of the journal states that more than `valid` bytes were synced. Then the
/// bytes that are not valid there were damaged afterwards.
fn was_synced(disk: &dyn Disk, path: &Path, valid: u64) -> Result<bool, OpenError> {
    let (reader, len) = disk.read(path).map_err(OpenError::io(path))?;
    let mut reader = BufReader::with_capacity(READ_BYTES, reader);
    let mut window = Vec::new();
    let mut skipped = std::io::copy(&mut (&mut reader).take(valid), &mut std::io::sink())
        .map_err(OpenError::io(path))?;
    while skipped < len {
        let read = (&mut reader)
            .take(READ_BYTES as u64)
            .read_to_end(&mut window);
        let read = read.map_err(OpenError::io(path))?;
        if read == 0 {
            break;
        }
        skipped += read as u64;
        let found = (0..window.len()).any(|start| {
            let synced = batch_offset(&window[start..]);
            synced.is_some_and(|synced| synced > valid.max(MAGIC.len() as u64))
        });
        if found {
            return Ok(true);
        }
        let rest = window.len().saturating_sub(BATCH_FRAME_BYTES - 1);
        window.drain(..rest);
    }
    Ok(false)
}
