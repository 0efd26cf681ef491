//! Metrics of heavy requests. etcd has no such metrics.

use revstore_grpc::HeavyStats;
use revstore_host::metrics::{Exposition, prometheus};

pub(super) fn add(page: &mut Exposition, stats: &HeavyStats) -> prometheus::Result<()> {
    for (name, help, value) in [
        (
            "revstore_heavy_workers",
            "Threads for heavy requests and for parts of answers.",
            stats.workers as u64,
        ),
        (
            "revstore_heavy_workers_busy",
            "Those of revstore_heavy_workers that are busy.",
            stats.workers_busy as u64,
        ),
        (
            "revstore_heavy_requests_waiting",
            "Heavy requests and parts of answers that wait for a thread.",
            stats.waiting_for_worker as u64,
        ),
        (
            "revstore_answer_memory_limit_bytes",
            "Maximum memory of large answers that are not read yet.",
            stats.answer_bytes_max,
        ),
        (
            "revstore_answer_memory_bytes",
            "Memory of large answers that are not read yet.",
            stats.answer_bytes,
        ),
        (
            "revstore_answer_memory_requests_waiting",
            "Requests that wait for the memory of their answers.",
            stats.waiting_for_memory as u64,
        ),
    ] {
        page.gauge(name, help, value)?;
    }
    page.counter(
        "revstore_answers_ended_total",
        "Answers that ended because their clients did not read them and others waited for memory.",
        stats.answers_ended,
    )
}
