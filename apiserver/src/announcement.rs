//! What a process prints when its server is ready.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::server::ApiServer;

/// The lines for the user, and the line for the process that has started this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Announcement {
    notes: Vec<String>,
    ready: String,
}

impl Announcement {
    pub(crate) fn of(server: &ApiServer) -> Self {
        let mut notes = Vec::new();
        if server.is_open() {
            notes.push(format!(
                "plain HTTP on {}: requests without a token are those of an administrator",
                server.endpoint()
            ));
        }
        let etcd = server.etcd_endpoints().iter();
        notes.extend(etcd.map(|endpoint| format!("etcd's API on {endpoint}")));
        let mut ready = format!(
            "revstore-apiserver ready {} {}",
            server.endpoint(),
            server.kubeconfig_path().display()
        );
        if let Some(control) = server.control_endpoint() {
            // A string takes everything.
            let _ = write!(ready, " {control}");
        }
        Self { notes, ready }
    }

    /// Adds a line for the user.
    pub(crate) fn note(mut self, note: String) -> Self {
        self.notes.push(note);
        self
    }

    /// Writes the lines to standard error and standard output. Nobody may read them.
    pub(crate) fn print(&self) {
        for note in &self.notes {
            let _ = writeln!(io::stderr(), "{note}");
        }
        let mut stdout = io::stdout();
        let _ = stdout.write_all(format!("{}\n", self.ready).as_bytes());
        let _ = stdout.flush();
    }
}
