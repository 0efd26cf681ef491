//! Calls the services in the same process, without a socket, for example as the store of a test.
//!
//! ```sh
//! cargo run -p revstore-grpc --example in_process
//! ```

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use revstore_engine::Engine;
use revstore_grpc::Services;
use revstore_proto::etcdserverpb::kv_client::KvClient;
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{PutRequest, WatchCreateRequest, WatchRequest};
use tokio_stream::StreamExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let services = Services::builder(Engine::builder().build()).build();

    let create = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(WatchCreateRequest {
            key: "color".into(),
            ..WatchCreateRequest::default()
        })),
    };
    let requests = tokio_stream::iter([create]);
    let watch = WatchClient::new(services.clone()).watch(requests).await?;
    let mut responses = watch.into_inner();
    let created = responses.next().await.ok_or("the stream ended")??;
    assert!(created.created);

    let put = PutRequest {
        key: "color".into(),
        value: "blue".into(),
        ..PutRequest::default()
    };
    KvClient::new(services).put(put).await?;

    let response = responses.next().await.ok_or("the stream ended")??;
    println!("{:?}", response.events);
    Ok(())
}
