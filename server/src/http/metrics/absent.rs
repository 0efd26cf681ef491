//! The metrics of what this server does not have: a disk, a Raft log, other members. They have the values of a
//! node that never waits for these: counts of 0, and histograms without samples. So dashboards show such a node,
//! and alerts on them never fire.

use revstore_host::metrics::{
    Exposition,
    prometheus::{self, Histogram, HistogramOpts, exponential_buckets},
};

/// A metric of type counter or gauge that is always 0: its name, and what it would count.
type Zero = (&'static str, &'static str);

const COUNTERS: [Zero; 4] = [
    (
        "etcd_server_heartbeat_send_failures_total",
        "Heartbeats that could not be sent",
    ),
    (
        "etcd_server_learner_promote_successes",
        "Promotions of learners",
    ),
    (
        "etcd_server_read_indexes_failed_total",
        "Reads that waited in vain for the leader",
    ),
    (
        "etcd_server_slow_read_indexes_total",
        "Reads that waited long for the leader",
    ),
];

/// etcd declares some of these as gauges although their names end in `_total`.
const GAUGES: [Zero; 4] = [
    (
        "etcd_disk_defrag_inflight",
        "Whether a defragmentation runs",
    ),
    (
        "etcd_disk_wal_write_bytes_total",
        "Bytes written to the write-ahead log",
    ),
    (
        "etcd_mvcc_db_open_read_transactions",
        "Open read transactions of the database file",
    ),
    (
        "etcd_server_snapshot_apply_in_progress_total",
        "Whether a snapshot of the leader is applied",
    ),
];

/// A histogram without samples: its name, what it would measure, and the lowest and the number of its bucket
/// bounds, each twice the one before.
type Empty = (&'static str, &'static str, f64, usize);

const HISTOGRAMS: [Empty; 12] = [
    (
        "etcd_disk_wal_fsync_duration_seconds",
        "Time to sync the write-ahead log",
        0.001,
        14,
    ),
    (
        "etcd_disk_wal_write_duration_seconds",
        "Time to write the write-ahead log",
        0.001,
        14,
    ),
    (
        "etcd_disk_backend_commit_duration_seconds",
        "Time to commit to the database file",
        0.001,
        14,
    ),
    (
        "etcd_debugging_disk_backend_commit_rebalance_duration_seconds",
        "Time to rebalance the database file",
        0.001,
        14,
    ),
    (
        "etcd_debugging_disk_backend_commit_spill_duration_seconds",
        "Time to spill to the database file",
        0.001,
        14,
    ),
    (
        "etcd_debugging_disk_backend_commit_write_duration_seconds",
        "Time to write the database file",
        0.001,
        14,
    ),
    (
        "etcd_disk_backend_defrag_duration_seconds",
        "Time of defragmentations",
        0.1,
        13,
    ),
    (
        "etcd_snap_fsync_duration_seconds",
        "Time to sync a snapshot of the Raft log",
        0.001,
        14,
    ),
    (
        "etcd_snap_db_fsync_duration_seconds",
        "Time to sync a snapshot of the leader",
        0.001,
        14,
    ),
    (
        "etcd_snap_db_save_total_duration_seconds",
        "Time to save a snapshot of the leader",
        0.1,
        10,
    ),
    (
        "etcd_debugging_snap_save_marshalling_duration_seconds",
        "Time to encode a snapshot of the Raft log",
        0.001,
        14,
    ),
    (
        "etcd_debugging_snap_save_total_duration_seconds",
        "Time to save a snapshot of the Raft log",
        0.001,
        14,
    ),
];

pub(super) fn add(page: &mut Exposition) -> prometheus::Result<()> {
    let never = |help: &str| format!("{help}: always 0, this server does not do that.");
    for (name, help) in COUNTERS {
        page.counter(name, &never(help), 0)?;
    }
    for (name, help) in GAUGES {
        page.gauge(name, &never(help), 0)?;
    }
    for (name, help, lowest, count) in HISTOGRAMS {
        let help = format!("{help}: no samples, this server does not do that.");
        let buckets = exponential_buckets(lowest, 2.0, count)?;
        let options = HistogramOpts::new(name, help).buckets(buckets);
        page.add(&Histogram::with_opts(options)?);
    }
    Ok(())
}
