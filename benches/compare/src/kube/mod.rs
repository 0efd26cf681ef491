//! Load on Kubernetes API servers: their start, their memory, and their CPU time per operation.
//!
//! | module | contents |
//! |---|---|
//! | `server` | a server under test |
//! | `client` | connections over HTTP/1.1 and HTTP/2, requests in a closed loop |
//! | `watchers` | watches that count the received events |
//! | `objects` | the objects of the loads |
//! | `phase` | the rows of the table |
//! | `heavy` | heavy loads beside a bystander |
//! | `authorization` | what many bindings cost a request |
//! | `webhook`, `hook` | what a call of a webhook costs a write, and the webhook |

mod authorization;
mod client;
mod heavy;
mod hook;
mod objects;
mod phase;
mod server;
mod watchers;
mod webhook;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use crate::BoxError;
pub(crate) use crate::kube::authorization::KubeAuthorizationCommand;
pub(crate) use crate::kube::heavy::KubeHeavyCommand;
pub(crate) use crate::kube::webhook::KubeWebhookCommand;

use crate::kube::client::{Target, Version};
use crate::kube::phase::{Measured, PHASES, Phase, Session, Size};
use crate::kube::server::{ApiServer, ServerKind};
use crate::scenario::is_selected;
use crate::summary::{median, number};

/// The servers to measure.
#[derive(Debug, clap::Args)]
struct Servers {
    /// The binary of the API server [default: `revstore-apiserver` in the directory of this program].
    #[arg(long)]
    apiserver: Option<PathBuf>,
    /// The binary of another build of it, usually from before a change.
    #[arg(long)]
    before: Option<PathBuf>,
    /// The URL of a fresh kube-apiserver that runs already, such as `https://127.0.0.1:6443`.
    #[arg(long, requires_all = ["token", "pids"])]
    reference: Option<String>,
    /// A token of an administrator of that server.
    #[arg(long)]
    token: Option<String>,
    /// The processes of that server and of its etcd, whose CPU time and memory are added.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
}

impl Servers {
    fn kinds(&self) -> Result<Vec<ServerKind>, BoxError> {
        let default = std::env::current_exe()?.with_file_name("revstore-apiserver");
        let apiserver = self.apiserver.clone().unwrap_or(default);
        let mut kinds = vec![ServerKind::Binary("revstore", apiserver)];
        let before = self.before.clone();
        kinds.extend(before.map(|path| ServerKind::Binary("before", path)));
        if let (Some(url), Some(token)) = (self.reference.clone(), self.token.clone()) {
            let pids = self.pids.clone();
            let target = Target { url, token };
            kinds.push(ServerKind::Running { target, pids });
        }
        Ok(kinds)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct KubeCommand {
    #[command(flatten)]
    servers: Servers,
    /// The number of starts that are measured.
    #[arg(long, default_value_t = 21)]
    starts: usize,
    /// The number of runs, each with newly started servers; the table shows medians. One run with `--reference`.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The number of operations in a row.
    #[arg(long, default_value_t = 2_000)]
    operations: u64,
    /// The number of objects in lists: at least twice the operations.
    #[arg(long, default_value_t = 10_000)]
    objects: u64,
    /// The number of watches of single nodes.
    #[arg(long, default_value_t = 10_000)]
    nodes: u64,
    /// Measure only rows whose titles contain one of these texts. Most rows need objects that those before create.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

impl KubeCommand {
    /// Measures all servers, and returns a table as Markdown.
    pub(crate) async fn run(self) -> Result<String, BoxError> {
        let mut kinds = self.servers.kinds()?;
        let is_compared = self.servers.reference.is_some();
        let size = Size {
            operations: self.operations,
            objects: self.objects.max(2 * self.operations),
            nodes: self.nodes,
        };
        let names = kinds.iter().map(ServerKind::name).collect();
        let mut table = Table {
            names,
            rows: Vec::new(),
        };
        self.measure_starts(&kinds, &mut table).await?;
        let selected = |phase: &Phase| is_selected(&phase.title(size), &self.only);
        let runs = if is_compared { 1 } else { self.runs };
        for run in 1..=runs {
            // Changes the order of the servers in every run.
            kinds.rotate_left(1);
            let mut sessions = Vec::new();
            for kind in &kinds {
                let server = ApiServer::start(kind).await?;
                sessions.push(Session::new(server, size).await?);
            }
            for phase in PHASES.iter().filter(|phase| selected(phase)) {
                let title = phase.title(size);
                eprintln!("run {run} of {runs}: {title}");
                for session in &mut sessions {
                    match session.run(*phase).await {
                        Ok(measured) => table.add(&title, session.server.name, measured),
                        // The table is printed without this measurement.
                        Err(error) => eprintln!("{title} on {}: {error}", session.server.name),
                    }
                }
            }
        }
        Ok(table.markdown())
    }

    async fn measure_starts(
        &self,
        kinds: &[ServerKind],
        table: &mut Table,
    ) -> Result<(), BoxError> {
        let started = kinds
            .iter()
            .filter(|kind| matches!(kind, ServerKind::Binary(..)));
        let started: Vec<_> = started.collect();
        for _ in 0..self.starts {
            for kind in &started {
                let server = ApiServer::start(kind).await?;
                let mut add = |title, value, unit| {
                    table.add(title, server.name, Measured { value, unit });
                };
                let milliseconds = server.start_time.as_secs_f64() * 1e3;
                add("start, until `/readyz`", milliseconds, "ms");
                add(
                    "resident memory, empty",
                    server.resident_mebibytes()?,
                    "MiB",
                );
                let spent = server.cpu_time()?.as_secs_f64() * 1e3;
                add("CPU time of the start", spent, "ms");
                let mut connection = server.connect(Version::Http2).await?;
                let began = Instant::now();
                objects::define(&mut connection).await?;
                let milliseconds = began.elapsed().as_secs_f64() * 1e3;
                add("first custom resource defined", milliseconds, "ms");
            }
        }
        Ok(())
    }
}

/// The values of all servers.
#[derive(Debug)]
struct Table {
    names: Vec<&'static str>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    title: String,
    unit: &'static str,
    /// The values of each server, in the order of the names.
    values: Vec<Vec<f64>>,
}

impl Table {
    fn add(&mut self, title: &str, name: &str, measured: Measured) {
        let Some(column) = self.names.iter().position(|known| *known == name) else {
            return;
        };
        let index = self.rows.iter().position(|row| row.title == title);
        let index = index.unwrap_or_else(|| {
            self.rows.push(Row {
                title: title.to_owned(),
                unit: measured.unit,
                values: vec![Vec::new(); self.names.len()],
            });
            self.rows.len() - 1
        });
        self.rows[index].values[column].push(measured.value);
    }

    /// Returns medians, and the ratio of each other server to the first one.
    fn markdown(&self) -> String {
        let mut text = format!("| | {} |", self.names.join(" | "));
        for other in &self.names[1..] {
            // Writing to a `String` does not fail.
            let _ = write!(text, " {other} / {} |", self.names[0]);
        }
        let columns = 2 * self.names.len() - 1;
        let _ = writeln!(text, "\n|---|{}", "---|".repeat(columns));
        for row in &self.rows {
            let _ = write!(text, "| {} |", row.title);
            let medians: Vec<_> = row.values.iter().map(|values| median(values)).collect();
            for value in &medians {
                let _ = match value {
                    Some(value) => write!(text, " {} {} |", number(*value), row.unit),
                    None => write!(text, " - |"),
                };
            }
            for other in &medians[1..] {
                let _ = match (medians[0], other) {
                    (Some(own), Some(other)) => write!(text, " {:.2} |", other / own),
                    _ => write!(text, " - |"),
                };
            }
            let _ = writeln!(text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_medians_and_ratios() {
        let mut table = Table {
            names: vec!["revstore", "before"],
            rows: Vec::new(),
        };
        for (name, value) in [
            ("revstore", 9.0),
            ("revstore", 1.0),
            ("revstore", 2.0),
            ("before", 200.0),
        ] {
            table.add("get", name, Measured { value, unit: "µs" });
        }
        let unit = "MiB";
        table.add("memory", "before", Measured { value: 1.0, unit });
        let text = table.markdown();
        assert!(
            text.contains("| get | 2.0 µs | 200 µs | 100.00 |\n"),
            "{text}"
        );
        assert!(text.contains("| memory | - | 1.0 MiB | - |\n"), "{text}");
    }
}
