//! What a call of a webhook costs a write: time, and CPU time of the server.
//!
//! Three servers get the same writes in turn, one after the other on one connection: one without webhooks, one that calls a
//! validating webhook, and one that calls a mutating one. The webhook is in this process and answers at once. Its own time
//! is that of the same request when this program sends it on a connection of the same kind; a write may take that much
//! longer, and what it takes beyond that is the cost of the call.

use std::fmt::Write as _;
use std::path::PathBuf;
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
    /// The number of writes to each server in a round.
    #[arg(long, default_value_t = 1_000)]
    operations: u64,
    /// The number of rounds; the table shows medians.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
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
}

impl KubeWebhookCommand {
    /// Measures, and returns a table as Markdown.
    pub(crate) async fn run(self) -> Result<String, BoxError> {
        let mut writers = Vec::new();
        for (title, kind) in [
            ("write without a webhook", None),
            ("write with a validating webhook", Some("Validating")),
            ("write with a mutating webhook", Some("Mutating")),
        ] {
            writers.push(self.start(title, kind).await?);
        }
        let hook = Hook::start().await?;
        let target = Target {
            url: hook.url.clone(),
            token: String::new(),
        };
        let mut direct = Connection::open(&target, Version::Http2).await?;
        let mut own = Vec::new();
        for round in 1..=self.rounds {
            eprintln!("round {round} of {}", self.rounds);
            let round = u64::try_from(round)?;
            for writer in &mut writers {
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
            writers[1..].rotate_left(1);
        }
        Ok(table(&writers, median(&own).unwrap_or_default()))
    }

    async fn start(&self, title: &'static str, kind: Option<&str>) -> Result<Writer, BoxError> {
        let default = std::env::current_exe()?.with_file_name("revstore-apiserver");
        let binary = self.apiserver.as_ref().unwrap_or(&default);
        let server = ApiServer::start_binary("revstore", binary, &[]).await?;
        let mut connection = server.connect(Version::Http2).await?;
        let call = Call::create("/api/v1/namespaces", namespace(NAMESPACE));
        connection.call(call).await?;
        let hook = Hook::start().await?;
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
        })
    }
}

impl Writer {
    async fn measure(&mut self, operations: u64, round: u64) -> Result<(), BoxError> {
        let before = self.server.cpu_time()?;
        let mut latencies = Vec::new();
        for number in 0..operations {
            let call = Call::update(path(0), object(0, round * operations + number));
            let started = Instant::now();
            self.connection.call(call).await?;
            latencies.push(microseconds(started.elapsed()));
        }
        let spent = self.server.cpu_time()?.saturating_sub(before);
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        self.cpu_times.push(microseconds(spent) / operations as f64);
        self.latencies.push(median(&latencies).unwrap_or_default());
        Ok(())
    }

    /// Returns the medians of the time and of the CPU time of a write.
    fn medians(&self) -> (f64, f64) {
        let of = |values: &[f64]| median(values).unwrap_or_default();
        (of(&self.latencies), of(&self.cpu_times))
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

fn table(writers: &[Writer], own: f64) -> String {
    let mut text = String::from(
        "| | p50 | beyond the webhook's own time | CPU time of the server | more | connections | calls |\n|---|---|---|---|---|---|---|\n",
    );
    let (plain, plain_cpu) = writers[0].medians();
    // Writing to a `String` does not fail.
    let _ = writeln!(text, "| the webhook's own time | {own:.0} µs | | | | | |");
    for writer in writers {
        let (time, cpu) = writer.medians();
        let (connections, calls) = writer.hook.counts();
        let title = writer.title;
        let _ = match calls {
            0 => writeln!(text, "| {title} | {time:.0} µs | | {cpu:.0} µs | | | |"),
            _ => writeln!(
                text,
                "| {title} | {time:.0} µs | {:.0} µs | {cpu:.0} µs | {:.0} µs | {connections} | {calls} |",
                time - plain - own,
                cpu - plain_cpu
            ),
        };
    }
    text
}
