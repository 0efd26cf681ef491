//! Calls the services with JSON over HTTP, as `curl localhost:2379/v3/kv/put` does. Keys and values are
//! encoded in base64.
//!
//! ```sh
//! cargo run -p revstore-grpc --example json_gateway
//! ```

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use http::Request;
use http_body_util::BodyExt;
use revstore_engine::Engine;
use revstore_grpc::{Gateway, Limits, Services};
use tower_service::Service;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = Limits::default();
    let services = Services::builder(Engine::builder().build())
        .limits(limits)
        .build();
    let mut gateway = Gateway::new(services, &limits);

    for (path, body) in [
        ("/v3/kv/put", r#"{"key": "Y29sb3I=", "value": "Ymx1ZQ=="}"#),
        ("/v3/kv/range", r#"{"key": "Y29sb3I="}"#),
    ] {
        let request = Request::post(path).body(body.to_owned())?;
        let response = gateway.call(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        println!("{path}: {status} {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}
