//! Clients cannot ask for a certificate of an administrator.

use revstore_watch_cache::registry::JsonObject;

use super::REQUESTS;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::auth::MASTERS;
use crate::builtin::{CertificateRequest, edit};

/// The signer of certificates by which users are authenticated.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The plugin `CertificateSubjectRestriction`.
#[derive(Debug)]
pub(crate) struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        phase == Phase::Validate
            && request.operation == Operation::Create
            && request.is_for(REQUESTS.0, REQUESTS.1, "")
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let Some(new) = object else {
                return Ok(());
            };
            if edit::text_at(new, &["spec", "signerName"]) != CLIENT_SIGNER {
                return Ok(());
            }
            let detail = match CertificateRequest::parse(edit::text_at(new, &["spec", "request"])) {
                Err(error) => format!("failed to parse CSR: {error}"),
                Ok(parsed) if parsed.organizations().any(|group| group == MASTERS) => {
                    format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")
                }
                Ok(_) => return Ok(()),
            };
            Err(request.forbidden(object, &detail).into())
        })
    }
}
