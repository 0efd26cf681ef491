//! The verbs of the store.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::arguments::{Body, Call};
use super::output::Output;

/// The fields of the response to a change of the store.
const POINT: Output = Output::Fields(&["revision", "time"]);

#[derive(Debug, Subcommand)]
pub(super) enum Store {
    /// Keep the store under a name.
    Checkpoint {
        /// The name; an earlier checkpoint with it is replaced.
        name: String,
    },
    /// Replace the store by a checkpoint. Streams and connections of clients end.
    Restore {
        /// The name of the checkpoint.
        name: String,
        /// Add this number to the revision of the checkpoint.
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        bump_revision: i64,
        /// Everything below the new revision counts as compacted.
        #[arg(long)]
        mark_compacted: bool,
    },
    /// Start an independent server with the same history.
    Fork,
    /// List the forks.
    Forks,
    /// End a fork, or remove a checkpoint.
    Drop {
        /// The id of the fork, or the name of the checkpoint.
        id: String,
    },
    /// Replace the store by an empty one. Streams and connections of clients end.
    Reset {
        /// Continue at the current revision instead of 1.
        #[arg(long)]
        keep_revision: bool,
    },
    /// Make the next write get a later revision. Streams and connections of clients end.
    Jump {
        /// The revision.
        #[arg(value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
        revision: i64,
    },
    /// Write the store to a file as a dump: one event in each line.
    Dump {
        /// The file, or - for standard output. It is replaced when the dump is whole.
        file: PathBuf,
        /// Write the binary form.
        #[arg(long)]
        binary: bool,
    },
    /// Replace the store by that of a dump. Streams and connections of clients end.
    Load {
        /// The file, or - for standard input.
        file: PathBuf,
    },
    /// Replace the store by that of a file of "etcdctl snapshot save". Streams and connections of clients end.
    Import {
        /// The file, or - for standard input.
        snapshot: PathBuf,
    },
    /// Compact at a revision, by default the current one.
    Compact {
        /// The revision.
        #[arg(value_parser = clap::value_parser!(i64).range(1..))]
        revision: Option<i64>,
    },
}

impl Store {
    /// Returns the request of the verb.
    pub(super) fn call(self) -> Call {
        const FORK: &[&str] = &["id", "endpoint", "control", "etcd_endpoints"];
        let (method, body, output) = match self {
            Self::Checkpoint { name } => (
                "StoreCheckpoint",
                json!({"name": name}),
                Output::Fields(&["name", "checkpoint"]),
            ),
            Self::Restore {
                name,
                bump_revision,
                mark_compacted,
            } => {
                let body = json!({
                    "name": name,
                    "bump_revision": bump_revision,
                    "mark_compacted": mark_compacted,
                });
                ("StoreRestore", body, POINT)
            }
            Self::Fork => (
                "StoreFork",
                json!({}),
                Output::FieldsAndText(FORK, "kubeconfig"),
            ),
            Self::Forks => ("StoreForks", json!({}), Output::rows("forks", FORK)),
            Self::Drop { id } => ("StoreDrop", json!({"id": id}), POINT),
            Self::Reset { keep_revision } => {
                ("StoreReset", json!({"keep_revision": keep_revision}), POINT)
            }
            Self::Jump { revision } => ("StoreJump", json!({"revision": revision}), POINT),
            Self::Dump { file, binary } => {
                ("StoreDump", json!({"binary": binary}), Output::File(file))
            }
            Self::Load { file } => return upload("StoreLoad", file),
            Self::Import { snapshot } => return upload("StoreImport", snapshot),
            Self::Compact { revision } => (
                "StoreCompact",
                json!({"revision": revision.unwrap_or(0)}),
                Output::Fields(&["compacted", "revision"]),
            ),
        };
        Call::of(method, body, output)
    }
}

/// Returns the request that sends a file.
fn upload(method: &'static str, file: PathBuf) -> Call {
    Call {
        method,
        body: Body::File(file),
        output: POINT,
    }
}
