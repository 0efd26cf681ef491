//! `/metrics` (HT-10): the metrics of etcd, so that its dashboards and alerts work.
//!
//! | file | contents |
//! |---|---|
//! | `node.rs` | the node: its role, its proposals, its health |
//! | `store.rs` | keys, operations, watches, compactions, leases |
//! | `rpc.rs` | gRPC calls |
//! | `heavy.rs` | the threads and the memory of heavy requests, which etcd does not have |
//! | `persist.rs` | the journal of `--persist` |
//! | `absent.rs` | what this server does not have: a disk, a Raft log, other members |
//!
//! All values are collected when the page is requested. The help texts are not those of etcd. They state how the
//! meaning differs from that in etcd. A test compares the names and types with those of a real etcd, and names
//! what is left out.

mod absent;
mod heavy;
mod node;
mod persist;
mod rpc;
mod store;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use revstore_host::metrics::{CONTENT_TYPE, Exposition, prometheus};

use super::{NodeInfo, probe::ProbeError, response};

pub(super) async fn show(State(info): State<Arc<NodeInfo>>) -> Response {
    let engine = info.probe.run().await;
    response(
        axum::http::StatusCode::OK,
        CONTENT_TYPE,
        render(&info, engine).unwrap_or_else(|error| format!("# {error}\n")),
    )
}

fn render(info: &NodeInfo, engine: Result<(), ProbeError>) -> prometheus::Result<String> {
    let mut page = Exposition::new();
    node::add(&mut page, info, engine)?;
    // A stuck engine would hold the thread. Its health is on the page.
    if engine != Err(ProbeError::Stuck) {
        store::add(&mut page, info)?;
    }
    rpc::add(&mut page, &info.calls)?;
    if let Some(times) = &info.apply_times {
        page.add(times.family());
    }
    heavy::add(&mut page, &info.services.heavy_stats())?;
    if let Some(persist) = &info.persist {
        persist::add(&mut page, &persist.stats())?;
    }
    absent::add(&mut page)?;
    page.process()?;
    page.encode()
}
