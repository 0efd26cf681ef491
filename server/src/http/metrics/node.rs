//! The metrics of the node: its role, its proposals, its health.

use revstore_engine::WriteError;
use revstore_grpc::PromoteFailures;
use revstore_host::{
    metrics::{
        Exposition,
        prometheus::{self, IntCounterVec, IntGaugeVec, Opts},
    },
    panics,
};

use crate::{
    http::{NodeInfo, health, probe::ProbeError},
    version::{ETCD_CLUSTER_VERSION, ETCD_VERSION},
};

/// `engine` is the result of the probe.
pub(super) fn add(
    page: &mut Exposition,
    info: &NodeInfo,
    engine: Result<(), ProbeError>,
) -> prometheus::Result<()> {
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
        "Leader changes: the election at the start, and those that control has caused.",
        1 + info.services.raft_terms_begun(),
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
        "Requests whose execution took more than --warning-apply-duration.",
        info.services.slow_applies(),
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
    page.gauge(
        "revstore_poisoned",
        "Whether the store refuses writes because an earlier write panicked: 1 or 0.",
        u64::from(engine == Err(ProbeError::Refuses(WriteError::Damaged))),
    )?;
    page.counter(
        "revstore_panics_total",
        "Panics of the process; 0 in a server that is embedded in another program.",
        panics::count(),
    )?;
    promote_failures(page, info.services.promote_failures())?;
    health_checks(page, info, engine)
}

/// Adds the failed promotions, each reason from its first one on, as in etcd.
fn promote_failures(page: &mut Exposition, failures: PromoteFailures) -> prometheus::Result<()> {
    let counters = IntCounterVec::new(
        Opts::new(
            "etcd_server_learner_promote_failures",
            "Failed promotions of members.",
        ),
        &["Reason"],
    )?;
    for (reason, count) in [
        ("membership: ID not found", failures.unknown),
        (
            "membership: can only promote a learner member",
            failures.not_learner,
        ),
        (
            "etcdserver: can only promote a learner member which is in sync with leader",
            failures.not_ready,
        ),
    ] {
        if count > 0 {
            counters
                .get_metric_with_label_values(&[reason])?
                .inc_by(count);
        }
    }
    page.add(&counters);
    Ok(())
}

/// Adds the results of the checks of `/livez` and `/readyz`.
fn health_checks(
    page: &mut Exposition,
    info: &NodeInfo,
    engine: Result<(), ProbeError>,
) -> prometheus::Result<()> {
    let checks = IntGaugeVec::new(
        Opts::new(
            "etcd_server_healthcheck",
            "Whether a check of /livez or /readyz passes: 1 or 0.",
        ),
        &["type", "name"],
    )?;
    for (kind, list) in [("livez", health::LIVEZ), ("readyz", health::READYZ)] {
        for check in list {
            let passes = check.failure(info, engine).is_none();
            checks
                .get_metric_with_label_values(&[kind, check.name()])?
                .set(passes.into());
        }
    }
    page.add(&checks);
    Ok(())
}
