//! Who the node says it is.

/// The one member of the cluster, as its replies present it (DM-11, CL-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id.
    pub cluster_id: u64,
    /// The member's id; also that of the leader, which is this member.
    pub member_id: u64,
    /// The member's name.
    pub name: String,
    /// Where other members would reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it. Some clients replace their endpoints by these (CL-1).
    pub client_urls: Vec<String>,
}
