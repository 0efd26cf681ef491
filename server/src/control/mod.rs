//! Control of a server: what stands between clients and the node.
//!
//! Without control, nothing of this is on the path of a request.
//!
//! | file | contents |
//! |---|---|
//! | `stage.rs` | the node that is served now, and its replacement |
//! | `target.rs` | what control does with the node, and the port for clients of control |
//! | `gate.rs` | the connections of the ports |
//! | `controlled.rs` | the service of a connection |
//! | `services.rs` | a gRPC call: the services between what comes next |
//! | `call.rs` | what is known of a call, and its record |
//! | `requests.rs` | the messages of a call on their way to the services: **faults are decided here** |
//! | `messages.rs` | messages in the frames of a body |
//! | `responses.rs`, `keep_alives.rs` | the responses of calls and of keep-alive streams |
//! | `watch/` | the responses of watch streams: holds, cuts, cancellations |

mod call;
mod controlled;
mod gate;
mod keep_alives;
mod messages;
mod requests;
mod responses;
mod services;
mod stage;
mod target;
mod watch;

use std::sync::Arc;

use revstore_control::{
    call::{Method, MethodKind},
    fault::{Delays, Preset, Rules},
    journal::Journal,
    open::Open,
};
use revstore_engine::Clock;
use revstore_grpc::{EtcdError, RpcMethod};

pub use target::{read_store, write_dump};

pub(crate) use controlled::Controlled;
pub use revstore_control::{
    AlarmName, Condition, Control, ControlError, LISTED_MAX, LeaseEntry, Point, WAITS_MAX, clock,
    ctl, fault, journal, open, proto, replay, store,
};
pub(crate) use services::ControlledServices;
pub(crate) use stage::Stage;
pub(crate) use target::{control, routes, state_of};

/// The faults, lists and journal of a server. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Interceptor {
    pub(crate) rules: Rules,
    pub(crate) open: Open,
    pub(crate) journal: Journal,
    /// The calls that wait on the clock of the server.
    pub(crate) delays: Delays,
}

impl Interceptor {
    /// Creates an interceptor without rules for a server with this clock.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            rules: Rules::new(&methods()),
            open: Open::new(),
            journal: Journal::new(),
            delays: Delays::new(clock),
        }
    }
}

/// Returns the methods that rules can select, in the order of [`RpcMethod::all`].
fn methods() -> Vec<Method> {
    let methods = RpcMethod::all().iter();
    methods
        .map(|method| Method {
            name: method.path().trim_start_matches('/'),
            kind: match method.path() {
                WATCH => MethodKind::Watch,
                KEEP_ALIVE => MethodKind::KeepAlive,
                path => match path.split_once('.').map_or("", |(package, _)| package) {
                    "/v3lockpb" | "/v3electionpb" => MethodKind::Keys,
                    _ if method.service() == "etcdserverpb.KV" && method.name() != "Compact" => {
                        MethodKind::Keys
                    }
                    _ => MethodKind::NoKeys,
                },
            },
        })
        .collect()
}

const WATCH: &str = "/etcdserverpb.Watch/Watch";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// Returns the error of a preset.
fn preset_error(preset: Preset) -> EtcdError {
    match preset {
        Preset::NoLeader => EtcdError::NoLeader,
        Preset::LeaderChanged => EtcdError::LeaderChanged,
        Preset::Timeout => EtcdError::Timeout,
        Preset::TooManyRequests => EtcdError::TooManyRequests,
        Preset::NoSpace => EtcdError::NoSpace,
        Preset::Corrupt => EtcdError::Corrupt,
        Preset::AuthRevision => EtcdError::AuthOldRevision,
    }
}
