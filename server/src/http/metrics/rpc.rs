//! The metrics of gRPC calls.

use revstore_host::metrics::{
    Exposition,
    prometheus::{self, IntCounterVec, Opts},
};

use crate::http::calls::{CODES, CallCounters};

pub(super) fn add(page: &mut Exposition, calls: &CallCounters) -> prometheus::Result<()> {
    const LABELS: [&str; 3] = ["grpc_type", "grpc_service", "grpc_method"];
    const WITH_CODE: [&str; 4] = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
    let counter = |name, help| IntCounterVec::new(Opts::new(name, help), &LABELS);
    let started = counter("grpc_server_started_total", "Calls started.")?;
    let received = counter("grpc_server_msg_received_total", "Messages received.")?;
    let sent = counter("grpc_server_msg_sent_total", "Messages sent.")?;
    let handled = IntCounterVec::new(
        Opts::new(
            "grpc_server_handled_total",
            "Calls completed, by status code.",
        ),
        &WITH_CODE,
    )?;
    for (method, counters) in calls.methods() {
        let counts = counters.counts();
        let labels = [method.kind().as_str(), method.service(), method.name()];
        let [call_type, service, name] = labels;
        for (counter, count) in [
            (&started, counts.started),
            (&received, counts.messages_received),
            (&sent, counts.messages_sent),
        ] {
            counter.get_metric_with_label_values(&labels)?.inc_by(count);
        }
        for (code, count) in CODES.iter().zip(counts.handled) {
            handled
                .get_metric_with_label_values(&[call_type, service, name, code])?
                .inc_by(count);
        }
    }
    for counter in [&started, &received, &sent, &handled] {
        page.add(counter);
    }
    // Present with extensive metrics.
    for (_, counters) in calls.methods() {
        if let Some(handling) = counters.handling() {
            page.add(handling);
        }
    }
    if let Some(clients) = calls.clients() {
        let requests = IntCounterVec::new(
            Opts::new(
                "etcd_server_client_requests_total",
                "Calls started, by the version of the client. More than 64 versions are one.",
            ),
            &["type", "client_api_version"],
        )?;
        for (version, [unary, stream]) in clients.counts() {
            for (kind, count) in [("unary", unary), ("stream", stream)] {
                if count > 0 {
                    requests
                        .get_metric_with_label_values(&[kind, &version])?
                        .inc_by(count);
                }
            }
        }
        page.add(&requests);
    }
    let (received, sent) = calls.bytes();
    page.counter(
        "etcd_network_client_grpc_received_bytes_total",
        "Bytes of gRPC messages from clients.",
        received,
    )?;
    page.counter(
        "etcd_network_client_grpc_sent_bytes_total",
        "Bytes of gRPC messages to clients.",
        sent,
    )
}
