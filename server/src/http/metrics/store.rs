//! The metrics of the store: keys, operations, watches, compactions and leases.

use revstore_engine::{Engine, KeyRange, LeaseCounts, Range};
use revstore_host::metrics::{Exposition, prometheus};

use crate::http::NodeInfo;

pub(super) fn add(page: &mut Exposition, info: &NodeInfo) -> prometheus::Result<()> {
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
        // The former name.
        (
            "etcd_debugging_mvcc_range_total",
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
    page.counter(
        "etcd_debugging_mvcc_db_compaction_keys_total",
        "Versions that compactions have removed.",
        stats.compacted_versions,
    )?;
    page.gauge(
        "etcd_debugging_auth_revision",
        "Revision of users, roles and permissions.",
        info.services.auth_revision(),
    )?;
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
            "etcd_debugging_server_lease_expired_total",
            "Leases that have expired.",
            counts.expired,
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
