//! A server inside a program, with a gRPC client and a clock that the program controls.
//!
//! ```sh
//! cargo run -p revstore --example embedded
//! ```
//!
//! A client attaches a key to a lease of an hour and watches it. The program advances the clock by an
//! hour, the lease expires, and the watcher receives the delete event.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use std::{error::Error, time::Duration};

use revstore::{Server, engine::ManualClock};
use revstore_proto::etcdserverpb::{
    LeaseGrantRequest, PutRequest, WatchCreateRequest, WatchRequest, kv_client::KvClient,
    lease_client::LeaseClient, watch_client::WatchClient, watch_request::RequestUnion,
};
use tonic::transport::Endpoint;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let server = Server::builder().clock(clock.clone()).start()?;
    println!("serving at {}", server.endpoint());
    let channel = Endpoint::new(server.endpoint().to_owned())?
        .connect()
        .await?;

    let grant = LeaseGrantRequest {
        ttl: 3_600,
        ..LeaseGrantRequest::default()
    };
    let lease = LeaseClient::new(channel.clone()).lease_grant(grant).await?;
    let put = PutRequest {
        key: "session".into(),
        value: "mine".into(),
        lease: lease.into_inner().id,
        ..PutRequest::default()
    };
    KvClient::new(channel.clone()).put(put).await?;

    let create = WatchCreateRequest {
        key: "session".into(),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    // The request stream stays open during the watch.
    let requests = tokio_stream::StreamExt::chain(
        tokio_stream::once(request),
        tokio_stream::pending::<WatchRequest>(),
    );
    let mut responses = WatchClient::new(channel)
        .watch(requests)
        .await?
        .into_inner();
    // The first response confirms that the watcher exists.
    responses.message().await?;

    clock.advance(Duration::from_secs(3_600));
    let response = responses.message().await?.ok_or("the watch has ended")?;
    for event in response.events {
        println!("{:?}: {:?}", event.r#type(), event.kv);
    }
    server.stop_async().await;
    Ok(())
}
