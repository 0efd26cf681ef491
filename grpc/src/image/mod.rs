//! Images: a whole store, with the state of its node, in a file.
//!
//! | file | contents |
//! |---|---|
//! | `error.rs` | what may be wrong with a file |
//! | `etcd.rs` | reads a snapshot of a real etcd |
//! | `pairs.rs` | checks the state of a node |
//! | `text/` | a dump as text, one event in each line |
//!
//! The binary form of a dump is that of `revstore-persist`.

mod error;
mod etcd;
mod pairs;
mod text;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use revstore_engine::{Engine, EngineBuilder};
use revstore_persist::{is_dump, read_dump, write_dump};

pub use self::error::{Damage, ImageError};

use self::error::Found;
use crate::node::state::NodeState;

/// A store with the state of its node: what a dump contains, and what a checkpoint keeps.
///
/// A checkpoint is an image of a [fork](Engine::fork). Clones share the engine.
///
/// ```
/// use revstore_engine::{Engine, ManualClock};
/// use revstore_grpc::{Image, NodeState};
///
/// # let dir = tempfile::tempdir()?;
/// let engine = Engine::builder().build();
/// engine.put("color", "red")?;
/// let image = Image { engine, state: NodeState::default() };
/// let path = dir.path().join("dump");
/// image.write_text(&mut std::fs::File::create(&path)?)?;
/// let loaded = Image::load(&path, Engine::builder().clock(ManualClock::new()))?;
/// assert_eq!(loaded.engine.get("color"), image.engine.get("color"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    /// The keys, their history, and the leases.
    pub engine: Engine,
    /// The users, roles, alarms, members and the Raft state.
    pub state: NodeState,
}

impl Image {
    /// Writes a dump as text: one event in each line, in JSON. `docs/dump-format.md` documents it.
    ///
    /// The dump is of one revision of the engine, whose writers and compactions go on. The memory that the call
    /// needs does not depend on the size of the store. The output is written in many small parts: buffer it.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_text(&self, to: &mut dyn Write) -> io::Result<()> {
        text::write(self, to)
    }

    /// Writes a dump in the binary format of snapshots of a journal. `docs/persist-format.md` documents it.
    /// Otherwise as [`write_text`](Self::write_text).
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_binary(&self, to: &mut (dyn Write + Send)) -> io::Result<()> {
        write_dump(to, &self.engine, self.state.metadata()).map(drop)
    }

    /// Reads a dump, as text or binary, into a new engine, which `builder` has the clock and the options of.
    ///
    /// # Errors
    /// See [`ImageError`]. Everything is checked, and no other engine is changed.
    pub fn load(path: &Path, builder: EngineBuilder) -> Result<Self, ImageError> {
        let file = File::open(path).map_err(ImageError::io(path))?;
        let len = file.metadata().map_err(ImageError::io(path))?.len();
        Self::load_from(file, len, path, builder)
    }

    /// Reads a dump as [`load`](Self::load) does, from an input with a number of bytes. Errors name it `name`.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn load_from(
        mut from: impl Read + Seek,
        len: u64,
        name: &Path,
        builder: EngineBuilder,
    ) -> Result<Self, ImageError> {
        let mut first = Vec::new();
        let start = from.by_ref().take(8).read_to_end(&mut first);
        start.map_err(ImageError::io(name))?;
        from.rewind().map_err(ImageError::io(name))?;
        if !is_dump(&first) {
            return text::read(from, builder).map_err(|error| error.at(name));
        }
        let (engine, metadata) =
            read_dump(from, len, builder).map_err(|error| ImageError::of_dump(name, error))?;
        pairs::check_pairs(&metadata).map_err(|damage| Found::Whole(damage).at(name))?;
        let state = NodeState::of_metadata(metadata);
        Ok(Self { engine, state })
    }

    /// Reads a snapshot that `etcdctl snapshot save` of etcd 3.4 to 3.6 has written, or this server, into a new
    /// engine, which `builder` has the clock and the options of: all versions that the file contains, the compacted
    /// revision, leases, users, roles, alarms and the Raft state. Members are not part of it, as with `etcdutl
    /// snapshot restore`.
    ///
    /// Takes about twice the time of the puts. Beside the new engine it needs memory for each key at the compacted
    /// revision.
    ///
    /// # Errors
    /// See [`ImageError`]. The hash at the end of the file, all pages and their contents are checked, and no other
    /// engine is changed.
    pub fn import(path: &Path, builder: EngineBuilder) -> Result<Self, ImageError> {
        let file = File::open(path).map_err(ImageError::io(path))?;
        let len = file.metadata().map_err(ImageError::io(path))?.len();
        Self::import_from(file, len, path, builder)
    }

    /// Reads a snapshot as [`import`](Self::import) does, from an input with a number of bytes. Errors name it `name`.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn import_from(
        from: impl Read + Seek,
        len: u64,
        name: &Path,
        builder: EngineBuilder,
    ) -> Result<Self, ImageError> {
        etcd::read(from, len, builder).map_err(|error| error.at(name))
    }
}
