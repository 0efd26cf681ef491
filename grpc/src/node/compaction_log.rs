//! The lines of the log about compactions, with etcd's texts and fields (FL-12).

use std::time::Duration;

use revstore_engine::{AutoCompaction, AutoCompactionStep, AutoCompactions, Engine};
use tracing::info;

use super::human_bytes;

/// Logs that a revision is compacted.
pub(crate) fn begin(revision: i64) {
    info!(revision, "compact tree index");
}

/// Logs that the history below a compacted revision is removed.
pub(crate) fn end(engine: &Engine, revision: i64, took: Duration) {
    let bytes = engine.history_bytes();
    info!(
        "compact-revision" = revision,
        ?took,
        "current-db-size-bytes" = bytes,
        "current-db-size" = human_bytes(bytes),
        "current-db-size-in-use-bytes" = bytes,
        "current-db-size-in-use" = human_bytes(bytes),
        "finished scheduled compaction"
    );
}

/// Logs automatic compactions as they take place.
pub(crate) async fn run(engine: Engine, mut compactions: AutoCompactions) {
    loop {
        log_step(&engine, compactions.next().await);
    }
}

fn log_step(engine: &Engine, step: AutoCompactionStep) {
    let AutoCompactionStep {
        policy,
        revision,
        took,
    } = step;
    let revision = revision.0;
    let Some(took) = took else {
        match policy {
            AutoCompaction::Periodic { period } => info!(
                revision,
                "compact-period" = period_text(period),
                "starting auto periodic compaction"
            ),
            AutoCompaction::Revisions { keep, .. } => info!(
                revision,
                "revision-compaction-retention" = keep,
                "starting auto revision compaction"
            ),
            AutoCompaction::Size { bytes_max, .. } => info!(
                revision,
                "size-compaction-retention" = bytes_max,
                "starting auto size compaction"
            ),
            _ => info!(revision, "starting auto compaction"),
        }
        return begin(revision);
    };
    end(engine, revision, took);
    match policy {
        AutoCompaction::Periodic { period } => info!(
            revision,
            "compact-period" = period_text(period),
            ?took,
            "completed auto periodic compaction"
        ),
        AutoCompaction::Revisions { keep, .. } => info!(
            revision,
            "revision-compaction-retention" = keep,
            ?took,
            "completed auto revision compaction"
        ),
        AutoCompaction::Size { bytes_max, .. } => info!(
            revision,
            "size-compaction-retention" = bytes_max,
            ?took,
            "completed auto size compaction"
        ),
        _ => info!(revision, ?took, "completed auto compaction"),
    }
}

/// Returns a period as Go writes it, such as `1h0m0s`.
fn period_text(period: Duration) -> String {
    let seconds = period.as_secs();
    if seconds < 60 {
        return format!("{period:?}");
    }
    let rest = period.saturating_sub(Duration::from_secs(seconds / 60 * 60));
    let rest = rest.as_secs_f64();
    match (seconds / 3_600, seconds / 60 % 60) {
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fl_12_periods_have_the_text_of_go() {
        for (milliseconds, expected) in [
            (300, "300ms"),
            (5_000, "5s"),
            (60_000, "1m0s"),
            (90_500, "1m30.5s"),
            (3_600_000, "1h0m0s"),
            (90_061_000, "25h1m1s"),
        ] {
            assert_eq!(period_text(Duration::from_millis(milliseconds)), expected);
        }
    }
}
