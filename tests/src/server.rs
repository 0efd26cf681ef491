//! The seam between a test case and the servers that it runs against.
//!
//! A case is a function that takes [`Servers`], starts as many fresh ones as it wants and checks
//! what they do. [`on_every_server!`](crate::on_every_server) turns it into one `#[test]` per kind
//! of server, so that the same expectations hold for a real etcd and for whatever replaces it.
//!
//! To hook up another kind of server, write a function of the type of [`Servers::start`], name it
//! in a constant beside [`ETCD`], and add a line to the macro.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::etcd::Etcd;
use crate::revstore::Revstore;
use crate::tools::{self, Tool};

/// The member name that every server under test has.
pub const NAME: &str = "default";

/// The client URL that every server under test advertises. Nothing listens there: it is fixed, and
/// the port that is really listened on is not, so that member lists can be compared as text.
pub const ADVERTISED_CLIENT_URL: &str = "http://localhost:2379";

/// The peer URL that every server under test advertises. Nothing listens there either. Member and
/// cluster ids derive from it, so a fixed one makes them the same everywhere.
pub const ADVERTISED_PEER_URL: &str = "http://localhost:2380";

/// The heartbeat interval of every server under test. Together with [`ELECTION_TIMEOUT`] it decides
/// the shortest lease: one second.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(10);

/// The election timeout of every server under test; an etcd's start takes hardly longer than this.
pub const ELECTION_TIMEOUT: Duration = Duration::from_millis(50);

/// What a case may ask for. The rest is as the constants of this module say, or as etcd has it by
/// default.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How often an idle watch that wants progress notifications gets one; etcd's 10 minutes if
    /// absent.
    pub watch_progress_interval: Option<Duration>,
    /// The size of the store in bytes at which writes are refused; etcd's 2 GiB if absent.
    pub quota_bytes: Option<u32>,
    /// How long a connection may be silent before the server asks whether the client is there, and
    /// how long it then waits for the answer; etcd's 2 hours and 20 seconds if absent. A real etcd
    /// waits a second at least.
    pub keepalive: Option<(Duration, Duration)>,
    /// Whether `/v3/...` has to answer. A real etcd then cannot take port 0, because its gateway
    /// dials the address that it was told to listen on.
    pub json_gateway: bool,
}

impl Options {
    /// The flags that set a server up as this module says, listening on `port`. Only what stands
    /// here is the same for every kind of server.
    pub(crate) fn flags(&self, port: u16) -> Vec<String> {
        let mut flags = vec![
            format!("--name={NAME}"),
            format!("--listen-client-urls=http://127.0.0.1:{port}"),
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
        flags
    }
}

/// A running server with an empty store at revision 1. It stops when this value is dropped.
pub trait Endpoint: Debug + Send + Sync {
    /// Where clients connect: a loopback address.
    fn address(&self) -> SocketAddr;

    /// What the server has logged so far, to be shown when a test fails.
    fn logs(&self) -> String;
}

/// One kind of server that cases run against.
#[derive(Debug)]
pub struct Servers {
    /// What the kind is called in messages.
    pub name: &'static str,
    /// The programs that have to be there to start such a server.
    pub needs: &'static [Tool],
    /// Starts a server and returns once it serves requests.
    pub start: fn(&Options) -> io::Result<Box<dyn Endpoint>>,
}

/// The real etcd: what it does is right by definition.
pub const ETCD: Servers = Servers {
    name: "etcd",
    needs: &[Tool::Etcd],
    start: |options| Ok(Box::new(Etcd::start(options)?)),
};

/// Ours, in this process, configured by the same flags.
pub const REVSTORE: Servers = Servers {
    name: "revstore",
    needs: &[],
    start: |options| Ok(Box::new(Revstore::start(options)?)),
};

impl Servers {
    /// Starts a server with an empty store.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn fresh(&self, options: &Options) -> Box<dyn Endpoint> {
        match (self.start)(options) {
            Ok(server) => server,
            Err(error) => panic!("{} does not start: {error}", self.name),
        }
    }

    /// Runs `case`, called `test` in messages, if what it and the servers need is there.
    ///
    /// # Panics
    /// When the case does, and when something is missing that the environment requires; see
    /// [`tools::available`].
    pub fn run(&self, test: &str, needs: &[Tool], case: fn(&Self)) {
        if tools::available(test, &[self.needs, needs].concat()) {
            case(self);
        }
    }
}

/// Makes one `#[test]` of each case for each kind of server.
///
/// A case is a `fn(&Servers)` in scope. `needs` lists the [`Tool`]s that the cases use themselves.
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

/// The tests of one kind of server, in a module called after it. See [`on_every_server!`].
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
