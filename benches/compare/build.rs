//! Generates a watch service whose responses are bytes, so that the null server encodes an event
//! once for all its watches.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let watch = Method::builder()
        .name("watch")
        .route_name("Watch")
        .input_type("revstore_proto::etcdserverpb::WatchRequest")
        .output_type("crate::null::SplitResponse")
        .codec_path("crate::null::SplitCodec")
        .client_streaming()
        .server_streaming()
        .build();
    let service = Service::builder()
        .package("etcdserverpb")
        .name("Watch")
        .method(watch)
        .build();
    Builder::new()
        .build_client(false)
        .build_transport(false)
        .compile(&[service]);
}
