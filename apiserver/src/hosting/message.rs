//! What a guest and a host say: one JSON document for each message, in a line.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::place::Place;
use crate::announcement::Announcement;

/// The first message of a guest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// The version of the program, which must be that of the host.
    pub(super) version: String,
    pub(super) place: Place,
    /// The command line, without the name of the program.
    pub(super) arguments: Vec<OsString>,
    /// The environment variables that are flags.
    pub(super) variables: Vec<(OsString, OsString)>,
}

/// The last message of a guest: the server is to stop.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stop {}

/// The answers of a host. `Accepted` comes first, then `Started` or `Failed`, and `Stopped` after a [`Stop`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The host does not run the server, for this reason.
    Declined(String),
    Accepted,
    /// The server cannot start, for this reason.
    Failed(String),
    Started(Announcement),
    Stopped,
}
