//! The identity of the node in responses.

/// The ids, the name and the URLs of the only member of the cluster, as in responses.
///
/// ```
/// use revstore_grpc::Identity;
/// let identity = Identity::new(7, 8).name("default").client_urls(["http://localhost:2379"]);
/// assert_eq!(identity.client_urls, ["http://localhost:2379"]);
/// ```
// DM-11, CL-1
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The id of the cluster.
    pub cluster_id: u64,
    /// The id of the member. The member is also the leader.
    pub member_id: u64,
    /// The name of the member.
    pub name: String,
    /// The URLs for other members.
    pub peer_urls: Vec<String>,
    /// The URLs for clients. Some clients replace their endpoints with these.
    pub client_urls: Vec<String>,
}

impl Identity {
    /// Creates an identity with an empty name and no URLs.
    pub fn new(cluster_id: u64, member_id: u64) -> Self {
        Self {
            cluster_id,
            member_id,
            ..Self::default()
        }
    }

    /// Sets the name of the member.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// Sets the URLs for other members.
    #[must_use]
    pub fn peer_urls(self, urls: impl IntoIterator<Item: Into<String>>) -> Self {
        Self {
            peer_urls: urls.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// Sets the URLs for clients.
    #[must_use]
    pub fn client_urls(self, urls: impl IntoIterator<Item: Into<String>>) -> Self {
        Self {
            client_urls: urls.into_iter().map(Into::into).collect(),
            ..self
        }
    }
}
