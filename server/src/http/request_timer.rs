//! The times of unary calls: a slow one is logged with etcd's line `request stats`.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use http::Extensions;
use revstore_grpc::{CoarseInstant, RequestStats};
use revstore_host::logging::timestamp;
use tracing::{Level, debug, enabled, warn};

/// The address in the log of a call without a connection, which a call of the JSON gateway is.
const NO_ADDRESS: &str = "No remote client info.";

/// The start of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTimer {
    pub(super) start: CoarseInstant,
    pub(super) warning_duration: Duration,
    pub(super) address: Option<SocketAddr>,
}

impl RequestTimer {
    /// Logs a call that has taken long; at level debug, every call. `response` are the extensions of its response.
    #[inline]
    pub(super) fn log_if_slow(&self, method: &str, response: &Extensions) {
        let slow = self.start.elapsed_above(self.warning_duration);
        if slow.is_some() || enabled!(Level::DEBUG) {
            let took = slow.unwrap_or_else(|| self.start.elapsed());
            self.log(took, slow.is_some(), method, response.get());
        }
    }

    #[cold]
    fn log(&self, took: Duration, is_slow: bool, method: &str, stats: Option<&RequestStats>) {
        let start = SystemTime::now().checked_sub(took).map(timestamp);
        let start = start.unwrap_or_default();
        let address = self.address.map(|it| it.to_string());
        let address = address.as_deref().unwrap_or(NO_ADDRESS);
        let [request_count, request_bytes, response_count, response_bytes] =
            stats.map_or([-1; 4], |stats| {
                let size = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
                [
                    stats.request_count,
                    size(stats.request_bytes),
                    stats.response_count,
                    size(stats.response_bytes),
                ]
            });
        let content = stats.map_or("", |stats| &stats.content);
        // The level of an event is part of the program. As in etcd, the level is debug for all calls where it is
        // enabled.
        macro_rules! log {
            ($log:ident) => {
                $log!(
                    "start time" = start,
                    "time spent" = ?took,
                    "remote" = address,
                    "response type" = method,
                    "request count" = request_count,
                    "request size" = request_bytes,
                    "response count" = response_count,
                    "response size" = response_bytes,
                    "request content" = content,
                    "request stats"
                )
            };
        }
        if is_slow && !enabled!(Level::DEBUG) {
            log!(warn);
        } else {
            log!(debug);
        }
    }
}
