//! Claims of devices: rules of the kinds that need more than the object, and that no plugin decides. The causes of all of
//! them are in one answer.

mod admin_access;
mod status;

use revstore_watch_cache::RequestError;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::status::{ResourceName, Status};

use crate::admission::Attributes;

/// The group of the resources.
const GROUP: &str = "resource.k8s.io";

/// Checks a complete version of a claim, or of a template for claims, before it is stored: the namespaces for
/// administrators, and who may write which part of a status.
///
/// # Errors
/// 422.
pub(super) async fn check(
    request: &Attributes<'_>,
    new: Option<&JsonObject>,
    old: Option<&JsonObject>,
) -> Result<(), RequestError> {
    let Some(new) = new.filter(|_| request.resource.names.group == GROUP) else {
        return Ok(());
    };
    let mut causes = Vec::new();
    causes.extend(admin_access::check(request, new, old).await);
    if let ("ResourceClaim", "status", Some(old)) =
        (&*request.resource.names.kind, request.subresource, old)
    {
        let exchange = request.exchange;
        let caller = status::Caller {
            authorizer: &request.front.authorizer,
            user: &exchange.user,
            verb: exchange.info.verb,
            namespace: request.namespace,
        };
        causes.extend(caller.check(new, old));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let kind = ResourceName::new(GROUP, request.kind.kind);
    Err(Status::invalid(&kind, request.shown_name(Some(new)), causes).into())
}
