//! A process whose server another one runs.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use revstore_host::net::EndpointUrl;
use tokio::net::UnixStream;
use tokio::time;

use super::connection::Connection;
use super::message::{Answer, Request, Stop};
use super::place::Place;
use super::socket_of;
use crate::announcement::Announcement;
use crate::config::{CommandLine, Config};
use crate::version::REVSTORE_VERSION;

/// The time in which a host must accept or decline.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The time in which a host must have stopped a server, beyond the delay of its shutdown.
const STOP_LIMIT: Duration = Duration::from_secs(4);

/// A server that a host runs for this process. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct HostedServer {
    host: Connection,
    address: SocketAddr,
    stop_limit: Duration,
}

/// The answer to a request to run a server.
#[derive(Debug)]
pub(crate) enum Hosting {
    /// The host starts it.
    Accepted(HostedServer),
    /// The host does not run it, for this reason.
    Declined(String),
    /// The etcd is no host.
    Absent,
}

/// Why there is no server although a host has accepted it.
#[derive(Debug)]
pub(crate) enum HostingError {
    /// It cannot start, for this reason.
    Failed(String),
    /// The host has ended.
    Ended,
}

impl HostedServer {
    /// Asks the etcd of a configuration to run the server.
    pub(crate) async fn request(config: &Config, command_line: &CommandLine) -> Hosting {
        let Some(address) = host_address(config) else {
            return Hosting::Absent;
        };
        let Ok(stream) = UnixStream::connect(socket_of(address)).await else {
            return Hosting::Absent;
        };
        let mut host = match Connection::new(stream) {
            Ok(host) => host,
            Err(error) => return Hosting::Declined(error.to_string()),
        };
        // A host that reads the request later finds the connection closed, and does not start the server.
        match time::timeout(ANSWER_LIMIT, ask(&mut host, command_line)).await {
            Ok(Ok(Answer::Accepted)) => Hosting::Accepted(Self {
                host,
                address,
                stop_limit: config.shutdown_delay.saturating_add(STOP_LIMIT),
            }),
            Ok(Ok(Answer::Declined(reason))) => Hosting::Declined(reason),
            Ok(Ok(answer)) => Hosting::Declined(format!("it says {answer:?}")),
            Ok(Err(error)) => Hosting::Declined(error.to_string()),
            Err(_) => Hosting::Declined("it does not answer".to_owned()),
        }
    }

    /// Waits until the server has started.
    pub(crate) async fn started(&mut self) -> Result<Announcement, HostingError> {
        match self.host.receive().await {
            Ok(Answer::Started(announcement)) => {
                let address = self.address;
                let note = format!("the server runs in the process of the etcd at {address}");
                Ok(announcement.note(note))
            }
            Ok(Answer::Failed(reason)) => Err(HostingError::Failed(reason)),
            Ok(_) | Err(_) => Err(HostingError::Ended),
        }
    }

    /// Waits until the host has ended. Nothing else ends a server that was not stopped.
    pub(crate) async fn ended(&mut self) {
        // No message is sent.
        let _ = self.host.receive::<Answer>().await;
    }

    /// Stops the server, also one that has not started yet, and waits until it has stopped.
    pub(crate) async fn stop(mut self) {
        let stopped = async {
            self.host.send(&Stop {}).await?;
            // It may have started in the meantime.
            while let Answer::Started(_) = self.host.receive::<Answer>().await? {}
            Ok::<_, io::Error>(())
        };
        // An error is the end of the host, and with it of the server.
        let _ = time::timeout(self.stop_limit, stopped).await;
    }
}

/// Returns the address of the only etcd of a server that may be hosted.
fn host_address(config: &Config) -> Option<SocketAddr> {
    let etcd = config.etcd.as_ref().filter(|_| config.may_be_hosted)?;
    let [url] = &*etcd.urls else {
        return None;
    };
    let url = EndpointUrl::parse(url).ok()?;
    if url.is_tls() || url.is_unix() {
        return None;
    }
    let (host, port) = url.host_and_port().ok()?;
    let address = match host {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse().ok()?,
    };
    Some(SocketAddr::new(address, port.parse().ok()?))
}

async fn ask(host: &mut Connection, command_line: &CommandLine) -> io::Result<Answer> {
    let request = Request {
        version: REVSTORE_VERSION.to_owned(),
        place: Place::here()?,
        arguments: command_line.arguments.clone(),
        variables: command_line.variables.clone(),
    };
    host.send(&request).await?;
    host.receive().await
}
