//! The kinds of servers that test cases run against: a real etcd ([`etcd`]) and revstore ([`revstore`]).
//!
//! A test case is a function that takes [`Servers`], starts as many new servers as it needs and checks their
//! behaviour. [`on_every_server!`](crate::on_every_server) generates one `#[test]` for each kind of server,
//! so the same expectations hold for a real etcd and for revstore.
//!
//! To add a kind of server, write a function of the type of [`Servers::start`], use it in a constant such as
//! [`ETCD`], and add a line to the macro.

pub mod etcd;
pub mod revstore;

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use self::etcd::Etcd;
use self::revstore::Revstore;
use crate::tools::{self, Tool};

/// The member name of every server under test.
pub const NAME: &str = "default";

/// The client URL that every server under test advertises. No server listens there: the real port differs for
/// each server, and the URL is fixed so that member lists can be compared as text.
pub const ADVERTISED_CLIENT_URL: &str = "http://localhost:2379";

/// The peer URL that every server under test advertises. No server listens there. Member and cluster ids
/// derive from it, so they are the same for all servers.
pub const ADVERTISED_PEER_URL: &str = "http://localhost:2380";

/// The heartbeat interval of every server under test. Together with [`ELECTION_TIMEOUT`] it determines the
/// shortest lease: one second.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(10);

/// The election timeout of every server under test. It determines the start time of an etcd, so it is short.
pub const ELECTION_TIMEOUT: Duration = Duration::from_millis(50);

/// The options of a server under test. All other options have the values of the constants of this module, or
/// etcd's defaults.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The interval of progress notifications to idle watches; etcd's 10 minutes if absent.
    pub watch_progress_interval: Option<Duration>,
    /// The size of the store in bytes above which writes fail; etcd's 2 GiB if absent.
    pub quota_bytes: Option<u32>,
    /// The idle time after which the server pings a connection, and its time limit for the acknowledgement;
    /// etcd's 2 hours and 20 seconds if absent. The minimum idle time of a real etcd is one second.
    pub keepalive: Option<(Duration, Duration)>,
    /// Whether the JSON gateway `/v3/...` is needed. A real etcd then cannot listen on port 0, because its
    /// gateway connects to the configured address.
    pub json_gateway: bool,
    /// Further flags.
    pub flags: &'static [&'static str],
    /// Flags of TLS, such as `--cert-file`. If there are any, the server listens with TLS.
    pub tls_flags: Vec<String>,
}

impl Options {
    /// Returns the flags for a server that listens on `port`. They are the same for every kind of server.
    pub(crate) fn flags(&self, port: u16) -> Vec<String> {
        let scheme = if self.tls_flags.is_empty() {
            "http"
        } else {
            "https"
        };
        let mut flags = vec![
            format!("--name={NAME}"),
            format!("--listen-client-urls={scheme}://127.0.0.1:{port}"),
            format!("--advertise-client-urls={ADVERTISED_CLIENT_URL}"),
            "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
            format!("--initial-advertise-peer-urls={ADVERTISED_PEER_URL}"),
            format!("--initial-cluster={NAME}={ADVERTISED_PEER_URL}"),
            format!("--heartbeat-interval={}", HEARTBEAT_INTERVAL.as_millis()),
            format!("--election-timeout={}", ELECTION_TIMEOUT.as_millis()),
        ];
        if let Some(interval) = self.watch_progress_interval {
            let interval = interval.as_millis();
            flags.push(format!(
                "--experimental-watch-progress-notify-interval={interval}ms"
            ));
        }
        if let Some((interval, timeout)) = self.keepalive {
            let (interval, timeout) = (interval.as_millis(), timeout.as_millis());
            flags.push(format!("--grpc-keepalive-interval={interval}ms"));
            flags.push(format!("--grpc-keepalive-timeout={timeout}ms"));
        }
        if let Some(bytes) = self.quota_bytes {
            flags.push(format!("--quota-backend-bytes={bytes}"));
        }
        flags.extend(self.flags.iter().map(|&flag| flag.to_owned()));
        flags.extend_from_slice(&self.tls_flags);
        flags
    }
}

/// A running server whose store was empty, at revision 1, when it started. Dropping the value stops it.
pub trait Endpoint: Debug + Send + Sync {
    /// Returns the loopback address that clients connect to.
    fn address(&self) -> SocketAddr;

    /// Returns the log of the server so far, for the message of a failed test.
    fn logs(&self) -> String;
}

/// A kind of server that test cases run against.
#[derive(Debug)]
pub struct Servers {
    /// The name of the kind in messages.
    pub name: &'static str,
    /// The programs that such a server needs.
    pub needs: &'static [Tool],
    /// Starts a server and returns when it serves requests.
    pub start: fn(&Options) -> io::Result<Box<dyn Endpoint>>,
}

/// The real etcd. Its behaviour is the reference.
pub const ETCD: Servers = Servers {
    name: "etcd",
    needs: &[Tool::Etcd],
    start: |options| Ok(Box::new(Etcd::start(options)?)),
};

/// revstore, in this process, configured by the same flags.
pub const REVSTORE: Servers = Servers {
    name: "revstore",
    needs: &[],
    start: |options| Ok(Box::new(Revstore::start(options)?)),
};

impl Servers {
    /// Starts a server with an empty store.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn fresh(&self, options: &Options) -> Box<dyn Endpoint> {
        match (self.start)(options) {
            Ok(server) => server,
            Err(error) => panic!("{} does not start: {error}", self.name),
        }
    }

    /// Runs `case` if the tools that it and the servers need are available. `test` is its name in messages.
    ///
    /// # Panics
    /// If the case panics, or if a tool is missing and the environment requires tools; see
    /// [`tools::available`].
    pub fn run(&self, test: &str, needs: &[Tool], case: fn(&Self)) {
        if tools::available(test, &[self.needs, needs].concat()) {
            case(self);
        }
    }
}

/// Generates one `#[test]` of each case for each kind of server.
///
/// A case is a `fn(&Servers)` in scope. `needs` lists the [`Tool`]s that the cases themselves use.
///
/// ```
/// use revstore_tests::on_every_server;
/// use revstore_tests::server::{Options, Servers};
///
/// fn listens_on_loopback(servers: &Servers) {
///     assert!(servers.fresh(&Options::default()).address().ip().is_loopback());
/// }
///
/// on_every_server! { needs: []; listens_on_loopback }
/// ```
#[macro_export]
macro_rules! on_every_server {
    (needs: $needs:tt; $($case:ident),+ $(,)?) => {
        $crate::on_server! { etcd, $crate::server::ETCD, $needs; $($case),+ }
        $crate::on_server! { revstore, $crate::server::REVSTORE, $needs; $($case),+ }
    };
}

/// Generates the tests of one kind of server, in a module with its name. See [`on_every_server!`].
#[doc(hidden)]
#[macro_export]
macro_rules! on_server {
    ($module:ident, $servers:expr, [$($need:ident),*]; $($case:ident),+) => {
        #[cfg(test)]
        mod $module {
            const NEEDS: &[$crate::tools::Tool] = &[$($crate::tools::Tool::$need),*];
            $(
                #[test]
                fn $case() {
                    let test = concat!(module_path!(), "::", stringify!($case));
                    $servers.run(test, NEEDS, super::$case);
                }
            )+
        }
    };
}
