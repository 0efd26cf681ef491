//! One function for each method: from a request to its response. They may block.

#![expect(
    clippy::unnecessary_wraps,
    clippy::trivially_copy_pass_by_ref,
    reason = "the functions of all methods have one form"
)]

use std::sync::Arc;
use std::time::Duration;

use revstore_engine::{LeaseId, Revision};
use revstore_host::config::GoDuration;

use super::faults;
use crate::call::FrontObject;
use crate::control::{Control, LISTED_MAX, Point};
use crate::error::ControlError;
use crate::fault::RuleId;
use crate::open::{WatchCommand, WatchState};
use crate::proto;
use crate::store::RestoreOptions;
use crate::target::AlarmName;
use crate::wait::Condition;

pub(super) type Answer<T> = Result<T, ControlError>;

/// Creates a response of a message type with the fields `revision` and `time`, and others.
macro_rules! at {
    ($point:expr, $message:ident $({ $($field:ident: $value:expr),* $(,)? })?) => {{
        let Point { revision, time } = $point;
        proto::$message {
            revision: revision.0,
            time: text(time),
            $($($field: $value,)*)?
        }
    }};
}

pub(super) fn text(duration: Duration) -> String {
    GoDuration::from(duration).to_string()
}

pub(super) fn invalid<T>(message: impl Into<String>) -> Answer<T> {
    Err(ControlError::Invalid(message.into()))
}

/// Parses a duration that is not negative.
pub(super) fn duration(name: &str, text: &str) -> Answer<Duration> {
    match GoDuration::parse(text) {
        Ok(GoDuration(nanos)) => match u64::try_from(nanos) {
            Ok(nanos) => Ok(Duration::from_nanos(nanos)),
            Err(_) => invalid(format!("{name} {text:?} is negative")),
        },
        Err(error) => invalid(format!("{name}: {error}")),
    }
}

/// Returns the number of entries to list.
fn limit(requested: u32) -> usize {
    match requested as usize {
        0 => LISTED_MAX,
        limit => limit.min(LISTED_MAX),
    }
}

/// Returns a text of what a watch of a Kubernetes API is about.
fn of_front(front: Option<&Arc<FrontObject>>, text: fn(&FrontObject) -> &String) -> String {
    front.map_or_else(String::new, |front| text(front).clone())
}

fn hex(lease: LeaseId) -> String {
    format!("{:016x}", lease.get())
}

fn clock_response(control: &Control, point: Point) -> proto::ClockResponse {
    at!(
        point,
        ClockResponse {
            mode: control.clock().mode().to_string(),
            now: text(point.time),
        }
    )
}

pub(super) fn clock_set(
    control: &Control,
    request: &proto::ClockSetRequest,
) -> Answer<proto::ClockResponse> {
    let mode = request.mode.parse();
    let mode = mode.or_else(|error| invalid(format!("{error}")))?;
    Ok(clock_response(control, control.set_clock(mode)))
}

pub(super) fn clock_advance(
    control: &Control,
    request: &proto::ClockAdvanceRequest,
) -> Answer<proto::ClockResponse> {
    let point = match (&*request.by, request.to_next) {
        ("", true) => control.advance_to_next()?,
        ("", false) => return invalid("a duration to advance by, or to_next, is required"),
        (_, true) => return invalid("by and to_next exclude each other"),
        (by, false) => control.advance(duration("by", by)?)?,
    };
    Ok(clock_response(control, point))
}

pub(super) fn clock_pending(
    control: &Control,
    request: &proto::ClockPendingRequest,
) -> Answer<proto::ClockPendingResponse> {
    let pending = control.clock().pending(limit(request.limit));
    let work = pending.work.into_iter().map(|work| proto::Pending {
        kind: work.kind.to_owned(),
        id: work.id,
        due: text(work.due),
    });
    Ok(at!(
        control.point(),
        ClockPendingResponse {
            pending: work.collect(),
            more: pending.more,
        }
    ))
}

pub(super) fn fault_add(
    control: &Control,
    request: &proto::FaultAddRequest,
) -> Answer<proto::FaultAddResponse> {
    let id = control.add_fault(faults::rule(request)?)?;
    Ok(at!(control.point(), FaultAddResponse { id: id.0 }))
}

pub(super) fn fault_list(
    control: &Control,
    _: &proto::FaultListRequest,
) -> Answer<proto::FaultListResponse> {
    let faults = control
        .faults()
        .into_iter()
        .map(|status| proto::FaultStatus {
            id: status.id.0,
            rule: status.rule.to_string(),
            fired: status.fired,
        });
    Ok(at!(
        control.point(),
        FaultListResponse {
            faults: faults.collect(),
        }
    ))
}

pub(super) fn fault_clear(
    control: &Control,
    request: &proto::FaultClearRequest,
) -> Answer<proto::FaultClearResponse> {
    let cleared = control.clear_faults(request.id.map(RuleId))? as u64;
    Ok(at!(
        control.point(),
        FaultClearResponse { cleared: cleared }
    ))
}

/// Gives a command to watches.
fn watch(
    control: &Control,
    request: &proto::WatchRequest,
    command: WatchCommand,
) -> Answer<proto::WatchResponse> {
    let watches = control.watch(request.id, command)? as u64;
    Ok(at!(control.point(), WatchResponse { watches: watches }))
}

pub(super) fn watch_hold(
    control: &Control,
    request: &proto::WatchRequest,
) -> Answer<proto::WatchResponse> {
    watch(control, request, WatchCommand::Hold)
}

pub(super) fn watch_release(
    control: &Control,
    request: &proto::WatchRequest,
) -> Answer<proto::WatchResponse> {
    watch(control, request, WatchCommand::Release)
}

pub(super) fn watch_cut(
    control: &Control,
    request: &proto::WatchRequest,
) -> Answer<proto::WatchResponse> {
    watch(control, request, WatchCommand::Cut)
}

pub(super) fn watch_cancel_compacted(
    control: &Control,
    request: &proto::WatchRequest,
) -> Answer<proto::WatchResponse> {
    watch(control, request, WatchCommand::CancelCompacted)
}

pub(super) fn watch_bookmark(
    control: &Control,
    request: &proto::WatchRequest,
) -> Answer<proto::WatchResponse> {
    watch(control, request, WatchCommand::Bookmark)
}

pub(super) fn watches(
    control: &Control,
    _: &proto::WatchesRequest,
) -> Answer<proto::WatchesResponse> {
    let shared = |text: Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
    let watches = control
        .watches()
        .into_iter()
        .map(|watch| proto::WatchStatus {
            id: watch.id,
            client: shared(watch.info.client),
            key: watch.info.key,
            range_end: watch.info.range_end,
            start: watch.info.start,
            position: watch.position,
            lag: watch.lag,
            state: match watch.state {
                WatchState::Synced => "synced",
                WatchState::Sending => "sending",
                WatchState::Held => "held",
            }
            .to_owned(),
            user: shared(watch.info.user),
            connection: watch.info.connection.unwrap_or_default(),
            resource: of_front(watch.info.front.as_ref(), |it| &it.resource),
            namespace: of_front(watch.info.front.as_ref(), |it| &it.namespace),
            name: of_front(watch.info.front.as_ref(), |it| &it.name),
        });
    Ok(at!(
        control.point(),
        WatchesResponse {
            watches: watches.collect(),
        }
    ))
}

pub(super) fn connections(
    control: &Control,
    _: &proto::ConnectionsRequest,
) -> Answer<proto::ConnectionsResponse> {
    let connections = control.connections().into_iter();
    let connections = connections.map(|connection| proto::ConnectionStatus {
        id: connection.id,
        address: connection.address.unwrap_or_default(),
        client: connection.client.unwrap_or_default(),
        since: text(connection.since),
        requests: connection.requests,
    });
    Ok(at!(
        control.point(),
        ConnectionsResponse {
            connections: connections.collect(),
        }
    ))
}

pub(super) fn store_checkpoint(
    control: &Control,
    request: &proto::StoreCheckpointRequest,
) -> Answer<proto::StoreCheckpointResponse> {
    let checkpoint = control.checkpoint(&request.name)?;
    Ok(at!(
        control.point(),
        StoreCheckpointResponse {
            name: request.name.clone(),
            checkpoint: checkpoint.0,
        }
    ))
}

pub(super) fn store_restore(
    control: &Control,
    request: &proto::StoreRestoreRequest,
) -> Answer<proto::StoreResponse> {
    let options = RestoreOptions {
        bump_revision: request.bump_revision,
        mark_compacted: request.mark_compacted,
    };
    Ok(at!(control.restore(&request.name, options)?, StoreResponse))
}

pub(super) fn store_reset(
    control: &Control,
    request: &proto::StoreResetRequest,
) -> Answer<proto::StoreResponse> {
    Ok(at!(control.reset(request.keep_revision)?, StoreResponse))
}

pub(super) fn store_jump(
    control: &Control,
    request: &proto::StoreJumpRequest,
) -> Answer<proto::StoreResponse> {
    if request.revision < 1 {
        return invalid(format!("revision {} is not above 0", request.revision));
    }
    Ok(at!(
        control.jump(Revision(request.revision))?,
        StoreResponse
    ))
}

pub(super) fn store_fork(
    control: &Control,
    _: &proto::StoreForkRequest,
) -> Answer<proto::StoreForkResponse> {
    let fork = control.fork()?;
    Ok(at!(
        fork.taken,
        StoreForkResponse {
            id: fork.id.to_string(),
            endpoint: fork.endpoint,
            control: fork.control,
            kubeconfig: fork.kubeconfig.unwrap_or_default(),
            etcd_endpoints: fork.etcd_endpoints,
        }
    ))
}

pub(super) fn store_forks(
    control: &Control,
    _: &proto::StoreForksRequest,
) -> Answer<proto::StoreForksResponse> {
    let forks = control
        .forks()
        .into_iter()
        .map(|fork| proto::StoreForkStatus {
            id: fork.id.to_string(),
            endpoint: fork.endpoint,
            control: fork.control,
            kubeconfig: fork.kubeconfig.unwrap_or_default(),
            etcd_endpoints: fork.etcd_endpoints,
        });
    Ok(at!(
        control.point(),
        StoreForksResponse {
            forks: forks.collect(),
        }
    ))
}

pub(super) fn store_drop(
    control: &Control,
    request: &proto::StoreDropRequest,
) -> Answer<proto::StoreResponse> {
    control.drop_copy(&request.id)?;
    Ok(at!(control.point(), StoreResponse))
}

pub(super) fn store_compact(
    control: &Control,
    request: &proto::StoreCompactRequest,
) -> Answer<proto::StoreCompactResponse> {
    let revision = match request.revision {
        0 => None,
        revision if revision < 0 => return invalid(format!("revision {revision} is negative")),
        revision => Some(Revision(revision)),
    };
    let compacted = control.compact(revision)?;
    Ok(at!(
        control.point(),
        StoreCompactResponse {
            compacted: compacted.0
        }
    ))
}

pub(super) fn leases(
    control: &Control,
    request: &proto::LeasesRequest,
) -> Answer<proto::LeasesResponse> {
    let (leases, more) = control.leases(limit(request.limit));
    let leases = leases.into_iter().map(|lease| proto::LeaseStatus {
        id: hex(lease.id),
        number: lease.id.get(),
        ttl: text(lease.status.granted_ttl),
        remaining: text(lease.status.remaining),
        keys: lease.keys as u64,
    });
    Ok(at!(
        control.point(),
        LeasesResponse {
            leases: leases.collect(),
            more: more as u64,
        }
    ))
}

pub(super) fn expire(
    control: &Control,
    request: &proto::ExpireRequest,
) -> Answer<proto::ExpireResponse> {
    let number = match (&*request.id, request.number) {
        ("", number) => Some(number),
        // A hexadecimal id may have the sign bit of the number.
        (id, 0) => u64::from_str_radix(id, 16).ok().map(u64::cast_signed),
        _ => return invalid("id and number exclude each other"),
    };
    let Some(lease) = number.and_then(LeaseId::new) else {
        return invalid(format!(
            "{:?} is not the id of a lease: a hexadecimal number above 0 is required",
            request.id
        ));
    };
    Ok(at!(
        control.expire(lease)?,
        ExpireResponse { id: hex(lease) }
    ))
}

pub(super) fn alarm(
    control: &Control,
    request: &proto::AlarmRequest,
) -> Answer<proto::AlarmResponse> {
    let name: AlarmName = request.name.parse()?;
    let raise = match &*request.action {
        "raise" => true,
        "clear" => false,
        action => return invalid(format!("unknown action {action:?}: must be raise or clear")),
    };
    let raised = control.alarm(name, raise)?;
    let raised = raised.iter().map(ToString::to_string).collect();
    Ok(at!(control.point(), AlarmResponse { raised: raised }))
}

pub(super) fn term_new(
    control: &Control,
    _: &proto::TermNewRequest,
) -> Answer<proto::TermNewResponse> {
    let term = control.new_term()?;
    Ok(at!(control.point(), TermNewResponse { term: term }))
}

pub(super) async fn wait(
    control: &Control,
    request: proto::WaitRequest,
) -> Answer<proto::WaitResponse> {
    let timeout = match &*request.timeout {
        "" => None,
        timeout => Some(duration("timeout", timeout)?),
    };
    let condition = match request.condition {
        None => return invalid("a condition is required: min_revision, key or watchers"),
        Some(proto::wait_request::Condition::MinRevision(revision)) if revision < 0 => {
            return invalid(format!("revision {revision} is negative"));
        }
        Some(proto::wait_request::Condition::MinRevision(revision)) => {
            Condition::Revision(Revision(revision))
        }
        Some(proto::wait_request::Condition::Key(key)) if key.is_empty() => {
            return invalid("the key is empty");
        }
        Some(proto::wait_request::Condition::Key(key)) => Condition::Key(key),
        Some(proto::wait_request::Condition::Watchers(count)) => {
            Condition::Watches(usize::try_from(count).unwrap_or(usize::MAX))
        }
    };
    Ok(at!(control.wait(condition, timeout).await?, WaitResponse))
}
