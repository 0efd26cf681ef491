//! The errors of replays.

use std::io;

use thiserror::Error;

/// The reason why a journal cannot be replayed, or not to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The journal cannot be read.
    #[error("cannot read the journal: {0}")]
    Read(#[from] io::Error),
    /// The journal is damaged. Nothing was sent.
    #[error("line {line}: {problem}")]
    Damaged {
        /// The number of the line, or of the record in a page, from 1 on.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// Records are missing, so that later requests would have other results. Nothing was sent.
    #[error("the records {first} to {last} are missing: --partial replays the others")]
    Missing {
        /// The number of the first one.
        first: u64,
        /// The number of the last one before the next record that is there.
        last: u64,
    },
    /// The store was replaced between the requests. Nothing was sent.
    #[error(
        "the store was replaced after record {last}: --after {last} replays the later requests"
    )]
    Replaced {
        /// The number of the last request to an earlier store.
        last: u64,
    },
    /// The record at which to stop has no request. Nothing was sent.
    #[error("cannot stop at record {0}: the journal has no request with this number")]
    StopAt(u64),
    /// The server cannot be reached.
    #[error("{0}")]
    Connection(String),
    /// A request has no answer. It may be executed; the later ones were not sent.
    #[error("record {number}: {problem}")]
    Answer {
        /// The number of the record.
        number: u64,
        /// Why there is no answer.
        problem: String,
    },
}
