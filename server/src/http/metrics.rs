//! `/metrics` (HT-10): metrics with the names that etcd's dashboards and alerts use.
//!
//! All values are collected when the page is requested. Metrics of etcd's disk and Raft log have the values
//! of a node that never waits for them. The help texts are not those of etcd. They state how the meaning
//! differs from that in etcd.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use revstore_engine::{Engine, KeyRange, LeaseCounts, Range};
use revstore_host::metrics::{
    CONTENT_TYPE, Exposition,
    prometheus::{self, Histogram, HistogramOpts, IntCounterVec, IntGaugeVec, Opts},
};

use super::{
    NodeInfo,
    calls::{CODES, CallCounters},
    health, response,
};
use crate::version::{ETCD_CLUSTER_VERSION, ETCD_VERSION};

pub(super) async fn show(State(info): State<Arc<NodeInfo>>) -> Response {
    response(
        axum::http::StatusCode::OK,
        CONTENT_TYPE,
        render(&info).unwrap_or_else(|error| format!("# {error}\n")),
    )
}

fn render(info: &NodeInfo) -> prometheus::Result<String> {
    let mut page = Exposition::new();
    server(&mut page, info)?;
    store(&mut page, info)?;
    calls(&mut page, &info.calls)?;
    page.process()?;
    page.encode()
}

fn server(page: &mut Exposition, info: &NodeInfo) -> prometheus::Result<()> {
    let proposals = info.services.raft_index();
    let (successes, failures) = info.health_counters.counts();
    let minor_version = ETCD_CLUSTER_VERSION
        .strip_suffix(".0")
        .unwrap_or(ETCD_CLUSTER_VERSION);
    let id = format!("{:x}", info.identity.member_id);

    page.gauge(
        "etcd_server_has_leader",
        "Whether the cluster has a leader: always 1.",
        1,
    )?;
    page.gauge(
        "etcd_server_is_leader",
        "Whether this member is the leader: always 1.",
        1,
    )?;
    page.gauge(
        "etcd_server_is_learner",
        "Whether this member is a learner: always 0.",
        0,
    )?;
    page.info(
        "etcd_server_id",
        "Member id, in hexadecimal.",
        "server_id",
        &id,
    )?;
    page.info(
        "etcd_server_version",
        "Version of etcd that this server behaves like.",
        "server_version",
        ETCD_VERSION,
    )?;
    page.info(
        "etcd_cluster_version",
        "Cluster version.",
        "cluster_version",
        minor_version,
    )?;
    page.counter(
        "etcd_server_leader_changes_seen_total",
        "Leader changes: the election at the start.",
        1,
    )?;
    // etcd declares these as gauges, although their names end in `_total`.
    page.gauge(
        "etcd_server_proposals_committed_total",
        "Index of the last proposal.",
        proposals,
    )?;
    page.gauge(
        "etcd_server_proposals_applied_total",
        "Index of the last proposal.",
        proposals,
    )?;
    page.gauge(
        "etcd_server_proposals_pending",
        "Pending proposals: always 0, they are applied immediately.",
        0,
    )?;
    page.counter(
        "etcd_server_proposals_failed_total",
        "Failed proposals: always 0, there are no other members.",
        0,
    )?;
    page.counter(
        "etcd_server_slow_apply_total",
        "Writes that took more than 100 ms: not measured, always 0.",
        0,
    )?;
    page.gauge(
        "etcd_server_quota_backend_bytes",
        "Bytes of data above which writes fail; 0 without a limit.",
        info.quota_bytes.unwrap_or(0),
    )?;
    page.counter(
        "etcd_server_health_success",
        "Successful checks of /health.",
        successes,
    )?;
    page.counter(
        "etcd_server_health_failures",
        "Failed checks of /health.",
        failures,
    )?;
    health_checks(page, info)
}

/// Adds the results of the checks of `/livez` and `/readyz`.
fn health_checks(page: &mut Exposition, info: &NodeInfo) -> prometheus::Result<()> {
    let checks = IntGaugeVec::new(
        Opts::new(
            "etcd_server_healthcheck",
            "Whether a check of /livez or /readyz passes: 1 or 0.",
        ),
        &["type", "name"],
    )?;
    for (kind, list) in [("livez", health::LIVEZ), ("readyz", health::READYZ)] {
        for check in list {
            let passes = check.failure(info).is_none();
            checks
                .get_metric_with_label_values(&[kind, check.name()])?
                .set(passes.into());
        }
    }
    page.add(&checks);
    Ok(())
}

fn store(page: &mut Exposition, info: &NodeInfo) -> prometheus::Result<()> {
    let stats = info.engine.stats();
    let ops = info.services.op_counters();
    let calls = &info.calls;

    let help = "Bytes of all stored key-value versions.";
    let bytes = stats.history_bytes;
    page.gauge("etcd_mvcc_db_total_size_in_bytes", help, bytes)?;
    page.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", help, bytes)?;
    for (name, path, in_txns) in [
        ("etcd_mvcc_put_total", "/etcdserverpb.KV/Put", ops.txn_puts),
        (
            "etcd_mvcc_delete_total",
            "/etcdserverpb.KV/DeleteRange",
            ops.txn_deletes,
        ),
        (
            "etcd_mvcc_range_total",
            "/etcdserverpb.KV/Range",
            ops.txn_ranges,
        ),
    ] {
        let help = "Operations, including those in transactions, without those of leases, locks and \
                    elections.";
        page.counter(name, help, calls.counts(path).handled[0] + in_txns)?;
    }
    page.counter(
        "etcd_mvcc_txn_total",
        "Transactions with more than one operation. Other transactions count as their operation.",
        ops.txns,
    )?;
    let watch = calls.counts("/etcdserverpb.Watch/Watch");
    page.gauge(
        "etcd_debugging_mvcc_watch_stream_total",
        "Open watch streams.",
        watch.started.saturating_sub(watch.handled.iter().sum()),
    )?;
    page.counter(
        "etcd_debugging_mvcc_events_total",
        "Events sent to watchers.",
        ops.watch_events,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_pending_events_total",
        "Events queued for slow watchers: always 0, because slow watchers read the history.",
        0,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_keys_total",
        "Keys at the current revision.",
        key_count(&info.engine),
    )?;
    page.gauge(
        "etcd_debugging_mvcc_watcher_total",
        "Watchers.",
        stats.watches,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_slow_watcher_total",
        "Unsynced watchers.",
        stats.unsynced_watches,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_current_revision",
        "Current revision.",
        info.engine.current_revision().0,
    )?;
    page.gauge(
        "etcd_debugging_mvcc_compact_revision",
        "Compacted revision; -1 before the first compaction.",
        info.engine.compacted_revision().map_or(-1, |it| it.0),
    )?;
    for name in [
        "etcd_disk_wal_fsync_duration_seconds",
        "etcd_disk_backend_commit_duration_seconds",
    ] {
        let help = "Time of writes to disk: no samples, because the server does not write to disk.";
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
            "Leases revoked by request or by expiry.",
            counts.ended,
        ),
        (
            "etcd_debugging_lease_renewed_total",
            "Keep-alive renewals of leases.",
            counts.renewed,
        ),
    ] {
        page.counter(name, help, count)?;
    }
    Ok(())
}

/// Returns the number of keys, in logarithmic time.
fn key_count(engine: &Engine) -> u64 {
    let all = Range::of(KeyRange::all()).count_only();
    // A read at the current revision cannot fail.
    engine.range(&all).map_or(0, |found| found.count as u64)
}

fn calls(page: &mut Exposition, calls: &CallCounters) -> prometheus::Result<()> {
    const LABELS: [&str; 3] = ["grpc_type", "grpc_service", "grpc_method"];
    const WITH_CODE: [&str; 4] = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
    let counter = |name, help| IntCounterVec::new(Opts::new(name, help), &LABELS);
    let started = counter("grpc_server_started_total", "Calls started.")?;
    let received = counter("grpc_server_msg_received_total", "Messages received.")?;
    let sent = counter("grpc_server_msg_sent_total", "Messages sent.")?;
    let handled = IntCounterVec::new(
        Opts::new(
            "grpc_server_handled_total",
            "Calls completed, by status code.",
        ),
        &WITH_CODE,
    )?;
    for (method, counters) in calls.methods() {
        let counts = counters.counts();
        let labels = [method.kind().as_str(), method.service(), method.name()];
        let [call_type, service, name] = labels;
        for (counter, count) in [
            (&started, counts.started),
            (&received, counts.messages_received),
            (&sent, counts.messages_sent),
        ] {
            counter.get_metric_with_label_values(&labels)?.inc_by(count);
        }
        for (code, count) in CODES.iter().zip(counts.handled) {
            handled
                .get_metric_with_label_values(&[call_type, service, name, code])?
                .inc_by(count);
        }
    }
    for counter in [&started, &received, &sent, &handled] {
        page.add(counter);
    }
    let (received, sent) = calls.bytes();
    page.counter(
        "etcd_network_client_grpc_received_bytes_total",
        "Bytes of gRPC messages from clients.",
        received,
    )?;
    page.counter(
        "etcd_network_client_grpc_sent_bytes_total",
        "Bytes of gRPC messages to clients.",
        sent,
    )
}
