//! The bytes of the files. `docs/persist-format.md` documents them.

mod frame;
mod record;
mod replay;

use std::collections::BTreeMap;

pub(crate) use frame::{FrameReader, FrameWriter, MAGIC};
pub(crate) use record::{
    BATCH_FRAME_BYTES, FileKind, Footer, Header, MetaChange, PART_BYTES, Record, batch_offset,
    write_base, write_revision,
};
pub(crate) use replay::Replay;

/// Pairs of bytes in named buckets.
pub type Metadata = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The version of the format, which each file states.
pub(crate) const FORMAT_VERSION: u16 = 1;
