//! Stock clients in a simulated network, for the example and for a test.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use etcd_client::{Channel, Client};
use http::Uri;
use hyper_util::rt::TokioIo;
use tonic::transport::Endpoint;
use tower_service::Service;
use turmoil::net::TcpStream;

/// The port of the host `etcd`.
pub(crate) const PORT: u16 = 2379;

/// Returns a stock client of the host `etcd`, whose connections are made within a time limit.
pub(crate) async fn connect(limit: Duration) -> Result<Client, etcd_client::Error> {
    let endpoint = Endpoint::from_static("http://etcd:2379").connect_timeout(limit);
    let channel = endpoint.connect_with_connector(Network).await?;
    Client::from_channel(Channel::Tonic(channel), None).await
}

/// Opens connections in the simulated network.
struct Network;

impl Service<Uri> for Network {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(async { TcpStream::connect(("etcd", PORT)).await.map(TokioIo::new) })
    }
}
