//! What a call of a webhook costs a write: time, and CPU time of the server.
//!
//! Three servers get the same writes in turn, one after the other on one connection: one without webhooks, one that calls a
//! validating webhook, and one that calls a mutating one. The webhook answers at once, in a thread of its own. Its own time
//! is that of the same request when this program sends it on a connection of the same kind; a write may take that much
//! longer, and what it takes beyond that is the cost of the call. This program sends everything from one thread, so that
//! none of its switches between threads are in the difference.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::BoxError;
use crate::kube::client::{Call, Connection, Target, Version};
use crate::kube::hook::Hook;
use crate::kube::objects::{NAMESPACE, OBJECTS, namespace, object, path};
use crate::kube::server::ApiServer;
use crate::summary::median;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

#[derive(Debug, clap::Args)]
pub(crate) struct KubeWebhookCommand {
    /// The binary of the API server [default: `revstore-apiserver` in the directory of this program].
    #[arg(long)]
    apiserver: Option<PathBuf>,
    /// The binary of another build of it, usually from before a change.
    #[arg(long)]
    before: Option<PathBuf>,
    /// The webhook speaks only HTTP/1.1, which servers also use with webhooks that are services.
    #[arg(long)]
    http1: bool,
    /// The number of writes to each server in a round.
    #[arg(long, default_value_t = 1_000)]
    operations: u64,
    /// The number of rounds; the table shows medians.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
}

/// The servers of one build, first the one without a webhook.
#[derive(Debug)]
struct Build {
    prefix: &'static str,
    writers: Vec<Writer>,
}

/// A server with a connection and the webhook that it calls.
#[derive(Debug)]
struct Writer {
    title: &'static str,
    server: ApiServer,
    connection: Connection,
    hook: Hook,
    /// The values of all rounds.
    latencies: Vec<f64>,
    cpu_times: Vec<f64>,
    switches: Vec<f64>,
}

impl KubeWebhookCommand {
    /// Measures, and returns a table as Markdown.
    pub(crate) async fn run(self) -> Result<String, BoxError> {
        let default = std::env::current_exe()?.with_file_name("revstore-apiserver");
        let binary = self.apiserver.clone().unwrap_or(default);
        let mut builds = vec![self.start_all("", &binary).await?];
        if let Some(binary) = &self.before {
            builds.push(self.start_all("before: ", binary).await?);
        }
        let hook = Hook::start(!self.http1)?;
        let target = Target {
            url: hook.url.clone(),
            token: String::new(),
        };
        let version = if self.http1 {
            Version::Http1
        } else {
            Version::Http2
        };
        let mut direct = Connection::open(&target, version).await?;
        let mut own = Vec::new();
        for round in 1..=self.rounds {
            eprintln!("round {round} of {}", self.rounds);
            let round = u64::try_from(round)?;
            for writer in builds.iter_mut().flat_map(|build| &mut build.writers) {
                writer.measure(self.operations, round).await?;
            }
            let mut latencies = Vec::new();
            for number in 0..self.operations {
                let call = Call::create("/", review(number, round));
                let started = Instant::now();
                direct.call(call).await?;
                latencies.push(microseconds(started.elapsed()));
            }
            own.push(median(&latencies).unwrap_or_default());
            for build in &mut builds {
                build.writers[1..].rotate_left(1);
            }
            builds.rotate_left(1);
        }
        builds.sort_by_key(|build| build.prefix);
        Ok(table(&builds, median(&own).unwrap_or_default()))
    }

    async fn start_all(&self, prefix: &'static str, binary: &Path) -> Result<Build, BoxError> {
        let mut writers = Vec::new();
        for (title, kind) in [
            ("write without a webhook", None),
            ("write with a validating webhook", Some("Validating")),
            ("write with a mutating webhook", Some("Mutating")),
        ] {
            writers.push(self.start(title, kind, binary).await?);
        }
        Ok(Build { prefix, writers })
    }

    async fn start(
        &self,
        title: &'static str,
        kind: Option<&str>,
        binary: &Path,
    ) -> Result<Writer, BoxError> {
        let server = ApiServer::start_binary("revstore", binary, &[]).await?;
        let mut connection = server.connect(Version::Http2).await?;
        let call = Call::create("/api/v1/namespaces", namespace(NAMESPACE));
        connection.call(call).await?;
        let hook = Hook::start(!self.http1)?;
        if let Some(kind) = kind {
            let plural = kind.to_ascii_lowercase();
            let path = format!("{GROUP}/{plural}webhookconfigurations");
            let configuration = configuration(kind, &hook);
            connection.call(Call::create(path, configuration)).await?;
        }
        // Updates of one object, so that each write costs the same.
        connection.call(Call::create(OBJECTS, object(0, 0))).await?;
        Ok(Writer {
            title,
            server,
            connection,
            hook,
            latencies: Vec::new(),
            cpu_times: Vec::new(),
            switches: Vec::new(),
        })
    }
}

impl Writer {
    async fn measure(&mut self, operations: u64, round: u64) -> Result<(), BoxError> {
        let (cpu_time, switches) = (self.server.cpu_time()?, self.server.thread_switches()?);
        let mut latencies = Vec::new();
        for number in 0..operations {
            let call = Call::update(path(0), object(0, round * operations + number));
            let started = Instant::now();
            self.connection.call(call).await?;
            latencies.push(microseconds(started.elapsed()));
        }
        let cpu_time = self.server.cpu_time()?.saturating_sub(cpu_time);
        let switches = self.server.thread_switches()?.saturating_sub(switches);
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let of_write = |all: f64| all / operations as f64;
        self.cpu_times.push(of_write(microseconds(cpu_time)));
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        self.switches.push(of_write(switches as f64));
        self.latencies.push(median(&latencies).unwrap_or_default());
        Ok(())
    }

    /// Returns the medians of the time, the CPU time and the switches of threads of a write.
    fn medians(&self) -> (f64, f64, f64) {
        let of = |values: &[f64]| median(values).unwrap_or_default();
        (of(&self.latencies), of(&self.cpu_times), of(&self.switches))
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn configuration(kind: &str, hook: &Hook) -> String {
    let Hook { url, bundle, .. } = hook;
    format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"{kind}WebhookConfiguration","metadata":{{"name":"hook"}},
"webhooks":[{{"name":"hook.example.org","admissionReviewVersions":["v1"],"sideEffects":"None",
"clientConfig":{{"url":"{url}/","caBundle":"{bundle}"}},
"rules":[{{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}}]}}]}}"#
    )
}

/// Returns a review as the server sends it, of about the same size.
fn review(number: u64, round: u64) -> String {
    let (new, old) = (object(0, number), object(0, round));
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"{number}","kind":{{"group":"","version":"v1","kind":"ConfigMap"}},
"resource":{{"group":"","version":"v1","resource":"configmaps"}},"requestKind":{{"group":"","version":"v1","kind":"ConfigMap"}},
"requestResource":{{"group":"","version":"v1","resource":"configmaps"}},"name":"cm-00000","namespace":"{NAMESPACE}","operation":"UPDATE",
"userInfo":{{"username":"kubernetes-admin","groups":["system:masters","system:authenticated"]}},
"object":{new},"oldObject":{old},"dryRun":false,"options":{{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
    )
}

fn table(builds: &[Build], own: f64) -> String {
    let mut text = String::from(
        "| | p50 | beyond the webhook's own time | CPU time of the server | more | switches of its threads | more | connections | calls |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    // Writing to a `String` does not fail.
    let _ = writeln!(
        text,
        "| the webhook's own time | {own:.0} µs | | | | | | | |"
    );
    for build in builds {
        let (plain, plain_cpu, plain_switches) = build.writers[0].medians();
        for writer in &build.writers {
            let (time, cpu, switches) = writer.medians();
            let (connections, calls) = writer.hook.counts();
            let title = format!("{}{}", build.prefix, writer.title);
            let _ = match calls {
                0 => writeln!(
                    text,
                    "| {title} | {time:.0} µs | | {cpu:.0} µs | | {switches:.1} | | | |"
                ),
                _ => writeln!(
                    text,
                    "| {title} | {time:.0} µs | {:.0} µs | {cpu:.0} µs | {:.0} µs | {switches:.1} | {:.1} | {connections} | {calls} |",
                    time - plain - own,
                    cpu - plain_cpu,
                    switches - plain_switches
                ),
            };
        }
    }
    text
}
