//! `/metrics` (HT-10): numbers for Prometheus, under the names that etcd's dashboards and alerts
//! read.
//!
//! Everything is looked up when somebody asks. What etcd measures of its disk and its raft log is
//! there with the values of a node that never waits for either. Help texts are ours, and say where a
//! number means something slightly different.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use revstore_engine::{Engine, KeyRange, LeaseCounts, Range};
use revstore_host::metrics::{
    CONTENT_TYPE, Exposition,
    prometheus::{self, Histogram, HistogramOpts, IntCounterVec, IntGaugeVec, Opts},
};

use super::{Facts, answer, health};
use crate::{
    calls::{CODES, Calls, Method},
    version::{ETCD_CLUSTER_VERSION, ETCD_VERSION},
};

pub(super) async fn show(State(facts): State<Arc<Facts>>) -> Response {
    answer(
        axum::http::StatusCode::OK,
        CONTENT_TYPE,
        render(&facts).unwrap_or_else(|error| format!("# {error}\n")),
    )
}

fn render(facts: &Facts) -> prometheus::Result<String> {
    let mut page = Exposition::new();
    server(&mut page, facts)?;
    store(&mut page, facts)?;
    calls(&mut page, &facts.calls)?;
    page.process()?;
    page.encode()
}

fn server(page: &mut Exposition, facts: &Facts) -> prometheus::Result<()> {
    let proposals = facts.services.raft_index();
    let (successes, failures) = facts.probes.counts();
    let minor_version = ETCD_CLUSTER_VERSION
        .strip_suffix(".0")
        .unwrap_or(ETCD_CLUSTER_VERSION);
    let id = format!("{:x}", facts.identity.member_id);

    page.gauge("etcd_server_has_leader", "There is a leader: 1.", 1)?;
    page.gauge("etcd_server_is_leader", "This member leads: 1.", 1)?;
    page.gauge("etcd_server_is_learner", "This member only learns: 0.", 0)?;
    page.info("etcd_server_id", "The member id.", "server_id", &id)?;
    page.info(
        "etcd_server_version",
        "The version of etcd this server behaves like.",
        "server_version",
        ETCD_VERSION,
    )?;
    page.info(
        "etcd_cluster_version",
        "The version of the cluster.",
        "cluster_version",
        minor_version,
    )?;
    page.counter(
        "etcd_server_leader_changes_seen_total",
        "Elections seen: the one at the start.",
        1,
    )?;
    // Gauges in etcd, in spite of their names.
    page.gauge(
        "etcd_server_proposals_committed_total",
        "The index of the last proposal.",
        proposals,
    )?;
    page.gauge(
        "etcd_server_proposals_applied_total",
        "The index of the last proposal.",
        proposals,
    )?;
    page.gauge(
        "etcd_server_proposals_pending",
        "Proposals that wait: none, they are applied at once.",
        0,
    )?;
    page.counter(
        "etcd_server_proposals_failed_total",
        "Proposals that a cluster did not agree on: none.",
        0,
    )?;
    page.counter(
        "etcd_server_slow_apply_total",
        "Writes that took longer than 100 ms: not measured.",
        0,
    )?;
    page.gauge(
        "etcd_server_quota_backend_bytes",
        "The size at which writes are refused; 0 for no limit.",
        facts.quota_bytes.unwrap_or(0),
    )?;
    page.counter(
        "etcd_server_health_success",
        "Times /health said that all is well.",
        successes,
    )?;
    page.counter(
        "etcd_server_health_failures",
        "Times /health said that something is wrong.",
        failures,
    )?;
    let checks = IntGaugeVec::new(
        Opts::new(
            "etcd_server_healthcheck",
            "Whether a check of /livez or /readyz passes.",
        ),
        &["type", "name"],
    )?;
    for (kind, list) in [("livez", health::LIVEZ), ("readyz", health::READYZ)] {
        for check in list {
            let passes = check.failure(facts).is_none();
            checks
                .get_metric_with_label_values(&[kind, check.name()])?
                .set(passes.into());
        }
    }
    page.add(&checks);
    Ok(())
}

fn store(page: &mut Exposition, facts: &Facts) -> prometheus::Result<()> {
    let stats = facts.engine.stats();
    let tally = facts.services.tally();
    let calls = &facts.calls;

    let help = "Bytes of all kept versions.";
    let bytes = stats.history_bytes;
    page.gauge("etcd_mvcc_db_total_size_in_bytes", help, bytes)?;
    page.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", help, bytes)?;
    for (name, path, in_txns) in [
        (
            "etcd_mvcc_put_total",
            "/etcdserverpb.KV/Put",
            tally.txn_puts,
        ),
        (
            "etcd_mvcc_delete_total",
            "/etcdserverpb.KV/DeleteRange",
            tally.txn_deletes,
        ),
        (
            "etcd_mvcc_range_total",
            "/etcdserverpb.KV/Range",
            tally.txn_ranges,
        ),
    ] {
        let help = "Operations done, those inside transactions among them; not what leases, locks \
                    and elections do to keys.";
        page.counter(name, help, calls.succeeded(path) + in_txns)?;
    }
    page.counter(
        "etcd_mvcc_txn_total",
        "Transactions of more than one operation; others count as what they hold.",
        tally.txns,
    )?;
    let methods = calls.methods();
    let watch = methods.into_iter().find(|method| method.name == "Watch");
    let watch = watch.map(Method::counts).unwrap_or_default();
    page.gauge(
        "etcd_debugging_mvcc_watch_stream_total",
        "Open watch streams.",
        watch.started.saturating_sub(watch.handled.iter().sum()),
    )?;
    page.counter(
        "etcd_debugging_mvcc_events_total",
        "Events that watches were told of.",
        tally.watch_events,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_pending_events_total",
        "Events queued for slow watches: none, they are read from the log again.",
        0,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_keys_total",
        "Living keys.",
        living_keys(&facts.engine),
    )?;
    page.gauge(
        "etcd_debugging_mvcc_watcher_total",
        "Watches.",
        stats.watches,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_slow_watcher_total",
        "Watches that are not caught up.",
        stats.unsynced_watches,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_current_revision",
        "The current revision.",
        facts.engine.current_revision().0,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_compact_revision",
        "The compacted revision; -1 if nothing was compacted.",
        facts.engine.compacted_revision().map_or(-1, |it| it.0),
    )?;
    for name in [
        "etcd_disk_wal_fsync_duration_seconds",
        "etcd_disk_backend_commit_duration_seconds",
    ] {
        let help = "Time spent on the disk: none, nothing is written to it.";
        page.add(&Histogram::with_opts(HistogramOpts::new(name, help))?);
    }
    leases(page, stats.lease_counts)
}

fn leases(page: &mut Exposition, counts: LeaseCounts) -> prometheus::Result<()> {
    for (name, help, count) in [
        (
            "etcd_debugging_lease_granted_total",
            "Leases granted.",
            counts.granted,
        ),
        (
            "etcd_debugging_lease_revoked_total",
            "Leases that ended, by request or because their time was over.",
            counts.ended,
        ),
        (
            "etcd_debugging_lease_renewed_total",
            "Times that a lease was kept alive.",
            counts.renewed,
        ),
    ] {
        page.counter(name, help, count)?;
    }
    Ok(())
}

/// Logarithmic, as counting is.
fn living_keys(engine: &Engine) -> u64 {
    let all = Range::of(KeyRange::all()).count_only();
    // A read of the present cannot fail.
    engine.range(&all).map_or(0, |found| found.count as u64)
}

fn calls(page: &mut Exposition, calls: &Calls) -> prometheus::Result<()> {
    const LABELS: [&str; 3] = ["grpc_type", "grpc_service", "grpc_method"];
    const WITH_CODE: [&str; 4] = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
    let family = |name, help| IntCounterVec::new(Opts::new(name, help), &LABELS);
    let started = family("grpc_server_started_total", "Calls that began.")?;
    let received = family("grpc_server_msg_received_total", "Messages received.")?;
    let sent = family("grpc_server_msg_sent_total", "Messages sent.")?;
    let handled = IntCounterVec::new(
        Opts::new(
            "grpc_server_handled_total",
            "Calls that ended, by how they ended.",
        ),
        &WITH_CODE,
    )?;
    for method in calls.methods() {
        let counts = method.counts();
        let labels = [method.call_type.as_str(), method.service, method.name];
        let [call_type, service, name] = labels;
        for (family, count) in [
            (&started, counts.started),
            (&received, counts.messages_received),
            (&sent, counts.messages_sent),
        ] {
            family.get_metric_with_label_values(&labels)?.inc_by(count);
        }
        for (code, count) in CODES.iter().zip(counts.handled) {
            handled
                .get_metric_with_label_values(&[call_type, service, name, code])?
                .inc_by(count);
        }
    }
    for family in [&started, &received, &sent, &handled] {
        page.add(family);
    }
    let (received, sent) = calls.bytes();
    page.counter(
        "etcd_network_client_grpc_received_bytes_total",
        "Bytes of messages from clients.",
        received,
    )?;
    page.counter(
        "etcd_network_client_grpc_sent_bytes_total",
        "Bytes of messages to clients.",
        sent,
    )
}
