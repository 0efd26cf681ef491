//! Objects on the wire: every built-in kind survives each encoding byte for byte, and wrong types and values at every
//! position of every kind, and of a custom resource, are refused alike in each of them, without a trace in the store.

mod connection;
mod constructs;
mod custom;
mod encoding;
mod objects;
mod positions;
mod round_trip;
mod wrong;

use connection::Connection;
use objects::NAMESPACE;
use revstore_apiserver::{ApiServer, ApiServerBuilder, Controllers};

/// Returns a server whose store changes only by requests, with the namespace of the objects.
fn server() -> ApiServer {
    server_of(ApiServer::builder())
}

/// As [`server`], with further options.
fn server_of(builder: ApiServerBuilder) -> ApiServer {
    let server = builder
        .controllers(Controllers::none())
        .start()
        .expect("a server");
    let namespace = format!("{{\"metadata\": {{\"name\": \"{NAMESPACE}\"}}}}");
    let json = "application/json";
    let mut connection = Connection::new(server.endpoint());
    let created = connection.send(
        ("POST", "/api/v1/namespaces"),
        (json, json),
        namespace.as_bytes(),
    );
    assert_eq!(created.code, 201);
    server
}
