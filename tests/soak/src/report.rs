//! What a soak prints.

use std::time::Duration;

use serde_json::json;

use crate::Limits;
use crate::clients::administrator::Done;
use crate::history::judge::{Judge, Violations};

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) elapsed: Duration,
    pub(crate) limits: Limits,
    pub(crate) operations: u64,
    pub(crate) delivered: u64,
    pub(crate) revisions: i64,
    pub(crate) histories: u64,
    pub(crate) kills: u64,
    pub(crate) terminations: u64,
    pub(crate) leases: u64,
    pub(crate) denied: u64,
    pub(crate) misbehaving: u64,
    /// Operations that were acknowledged before a stop, and that the witness did not see before its end.
    pub(crate) unseen: u64,
    pub(crate) done: Done,
    pub(crate) rss_mib: u64,
    pub(crate) descriptors: u64,
    /// The open files after the end of all clients.
    pub(crate) left_descriptors: u64,
    pub(crate) latencies: Vec<Duration>,
    pub(crate) violations: Violations,
}

impl Report {
    pub(crate) fn new(seed: u64, limits: Limits) -> Self {
        Self {
            seed,
            elapsed: Duration::ZERO,
            limits,
            operations: 0,
            delivered: 0,
            revisions: 0,
            histories: 0,
            kills: 0,
            terminations: 0,
            leases: 0,
            denied: 0,
            misbehaving: 0,
            unseen: 0,
            done: Done::default(),
            rss_mib: 0,
            descriptors: 0,
            left_descriptors: 0,
            latencies: Vec::new(),
            violations: Violations::default(),
        }
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.violations.count == 0
    }

    /// Ends a history: judges what is left of it.
    pub(crate) fn close(&mut self, mut judge: Judge) {
        self.unseen += judge.finish() as u64;
        self.revisions += judge.revision();
        self.violations.append(judge.violations);
    }

    /// Sorts the latencies, and compares the limits.
    pub(crate) fn finish(&mut self, elapsed: Duration) {
        self.elapsed = elapsed;
        self.latencies.sort_unstable();
        let Limits {
            rss_mib,
            descriptors,
            latency,
        } = self.limits;
        let p99 = self.latency(0.99);
        let limits = [
            (
                self.rss_mib > rss_mib,
                format!("{} MiB resident", self.rss_mib),
            ),
            (
                self.left_descriptors > descriptors,
                format!("{} open files are left", self.left_descriptors),
            ),
            (p99 > latency, format!("a bystander waits for {p99:?}")),
            (self.operations == 0, "nothing was done".to_owned()),
        ];
        for (_, violation) in limits.into_iter().filter(|(is_exceeded, _)| *is_exceeded) {
            self.violations.add(violation);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a list of latencies"
    )]
    fn latency(&self, quantile: f64) -> Duration {
        let index = (self.latencies.len() as f64 * quantile) as usize;
        let last = self.latencies.len().saturating_sub(1);
        let latency = self.latencies.get(index.min(last));
        latency.copied().unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        let milliseconds = |latency: Duration| latency.as_secs_f64() * 1e3;
        json!({
            "ok": self.is_ok(),
            "seed": self.seed,
            "seconds": self.elapsed.as_secs(),
            "histories": self.histories,
            "kills": self.kills,
            "terminations": self.terminations,
            "operations": self.operations,
            "revisions": self.revisions,
            "delivered_events": self.delivered,
            "compactions": self.done.compactions,
            "auth_switches": self.done.auth_switches,
            "denied": self.denied,
            "certificates": self.done.rotations,
            "revocations": self.done.revocations,
            "snapshots": self.done.snapshots,
            "hashes": self.done.hashes,
            "leases": self.leases,
            "misbehaving_clients": self.misbehaving,
            "unseen_at_stops": self.unseen,
            "rss_mib_max": self.rss_mib,
            "descriptors_max": self.descriptors,
            "descriptors_left": self.left_descriptors,
            "bystander_ms": {
                "p50": milliseconds(self.latency(0.5)),
                "p99": milliseconds(self.latency(0.99)),
                "p99_9": milliseconds(self.latency(0.999)),
                "max": milliseconds(self.latency(1.0)),
            },
            "violations": self.violations.count,
            "first_violations": self.violations.first,
        })
    }
}
