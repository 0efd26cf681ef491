//! Metrics of the journal of `--persist`. Without the flag the page does not have them.

use revstore_host::metrics::{Exposition, prometheus};
use revstore_persist::Stats;

pub(super) fn add(page: &mut Exposition, stats: &Stats) -> prometheus::Result<()> {
    for (name, help, value) in [
        (
            "revstore_persist_healthy",
            "Whether the data directory can be written: 1 or 0.",
            u64::from(stats.is_healthy),
        ),
        (
            "revstore_persist_synced_revision",
            "The revision up to which changes are synced.",
            u64::try_from(stats.synced_revision).unwrap_or(0),
        ),
        (
            "revstore_persist_lag_bytes",
            "Bytes of changes that are not in the journal.",
            stats.lag_bytes,
        ),
        (
            "revstore_persist_journal_bytes",
            "Size of the journals.",
            stats.journal_bytes,
        ),
        (
            "revstore_persist_snapshot_bytes",
            "Size of the newest snapshot.",
            stats.snapshot_bytes,
        ),
    ] {
        page.gauge(name, help, value)?;
    }
    page.counter(
        "revstore_persist_syncs_total",
        "Syncs of the journal.",
        stats.syncs,
    )?;
    page.counter(
        "revstore_persist_failures_total",
        "Failed attempts to write the data directory.",
        stats.failures,
    )
}
