//! Lock and election requests: validation.

use revstore_proto::v3electionpb::{LeaderKey, ProclaimRequest, ResignRequest};
use revstore_proto::v3lockpb::UnlockRequest;

use crate::node::admission::Limits;
use crate::request::kv::validate_key;
use crate::status::EtcdError;

/// EL-3.
pub(crate) fn validate_unlock(request: &UnlockRequest, _: &Limits) -> Result<(), EtcdError> {
    validate_key(&request.key)
}

/// EL-7.
pub(crate) fn validate_proclaim(request: &ProclaimRequest, _: &Limits) -> Result<(), EtcdError> {
    validate_leader(request.leader.as_ref())
}

/// EL-8.
pub(crate) fn validate_resign(request: &ResignRequest, _: &Limits) -> Result<(), EtcdError> {
    validate_leader(request.leader.as_ref())
}

fn validate_leader(leader: Option<&LeaderKey>) -> Result<(), EtcdError> {
    let leader = leader.ok_or(EtcdError::LeaderNotGiven)?;
    validate_key(&leader.key)
}
