//! Rows of requests for certificates, and of their authorities.

use serde_json::Value;

use super::age::human;
use super::{AGE, NAME, Printer, age, labels, or, text};
use crate::builtin::field::Field;

pub(super) const PRINTERS: &[Printer] = &[
    Printer {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        columns: &[
            NAME,
            AGE,
            text("SignerName", "The signer that is asked."),
            text("Requestor", "The user who asks."),
            text(
                "RequestedDuration",
                "How long the certificate should be valid.",
            ),
            text("Condition", "The state of the request."),
        ],
        cells: |root, clock| {
            let spec = root.child("spec");
            let duration = spec.child("expirationSeconds").int();
            vec![
                age(root, clock),
                or(spec.child("signerName").text(), "<none>"),
                spec.child("username").text().into(),
                duration.map_or("<none>".to_owned(), human).into(),
                request_state(root).into(),
            ]
        },
    },
    Printer {
        group: "certificates.k8s.io",
        kind: "ClusterTrustBundle",
        columns: &[NAME, text("SignerName", "The signer of the certificates.")],
        cells: |root, _| vec![or(root.at(&["spec", "signerName"]).text(), "<none>")],
    },
    Printer {
        group: "certificates.k8s.io",
        kind: "PodCertificateRequest",
        columns: &[
            NAME,
            text("PodName", "The pod that asks."),
            text("ServiceAccountName", "The service account of the pod."),
            text("NodeName", "The node of the pod."),
            text("SignerName", "The signer that is asked."),
            text("State", "The state of the request."),
            text(
                "UnverifiedUserAnnotations",
                "What the pod says to the signer.",
            ),
        ],
        cells: |root, _| {
            let spec = root.child("spec");
            let of = |name: &'static str| Value::from(spec.child(name).text());
            let mut cells: Vec<Value> = ["podName", "serviceAccountName", "nodeName", "signerName"]
                .map(of)
                .into();
            cells.push(pod_request_state(root).into());
            cells.push(labels(&spec.child("unverifiedUserAnnotations")));
            cells
        },
    },
];

/// Returns the state of a request of a pod. The last condition of these types counts.
fn pod_request_state(root: &Field<'_>) -> &'static str {
    let conditions = root.at(&["status", "conditions"]).items();
    let states = conditions.filter_map(|condition| {
        let kind = condition.child("type").text();
        ["Issued", "Denied", "Failed"]
            .into_iter()
            .find(|state| *state == kind)
    });
    states.last().unwrap_or("Pending")
}

fn request_state(root: &Field<'_>) -> String {
    let has = |kind: &str| {
        let mut conditions = root.at(&["status", "conditions"]).items();
        conditions.any(|condition| condition.child("type").text() == kind)
    };
    let mut state = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !root.at(&["status", "certificate"]).text().is_empty() {
        state.push_str(",Issued");
    }
    state
}
