//! What is known of one request when its faults are decided.

use std::sync::Arc;

use http::{HeaderMap, header};
use revstore_engine::KeyRange;

/// A method that rules can select, of a server that control acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// The full name, such as `etcdserverpb.KV/Put`.
    pub name: &'static str,
    /// What its requests are.
    pub kind: MethodKind,
}

/// What rules can say about the requests of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// Requests for keys.
    Keys,
    /// Requests without keys.
    NoKeys,
    /// Requests to watch a range of keys, and the events of watches.
    Watch,
    /// Requests to keep a lease alive.
    KeepAlive,
}

/// One request, or one response of a watch, as selectors of rules see it.
///
/// A request on a stream is a call of its own: each creation of a watch, and each keep-alive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    /// The position of the method in the list of the rules. `None` for a method that is not in it.
    pub method: Option<usize>,
    /// The keys that the request reads or writes.
    pub keys: &'a [KeyRange],
    /// The user of the token or the certificate.
    pub user: Option<&'a str>,
    /// The name of the client.
    pub client: Option<&'a str>,
    /// The id of the connection.
    pub connection: Option<u64>,
    /// The current revision of the store.
    pub revision: i64,
    /// The request as the front sees it.
    pub front: Option<Front<'a>>,
}

/// A request to a Kubernetes API.
#[derive(Clone, Copy, Debug, Default)]
pub struct Front<'a> {
    /// The verb, such as `list`.
    pub verb: &'a str,
    /// The resource with its group, such as `deployments.apps`.
    pub resource: &'a str,
    /// The namespace, empty for none.
    pub namespace: &'a str,
    /// The name of the object, empty for none.
    pub name: &'a str,
}

/// The header by which a client names itself.
const CLIENT: &str = "revstore-client";

/// The maximum length of the name of a client. The rest is cut off.
const CLIENT_BYTES_MAX: usize = 256;

/// Returns the name of a client, from its header or else from the name of its library.
pub fn client_name(headers: &HeaderMap) -> Option<Arc<str>> {
    let name = headers
        .get(CLIENT)
        .or_else(|| headers.get(header::USER_AGENT))?;
    let name = String::from_utf8_lossy(name.as_bytes());
    let chars = name.char_indices().map(|(at, char)| at + char.len_utf8());
    let end = chars.take_while(|end| *end <= CLIENT_BYTES_MAX).last();
    Some(name[..end.unwrap_or(0)].into())
}

/// What a request to a Kubernetes API is about, for lists and records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontObject {
    /// The verb.
    pub verb: &'static str,
    /// The resource with its group and subresource, such as `deployments.apps/status`; for other requests, the path.
    pub resource: String,
    /// The namespace, empty for none.
    pub namespace: String,
    /// The name of the object, empty for none.
    pub name: String,
}

impl FrontObject {
    /// Returns what rules see of it.
    pub fn for_rules(&self) -> Front<'_> {
        Front {
            verb: self.verb,
            resource: &self.resource,
            namespace: &self.namespace,
            name: &self.name,
        }
    }

    /// Estimates its memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.resource.len() + self.namespace.len() + self.name.len()
    }
}

/// Returns whether a name of a selector or a filter, such as `Put` or `KV/Put`, names the method with this full name.
pub(crate) fn is_named(full: &str, name: &str) -> bool {
    full == name.trim_start_matches('/')
        || full
            .strip_suffix(name)
            .is_some_and(|rest| rest.ends_with(['/', '.']))
}

/// Returns whether a condition that may be unset holds for a value.
pub(crate) fn holds(condition: Option<&String>, value: Option<&str>) -> bool {
    condition.is_none_or(|expected| value == Some(expected))
}

/// Returns whether two ranges have a key in common.
pub(crate) fn overlap(one: &KeyRange, other: &KeyRange) -> bool {
    fn end(range: &KeyRange) -> Option<&[u8]> {
        match range {
            KeyRange::Within { end, .. } => Some(end),
            KeyRange::One(_) | KeyRange::From(_) => None,
        }
    }
    let starts_before_end = |one: &KeyRange, other| end(other).is_none_or(|end| one.start() < end);
    match (one, other) {
        (KeyRange::One(key), range) | (range, KeyRange::One(key)) => range.contains(key),
        _ if one.is_empty() || other.is_empty() => false,
        _ => starts_before_end(one, other) && starts_before_end(other, one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_if_they_share_a_key() {
        let check = |one: KeyRange, other: KeyRange, expected| {
            assert_eq!(overlap(&one, &other), expected, "{one:?} {other:?}");
            assert_eq!(overlap(&other, &one), expected, "{other:?} {one:?}");
        };
        check(KeyRange::one("a"), KeyRange::one("a"), true);
        check(KeyRange::one("a"), KeyRange::one("b"), false);
        check(KeyRange::one("a"), KeyRange::within("a", "b"), true);
        check(KeyRange::one("b"), KeyRange::within("a", "b"), false);
        check(KeyRange::within("a", "c"), KeyRange::within("b", "d"), true);
        check(
            KeyRange::within("a", "b"),
            KeyRange::within("b", "d"),
            false,
        );
        check(KeyRange::within("b", "a"), KeyRange::all(), false);
        check(
            KeyRange::From("b".into()),
            KeyRange::within("a", "b"),
            false,
        );
        check(
            KeyRange::From("b".into()),
            KeyRange::within("a", "b\0"),
            true,
        );
        check(KeyRange::From("x".into()), KeyRange::all(), true);
    }
}
