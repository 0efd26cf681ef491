//! Serves the gRPC services with hyper on port 2379, for example for `etcdctl --endpoints
//! localhost:2379 put color blue`.
//!
//! The crate `revstore` is a complete server with TLS, flags, metrics and limits on connections.
//!
//! ```sh
//! cargo run -p revstore-grpc --example own_server
//! ```

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use revstore_engine::Engine;
use revstore_grpc::{Identity, Limits, Services};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let identity = Identity::new(1, 1)
        .name("default")
        .client_urls(["http://localhost:2379"]);
    let services = Services::builder(Engine::builder().build())
        .identity(identity)
        .limits(Limits::default().quota_bytes(None))
        .build();

    let listener = TcpListener::bind("localhost:2379").await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(services.clone());
        tokio::spawn(async move {
            let connection = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                eprintln!("connection failed: {error}");
            }
        });
    }
}
