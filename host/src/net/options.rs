//! Settings of HTTP connections.

use std::time::Duration;

/// HTTP settings of a listener's connections.
///
/// | setting | default |
/// |---|---|
/// | [`max_concurrent_streams`](Self::max_concurrent_streams) | no limit |
/// | [`keepalive`](Self::keepalive) | see [`Keepalive`] |
/// | [`endpoint`](Self::endpoint) | `client` |
/// | [`http2_only`](Self::http2_only) | HTTP/1.1 and HTTP/2 on one port, distinguished by the first bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    pub(super) max_concurrent_streams: Option<u32>,
    pub(super) keepalive: Keepalive,
    pub(super) endpoint: &'static str,
    pub(super) http2_only: bool,
}

/// HTTP/2 keepalive: the pings of the server, and the limit for pings of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// The minimum time between two pings of a client. If a client pings more often, its connection is closed
    /// with the GOAWAY code `ENHANCE_YOUR_CALM`. Default 5 s.
    pub min_time: Duration,
    /// The time without activity after which the server pings. Default 2 h.
    pub interval: Duration,
    /// The time limit for the acknowledgement of a ping, after which the connection is closed. Default 20 s.
    pub timeout: Duration,
}

impl HttpOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of open streams of an HTTP/2 connection; `None` for no limit. Clients wait
    /// before they open further streams.
    #[must_use]
    pub fn max_concurrent_streams(self, streams: Option<u32>) -> Self {
        Self {
            max_concurrent_streams: streams,
            ..self
        }
    }

    /// Sets the HTTP/2 keepalive.
    #[must_use]
    pub fn keepalive(self, keepalive: Keepalive) -> Self {
        Self { keepalive, ..self }
    }

    /// Sets the name of the listener in log lines about rejected connections.
    #[must_use]
    pub fn endpoint(self, endpoint: &'static str) -> Self {
        Self { endpoint, ..self }
    }

    /// Accepts only HTTP/2.
    #[must_use]
    pub fn http2_only(self) -> Self {
        Self {
            http2_only: true,
            ..self
        }
    }
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            max_concurrent_streams: None,
            keepalive: Keepalive::default(),
            endpoint: "client",
            http2_only: false,
        }
    }
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            min_time: Duration::from_secs(5),
            interval: Duration::from_secs(7_200),
            timeout: Duration::from_secs(20),
        }
    }
}

impl Keepalive {
    /// Sets [`min_time`](Self::min_time).
    #[must_use]
    pub fn min_time(self, min_time: Duration) -> Self {
        Self { min_time, ..self }
    }

    /// Sets [`interval`](Self::interval).
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}
