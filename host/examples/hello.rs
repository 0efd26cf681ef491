//! Starts an HTTP server on a free port, sends one request to it, and shuts it down gracefully.
//!
//! ```sh
//! cargo run -p revstore-host --example hello
//! ```

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::{convert::Infallible, error::Error};

use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, service::service_fn};
use revstore_host::{
    logging::{LogOptions, Logger},
    net::{BoundAddress, HttpOptions, ListenUrl, Listener, RequestBody},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

async fn hello(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    tracing::info!(path = request.uri().path(), "request");
    Ok(Response::new(Full::from("hello")))
}

fn main() -> Result<(), Box<dyn Error>> {
    // `hello` is the name of this program and therefore the target of its events.
    let log = Logger::open(&LogOptions::new().targets(["hello", "revstore"]))?;
    let _guard = log.install();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    log.install_on_runtime(&mut runtime);
    runtime.enable_all().build()?.block_on(async {
        let listener = Listener::bind(&ListenUrl::localhost(0))?;
        let BoundAddress::Tcp(address) = *listener.address() else {
            return Err("not a TCP address".into());
        };
        let (stop, stopping) = watch::channel(());
        let serving = tokio::spawn(listener.serve(
            HttpOptions::new(),
            None,
            |_client| service_fn(hello),
            // Completes when the sender is dropped.
            move || {
                let mut stopping = stopping.clone();
                async move { while stopping.changed().await.is_ok() {} }
            },
            || tracing::info!("closed"),
        ));
        println!("{}", get(address).await?);
        drop(stop);
        serving.await??;
        Ok(())
    })
}

/// Sends a request and returns the whole response.
async fn get(address: std::net::SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = b"GET /greeting HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}
