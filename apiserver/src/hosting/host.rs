//! The process of an etcd that runs servers for guests.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use revstore::LocalStore;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{self, JoinSet};
use tokio::time;

use super::connection::Connection;
use super::message::{Answer, Request, Stop};
use super::place::Place;
use super::socket_of;
use crate::announcement::Announcement;
use crate::config::{self, Config, Invocation};
use crate::server::{ApiServer, StartError};
use crate::version::REVSTORE_VERSION;

/// The maximum number of connections of guests to one address. Further ones wait.
const GUESTS_MAX: usize = 64;
/// The time in which a guest must say what it wants.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// The time for which a server waits for its port: the server of an earlier guest, which was killed, may still end.
const PORT_LIMIT: Duration = Duration::from_secs(4);
/// The pause after an attempt to bind a port.
const PORT_PAUSE: Duration = Duration::from_millis(20);
/// The pause after a connection that could not be accepted, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs servers for guests until it is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    _accepting: JoinSet<()>,
}

impl Host {
    /// Begins to listen for guests of a store. Must run in a runtime. An address on which it cannot listen has none.
    pub(crate) fn start(store: &LocalStore) -> Self {
        let mut accepting = JoinSet::new();
        for address in store.addresses().iter().copied().flat_map(dialed) {
            if let Ok(listener) = UnixListener::bind(socket_of(address)) {
                accepting.spawn(accept(listener, store.clone()));
            }
        }
        Self {
            _accepting: accepting,
        }
    }
}

/// Returns the addresses that a guest may have for this one.
fn dialed(bound: SocketAddr) -> Vec<SocketAddr> {
    let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    let addresses: Vec<IpAddr> = match bound.ip() {
        IpAddr::V4(address) if address.is_unspecified() => vec![v4],
        IpAddr::V6(address) if address.is_unspecified() => vec![v4, v6],
        address => vec![address],
    };
    let addresses = addresses.into_iter();
    let addresses = addresses.map(|address| SocketAddr::new(address, bound.port()));
    addresses.collect()
}

async fn accept(listener: UnixListener, store: LocalStore) {
    let places = Arc::new(Semaphore::new(GUESTS_MAX));
    let mut guests = JoinSet::new();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        while guests.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(connection) = Connection::new(stream) else {
            continue;
        };
        let store = store.clone();
        guests.spawn(async move {
            // An error is the end of a guest.
            let _ = serve(connection, &store).await;
            drop(place);
        });
    }
}

/// Runs the server of a guest until that says so or ends.
async fn serve(mut guest: Connection, store: &LocalStore) -> io::Result<()> {
    let request = time::timeout(REQUEST_LIMIT, guest.receive()).await??;
    let config = match configuration(request, store) {
        Ok(config) => config,
        Err(reason) => return guest.send(&Answer::Declined(reason)).await,
    };
    guest.send(&Answer::Accepted).await?;
    let delay = config.shutdown_delay;
    let (wanted, stop) = watch::channel(());
    let mut starting = pin!(start(config, store, stop));
    let started = tokio::select! {
        started = &mut starting => started,
        message = guest.receive::<Stop>() => {
            drop(wanted);
            // A server that has started meanwhile stops when it is dropped.
            drop(starting.await);
            message?;
            return guest.send(&Answer::Stopped).await;
        }
    };
    let server = match started {
        Ok(server) => server,
        Err(error) => return guest.send(&Answer::Failed(error.to_string())).await,
    };
    let sent = guest
        .send(&Answer::Started(Announcement::of(&server)))
        .await;
    let stop = match sent {
        Ok(()) => guest.receive::<Stop>().await,
        Err(error) => Err(error),
    };
    if stop.is_ok() {
        server.begin_stop();
        // A guest that ends now does not wait.
        let _ = time::timeout(delay, guest.receive::<Stop>()).await;
    }
    server.stop_async().await;
    stop?;
    guest.send(&Answer::Stopped).await
}

/// Returns the configuration of the server that a guest asks for, or why this process does not run it.
fn configuration(request: Request, store: &LocalStore) -> Result<Config, String> {
    if request.version != REVSTORE_VERSION {
        return Err(format!("it has the version {REVSTORE_VERSION}"));
    }
    let here = Place::here().map_err(|error| error.to_string())?;
    if request.place != here {
        return Err("it has another working directory, or other files".to_owned());
    }
    if !store.is_open() {
        return Err("it has authentication or an alarm".to_owned());
    }
    match config::parse_in_place(request.arguments, request.variables) {
        Ok(Invocation::Serve { config, .. }) if config.may_be_hosted => Ok(Config {
            etcd: None,
            ..*config
        }),
        Ok(_) => Err("the server is not to be hosted".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Starts a server over the store, and gives up when the sender of `stop` is dropped.
async fn start(
    config: Config,
    store: &LocalStore,
    stop: watch::Receiver<()>,
) -> Result<ApiServer, StartError> {
    let begun = time::Instant::now();
    loop {
        let builder = ApiServer::builder().config(config.clone());
        let builder = builder.engine(store.engine().clone());
        let mut stopped = stop.clone();
        let started = task::spawn_blocking(move || {
            builder.start_until(async move {
                // Ends when the sender is dropped. No message is sent.
                let _ = stopped.changed().await;
            })
        });
        match started.await {
            Ok(Err(StartError::Bind(error)))
                if error.is_in_use()
                    && begun.elapsed() < PORT_LIMIT
                    && stop.has_changed().is_ok() =>
            {
                time::sleep(PORT_PAUSE).await;
            }
            Ok(result) => return result,
            Err(error) => return Err(StartError::Runtime(error.into())),
        }
    }
}
