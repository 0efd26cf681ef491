//! Dumps as text: one event in each line, in JSON. `docs/dump-format.md` documents the lines.

mod line;
mod read;
mod state;
mod write;

pub(super) use read::read;
pub(super) use write::write;

/// The version of the format, which the first line states.
const FORMAT_VERSION: u32 = 1;
