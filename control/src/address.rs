//! The address of a server in a URL, and connections to it.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use http::HeaderValue;
use revstore_host::net::EndpointUrl;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The time in which a server must accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// The address of a server.
#[derive(Debug)]
pub(crate) struct Address {
    at: At,
    /// The value of the header `Host`.
    pub(crate) host: HeaderValue,
    /// The name in the certificate of the server, of a URL with `https`.
    pub(crate) tls_name: Option<String>,
}

#[derive(Debug)]
enum At {
    Tcp(String),
    Unix(String),
}

/// A connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Address {
    /// Reads a URL, by default of `http`. Returns what is wrong with it.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let invalid = |problem: &dyn Display| invalid(url, problem);
        let with_scheme = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        let parsed = EndpointUrl::parse(&with_scheme).map_err(|error| invalid(&error))?;
        let (at, host, name) = if parsed.is_unix() {
            let name = "localhost".to_owned();
            (At::Unix(parsed.socket_path()), name.clone(), name)
        } else {
            let (host, port) = parsed.host_and_port().map_err(|error| invalid(&error))?;
            if port.is_empty() {
                return Err(invalid(&"the port is missing"));
            }
            let authority = if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            };
            (At::Tcp(authority.clone()), authority, host.to_owned())
        };
        Ok(Self {
            at,
            host: HeaderValue::try_from(host).map_err(|error| invalid(&error))?,
            tls_name: parsed.is_tls().then_some(name),
        })
    }

    /// Connects to the server. Returns why that is not possible.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        match &self.at {
            At::Tcp(address) => {
                let stream = within(TcpStream::connect(address), address).await?;
                // A request is one write, which must not wait for the acknowledgement of the one before it.
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            At::Unix(path) => Ok(Box::new(within(UnixStream::connect(path), path).await?)),
        }
    }
}

/// Returns the error of a URL.
pub(crate) fn invalid(url: &str, problem: &dyn Display) -> String {
    format!("invalid URL {url:?}: {problem}")
}

/// Limits the time of connecting.
async fn within<T>(
    connecting: impl Future<Output = io::Result<T>>,
    address: &str,
) -> Result<T, String> {
    match tokio::time::timeout(CONNECT_TIME, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(format!("cannot connect to {address}: {error}")),
        Err(_elapsed) => Err(format!("cannot connect to {address}: no answer")),
    }
}
