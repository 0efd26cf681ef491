//! The server under test: its process, and the authority whose files it reads.

pub(crate) mod authority;
mod process;

pub(crate) use process::{Server, Setup};
