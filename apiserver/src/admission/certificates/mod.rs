//! The plugins about certificate signing requests.

mod signers;
mod subject;

pub(super) use signers::{CertificateApproval, CertificateSigning};
pub(super) use subject::CertificateSubjectRestriction;

/// The group and the resource of the requests.
const REQUESTS: (&str, &str) = ("certificates.k8s.io", "certificatesigningrequests");
