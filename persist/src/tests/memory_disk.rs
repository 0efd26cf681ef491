//! A file system in memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};

/// A file system whose operations fail on request, and that can be seen as it is after a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryDisk(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    /// The contents of all files that have a name, or had one.
    contents: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    /// The names that a crash leaves, and the changes that it may leave, too.
    durable_names: BTreeMap<PathBuf, usize>,
    name_changes: Vec<BTreeMap<PathBuf, usize>>,
    /// The number of operations that change something.
    operations: usize,
    /// The first operation that fails, the number of those that do, and how.
    failing: Option<(usize, usize, Failing)>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// The bytes that a crash leaves.
    durable: Vec<u8>,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// ENOSPC; a write has written a part.
    NoSpace,
    /// EIO. A failed fsync drops what it should have written, as Linux does.
    Io,
}

/// Numbers from a seed.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).unwrap() % end.max(1)
    }
}

impl MemoryDisk {
    pub(super) fn operations(&self) -> usize {
        self.0.lock().operations
    }

    /// Lets `count` operations fail from number `first` on.
    pub(super) fn fail(&self, first: usize, count: usize, failing: Failing) {
        self.0.lock().failing = Some((first, count, failing));
    }

    /// Returns what a crash leaves at this moment: the synced bytes, a part of the others, zeros or
    /// other bytes behind them; names as they were synced, or as after some of the later changes.
    pub(super) fn crashed(&self, random: &mut Random) -> Self {
        let files = self.0.lock();
        let kept = random.below(files.name_changes.len() + 1);
        let names = match kept {
            0 => files.durable_names.clone(),
            kept => files.name_changes[kept - 1].clone(),
        };
        let contents = files.contents.iter().map(|content| {
            let mut bytes = content.durable.clone();
            if content.bytes.starts_with(&bytes) {
                let unsynced = &content.bytes[bytes.len()..];
                let kept = random.below(unsynced.len() + 1);
                bytes.extend(&unsynced[..kept]);
                // The length may be durable before the bytes are.
                if random.below(3) == 0 {
                    let missing = random.below(unsynced.len() - kept + 1);
                    bytes.resize(bytes.len() + missing, 0);
                }
            }
            Content {
                durable: bytes.clone(),
                bytes,
            }
        });
        let contents = contents.collect();
        Self(Arc::new(Mutex::new(Files {
            contents,
            durable_names: names.clone(),
            names,
            ..Files::default()
        })))
    }

    pub(super) fn names(&self) -> Vec<String> {
        let files = self.0.lock();
        let names = files.names.keys();
        names
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect()
    }

    /// Changes the bytes of a file.
    pub(super) fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut files = self.0.lock();
        let found = files.names.iter();
        let mut found = found.filter(|(path, _)| path.ends_with(name));
        let index = *found.next().expect("the file exists").1;
        let content = &mut files.contents[index];
        edit(&mut content.bytes);
        content.durable = content.bytes.clone();
    }
}

impl Files {
    /// Counts an operation, and returns whether and how it fails.
    fn next(&mut self) -> Option<Failing> {
        let number = self.operations;
        self.operations += 1;
        let (first, count, failing) = self.failing?;
        (first..first.saturating_add(count))
            .contains(&number)
            .then_some(failing)
    }

    fn check(&mut self) -> io::Result<()> {
        self.next().map_or(Ok(()), |failing| Err(failing.error()))
    }

    fn rename(&mut self, change: impl FnOnce(&mut BTreeMap<PathBuf, usize>)) {
        change(&mut self.names);
        self.name_changes.push(self.names.clone());
    }
}

impl Failing {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::NoSpace => rustix::io::Errno::NOSPC.raw_os_error(),
            Self::Io => rustix::io::Errno::IO.raw_os_error(),
        })
    }
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.lock().names.contains_key(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut files = self.0.lock();
        files.check()?;
        let index = files.contents.len();
        files.contents.push(Content::default());
        files.rename(|names| names.extend([(path.to_owned(), index)]));
        let disk = self.clone();
        Ok(Box::new(MemoryFile { disk, index }))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut files = self.0.lock();
        files.check()?;
        let index = *files.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let disk = self.clone();
        Ok(Box::new(MemoryFile { disk, index }))
    }

    fn read(&self, path: &Path) -> io::Result<(Box<dyn Read>, u64)> {
        let files = self.0.lock();
        let index = *files.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let bytes = files.contents[index].bytes.clone();
        let len = bytes.len() as u64;
        Ok((Box::new(Cursor::new(bytes)), len))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.0.lock();
        files.check()?;
        let index = *files.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        files.rename(|names| {
            names.remove(from);
            names.insert(to.to_owned(), index);
        });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut files = self.0.lock();
        files.check()?;
        files.rename(|names| names.retain(|name, _| name != path));
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut files = self.0.lock();
        files.check()?;
        files.durable_names = files.names.clone();
        files.name_changes.clear();
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Debug + Send>> {
        Ok(Box::new(()))
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    index: usize,
}

impl DiskFile for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut files = self.disk.0.lock();
        let failing = files.next();
        let content = &mut files.contents[self.index];
        // Each write is short, so that no caller depends on complete ones.
        let written = match failing {
            None => bytes.len().div_ceil(2),
            Some(Failing::NoSpace) => bytes.len() / 3,
            Some(Failing::Io) => 0,
        };
        content.bytes.extend(&bytes[..written]);
        match failing {
            None => Ok(written),
            Some(failing) => Err(failing.error()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut files = self.disk.0.lock();
        let failing = files.next();
        let content = &mut files.contents[self.index];
        if let Some(failing) = failing {
            // Later reads return the durable bytes, with a hole behind them.
            let len = content.bytes.len();
            content.bytes.truncate(content.durable.len());
            content.bytes.resize(len, 0);
            return Err(failing.error());
        }
        content.durable = content.bytes.clone();
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let mut files = self.disk.0.lock();
        files.check()?;
        let content = &mut files.contents[self.index];
        content.bytes.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }
}
