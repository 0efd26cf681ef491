//! Who may approve and sign requests: a right for each name of a signer.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::quoted;

use super::REQUESTS;
use crate::admission::{Attributes, Decision, Operation, Phase, Plugin};
use crate::auth;
use crate::builtin::edit;
use crate::builtin::field::Field;

/// The plugin `CertificateApproval`.
#[derive(Debug)]
pub(crate) struct CertificateApproval;

/// The plugin `CertificateSigning`.
#[derive(Debug)]
pub(crate) struct CertificateSigning;

impl Plugin for CertificateApproval {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        updates(phase, request, "approval")
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move { check(request, object, "approve") })
    }
}

impl Plugin for CertificateSigning {
    fn handles(&self, phase: Phase, request: &Attributes<'_>) -> bool {
        updates(phase, request, "status")
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a JsonObject>,
    ) -> Decision<'a> {
        Box::pin(async move {
            let (Some(new), Some(old)) = (object, request.old) else {
                return Ok(());
            };
            let (new, old) = (Field::root(new), Field::root(old));
            let is_equal = |name| {
                let path = ["status", name];
                new.at(&path).equals(&old.at(&path))
            };
            if is_equal("certificate") && is_equal("conditions") {
                return Ok(());
            }
            check(request, object, "sign")
        })
    }
}

fn updates(phase: Phase, request: &Attributes<'_>, subresource: &str) -> bool {
    phase == Phase::Validate
        && request.operation == Operation::Update
        && request.is_for(REQUESTS.0, REQUESTS.1, subresource)
}

/// Checks that the user has a right for the signer of the current version, or for all signers of its domain.
fn check(
    request: &Attributes<'_>,
    object: Option<&JsonObject>,
    verb: &str,
) -> Result<(), RequestError> {
    let Some(old) = request.old else {
        return Ok(());
    };
    let signer = edit::text_at(old, &["spec", "signerName"]);
    let domain = signer.split('/').next().unwrap_or_default();
    let is_allowed = |name: &str| {
        let attributes = auth::Attributes::Resource {
            verb,
            group: REQUESTS.0,
            namespace: "",
            resource: "signers",
            subresource: "",
            name,
        };
        request.front.authorizer.allows(request.user(), attributes)
    };
    if is_allowed(signer) || is_allowed(&format!("{domain}/*")) {
        return Ok(());
    }
    let signer = quoted(signer);
    let detail = format!("user not permitted to {verb} requests with signerName {signer}");
    Err(request.forbidden(object, &detail).into())
}
