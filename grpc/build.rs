//! Generates the servers of the services that answer with key-values.
//!
//! The servers in `revstore-proto` answer with the generated messages; these answer with those of
//! `src/encode/wire.rs`, which know the engine's records. Requests are the generated ones either way.

use tonic_build::manual::{Builder, Method, MethodBuilder, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");

    let kv = Service::builder()
        .package("etcdserverpb")
        .name("KV")
        .comment("etcd's key-value service.")
        .method(method("range", "Range", "RangeRequest", "RangeResponse").build())
        .method(
            method(
                "range_stream",
                "RangeStream",
                "RangeRequest",
                "RangeStreamResponse",
            )
            .server_streaming()
            .build(),
        )
        .method(method("put", "Put", "PutRequest", "PutResponse").build())
        .method(
            method(
                "delete_range",
                "DeleteRange",
                "DeleteRangeRequest",
                "DeleteRangeResponse",
            )
            .build(),
        )
        .method(method("txn", "Txn", "TxnRequest", "TxnResponse").build())
        .method(
            method(
                "compact",
                "Compact",
                "CompactionRequest",
                "CompactionResponse",
            )
            .build(),
        )
        .build();
    let watch = Service::builder()
        .package("etcdserverpb")
        .name("Watch")
        .comment("etcd's watch service.")
        .method(
            method("watch", "Watch", "WatchRequest", "WatchResponse")
                .client_streaming()
                .server_streaming()
                .build(),
        )
        .build();
    Builder::new()
        .build_client(false)
        .build_transport(false)
        .compile(&[kv, watch]);
}

fn method(name: &str, route: &str, request: &str, response: &str) -> MethodBuilder {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type(format!("revstore_proto::etcdserverpb::{request}"))
        .output_type(format!("crate::encode::wire::{response}"))
        .codec_path("crate::encode::codec::WireCodec")
}
