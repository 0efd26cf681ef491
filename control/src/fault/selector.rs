//! Selectors: the calls that a rule is about.

use bytes::Bytes;
use revstore_engine::KeyRange;

use crate::call::{Call, holds, overlap};

/// The conditions of a rule. All that are set must hold; one that is not set always holds.
///
/// | condition | holds for |
/// |---|---|
/// | `methods` | calls of one of these methods: `Put`, `KV/Put` or `etcdserverpb.KV/Put` |
/// | `keys` | requests for at least one key of the range, for transactions in any operation; the watches of at least one such key; never for requests without keys |
/// | `user` | requests of this user, by token or certificate |
/// | `client` | clients that call themselves so, in the header `revstore-client` or else in `user-agent` |
/// | `connection` | requests on this connection |
/// | `front` | requests to the front |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The methods; empty for all.
    pub methods: Vec<String>,
    /// The keys.
    pub keys: Option<KeySelector>,
    /// The user.
    pub user: Option<String>,
    /// The name of the client.
    pub client: Option<String>,
    /// The id of the connection.
    pub connection: Option<u64>,
    /// Conditions of the front.
    pub front: FrontSelector,
}

/// A set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySelector {
    /// The keys with a prefix.
    Prefix(Bytes),
    /// The keys from the first, inclusive, to the second, exclusive.
    Range(Bytes, Bytes),
}

impl KeySelector {
    /// Returns the keys as a range.
    pub fn to_range(&self) -> KeyRange {
        match self {
            Self::Prefix(prefix) => KeyRange::prefix(prefix.clone()),
            Self::Range(start, end) => KeyRange::within(start.clone(), end.clone()),
        }
    }
}

/// The conditions of requests to the front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontSelector {
    /// The verb, such as `list`.
    pub verb: Option<String>,
    /// The resource with its group, such as `deployments.apps`.
    pub resource: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: Option<String>,
}

impl FrontSelector {
    /// Returns whether no condition is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Selector {
    /// Returns whether all conditions hold for a call, except the one for the method. `keys` is the range of
    /// [`Self::keys`].
    pub(crate) fn matches(&self, keys: Option<&KeyRange>, call: &Call<'_>) -> bool {
        let is = |condition: &Option<String>, value| holds(condition.as_ref(), value);
        is(&self.user, call.user)
            && is(&self.client, call.client)
            && self
                .connection
                .is_none_or(|connection| call.connection == Some(connection))
            && keys.is_none_or(|range| call.keys.iter().any(|keys| overlap(range, keys)))
            && (self.front.is_empty()
                || call.front.is_some_and(|front| {
                    is(&self.front.verb, Some(front.verb))
                        && is(&self.front.resource, Some(front.resource))
                        && is(&self.front.namespace, Some(front.namespace))
                        && is(&self.front.name, Some(front.name))
                }))
    }
}
