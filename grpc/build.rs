//! Generates the servers of the services whose responses contain key-values.
//!
//! The servers in `revstore-proto` return the generated messages. The servers of this build script
//! return the messages of `src/encode/`, which contain the engine's records. Both decode requests
//! to the generated messages. The methods come from the descriptors of `revstore-proto`.

use std::error::Error;
use std::{env, fs};

use heck::ToSnakeCase;
use prost::Message;
use prost_types::{FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto};
use tonic_build::manual::{Builder, Method, Service};

/// The package of both services.
const PACKAGE: &str = "etcdserverpb";

/// The services, each with the module of its responses.
const SERVICES: [(&str, &str); 2] = [
    ("KV", "crate::encode::response"),
    ("Watch", "crate::encode::watch_response"),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    // The build script of `revstore-proto` reports the path of the descriptors.
    println!("cargo::rerun-if-env-changed=DEP_REVSTORE_PROTO_DESCRIPTOR_SET");
    let path = env::var("DEP_REVSTORE_PROTO_DESCRIPTOR_SET")?;
    println!("cargo::rerun-if-changed={path}");
    let set = FileDescriptorSet::decode(fs::read(path)?.as_slice())?;

    let mut services = Vec::new();
    for (name, responses) in SERVICES {
        let described = set
            .file
            .iter()
            .filter(|file| file.package() == PACKAGE)
            .flat_map(|file| &file.service)
            .find(|service| service.name() == name)
            .ok_or_else(|| format!("the descriptors contain no service {PACKAGE}.{name}"))?;
        services.push(service(described, responses));
    }
    Builder::new()
        .build_client(false)
        .build_transport(false)
        .compile(&services);
    Ok(())
}

fn service(described: &ServiceDescriptorProto, responses: &str) -> Service {
    let mut service = Service::builder()
        .package(PACKAGE)
        .name(described.name())
        .comment(format!("etcd's service {}.", described.name()));
    for described in &described.method {
        service = service.method(method(described, responses));
    }
    service.build()
}

fn method(described: &MethodDescriptorProto, responses: &str) -> Method {
    let request = message(described.input_type());
    let response = message(described.output_type());
    let mut method = Method::builder()
        .name(described.name().to_snake_case())
        .route_name(described.name())
        .input_type(format!("revstore_proto::{PACKAGE}::{request}"))
        .output_type(format!("{responses}::{response}"))
        .codec_path("crate::encode::codec::ResponseCodec");
    if described.client_streaming() {
        method = method.client_streaming();
    }
    if described.server_streaming() {
        method = method.server_streaming();
    }
    method.build()
}

/// Returns the last part of a message's full name.
fn message(full_name: &str) -> &str {
    full_name.rsplit('.').next().unwrap_or(full_name)
}
