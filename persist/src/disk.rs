//! The operations on files. Tests replace them to let each of them fail.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// A file system.
pub(crate) trait Disk: Debug + Send + Sync {
    /// Creates a directory and its parents, if they do not exist.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns the names of the files in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Returns whether a path exists.
    fn exists(&self, path: &Path) -> bool;
    /// Creates an empty file, or truncates it.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for writing at its end.
    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading, and returns its length.
    fn read(&self, path: &Path) -> io::Result<(Box<dyn Read>, u64)>;
    /// Renames a file, and replaces the one with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names of a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Locks a file, which is created if it does not exist, until the result is dropped. Returns an error
    /// of the kind `WouldBlock` if another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Debug + Send>>;
}

/// A file that is open for writing.
pub(crate) trait DiskFile: Debug + Send {
    /// Writes some bytes at the end; returns their number.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file off.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
}

/// Writes all bytes.
pub(crate) fn write_all(file: &mut dyn DiskFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The files of the system.
#[derive(Debug)]
pub(crate) struct SystemDisk;

impl Disk for SystemDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(dir)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(options.open(path)?))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Box::new(file))
    }

    fn read(&self, path: &Path) -> io::Result<(Box<dyn Read>, u64)> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok((Box::new(file), len))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Debug + Send>> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        Ok(Box::new(LockedFile::lock(options.open(path)?)?))
    }
}

/// A file with a lock that ends when this is dropped, also while a copy of the descriptor exists: a process that another
/// thread starts at this moment has one until it executes its program.
#[derive(Debug)]
struct LockedFile(File);

impl LockedFile {
    fn lock(file: File) -> io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // If it fails, the close of the file ends the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // The length belongs to the data, so it is durable, too.
        self.sync_data()
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        File::set_len(self, len)?;
        self.seek(SeekFrom::Start(len)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_while_a_new_process_has_a_copy_of_its_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let locked = LockedFile::lock(File::create(&path).unwrap()).unwrap();
        let inherited = locked.0.try_clone().unwrap();
        let other = || LockedFile::lock(File::create(&path).unwrap());
        assert_eq!(other().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(locked);
        other().unwrap();
        drop(inherited);
    }
}
