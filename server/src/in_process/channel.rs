//! Channels of tonic to a server without ports.

use std::{
    io,
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use super::InProcess;

/// The authority of requests. The server accepts it like the name of a host.
const ENDPOINT: &str = "http://in-process";

impl InProcess {
    /// Returns a channel with a connection of its own, which is opened by the first call and again after it was closed.
    /// Clones of the channel share the connection. The channel does not keep the server alive.
    pub fn channel(&self) -> Channel {
        Endpoint::from_static(ENDPOINT).connect_with_connector_lazy(self.connector())
    }

    /// Returns a connector for a tonic [`Endpoint`] with options, or for a client of hyper. It ignores the address.
    pub fn connector(&self) -> Connector {
        Connector {
            server: std::sync::Arc::downgrade(&self.inner),
        }
    }
}

/// Opens connections to an [`InProcess`] server, created by [`InProcess::connector`].
#[derive(Clone, Debug)]
pub struct Connector {
    server: std::sync::Weak<super::Inner>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = std::future::Ready<Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let server = self.server.upgrade().map(|inner| InProcess { inner });
        let stopped = || io::Error::new(io::ErrorKind::ConnectionRefused, "the server has stopped");
        std::future::ready(match server {
            Some(server) if !server.inner.shutdown.has_begun() => {
                Ok(TokioIo::new(server.connect()))
            }
            _ => Err(stopped()),
        })
    }
}
