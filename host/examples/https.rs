//! Runs an HTTPS server with a self-signed certificate until Ctrl-C.
//!
//! ```sh
//! cargo run -p revstore-host --example https
//! curl --insecure https://localhost:8443/
//! ```

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::{convert::Infallible, error::Error};

use http_body_util::Full;
use hyper::{Request, Response, body::Bytes, service::service_fn};
use revstore_host::net::{
    Certificate, EndpointUrl, HttpOptions, ListenUrl, Listener, RequestBody, TlsAcceptor,
    TlsOptions, TlsVersion,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = TlsOptions::new(Certificate::SelfSigned { validity_years: 1 })
        .versions(TlsVersion::V1_3, TlsVersion::V1_3);
    let acceptor = TlsAcceptor::new(&options, &["localhost".to_owned()])?;
    let url = ListenUrl::try_from(EndpointUrl::parse("https://localhost:8443")?)?;
    let listener = Listener::bind(&url)?;
    println!("listening on {}", listener.endpoint());
    let make_service = |_client| {
        service_fn(async |_: Request<RequestBody>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello over TLS\n")))
        })
    };
    let shutdown = || async {
        // If the signal cannot be received, the server stops immediately.
        let _ = tokio::signal::ctrl_c().await;
    };
    listener
        .serve(
            HttpOptions::new().max_concurrent_streams(Some(100)),
            Some(acceptor),
            make_service,
            shutdown,
            || println!("stopping"),
        )
        .await?;
    Ok(())
}
