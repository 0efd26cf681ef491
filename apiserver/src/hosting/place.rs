//! What names of files mean to a process.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// The files that decide what a name means: the mounts of the process, its root and its working directory, each with its
/// device and number. For processes with the same ones each name, also a relative one, means the same file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place([(u64, u64); 3]);

impl Place {
    /// Returns the place of this process.
    pub(super) fn here() -> io::Result<Self> {
        let id = |path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
        Ok(Self([id("/proc/self/ns/mnt")?, id("/")?, id(".")?]))
    }
}
