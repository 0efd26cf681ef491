//! The controller of `controller.rs` over an API server: only the `ListWatch` differs. It prints the pods
//! that have no node, and ends when one has.
//!
//! `cargo run -p revstore-reflector --features http --example kube_controller -- URL [TOKEN [CA_FILE]]`,
//! where URL is that of a collection, such as `https://10.0.0.1:6443/api/v1/namespaces/default/pods`.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use revstore_reflector::kube::KubeListWatch;

#[expect(dead_code, reason = "its `main` is not used")]
mod controller;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .ok_or("the URL of a collection is missing")?;
    let path_start = url
        .match_indices('/')
        .nth(2)
        .ok_or("the URL has no path")?
        .0;
    let (server, path) = url.split_at(path_start);

    // The requests run on this runtime, the controller on threads of its own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let mut source = KubeListWatch::builder(server, path).runtime(runtime.handle().clone());
    if let Some(token) = arguments.next() {
        source = source.bearer_token(token);
    }
    if let Some(file) = arguments.next() {
        source = source.certificate_authority(std::fs::read(file)?);
    }
    let print = |key: &str, _: &str| {
        writeln!(std::io::stdout(), "{key} has no node").map_err(|error| error.to_string())
    };
    controller::run(Arc::new(source.build()?), print, |bound| bound > 0);
    Ok(())
}
