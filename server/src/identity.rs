//! Member and cluster ids, derived from the configuration as in etcd.
//!
//! The same peer URLs and token give the same ids on every machine and at every start. So a server has the
//! same ids after a restart.

use sha1::{Digest, Sha1};

use revstore_host::net::EndpointUrl;

// DM-11 for both functions.

/// Returns the id of a member: the first 8 bytes, big-endian, of the SHA-1 hash of its sorted peer URLs
/// followed by the cluster token. The name of the member is not part of the hash.
pub fn member_id(peer_urls: &[EndpointUrl], cluster_token: &str) -> u64 {
    let mut urls: Vec<&str> = peer_urls.iter().map(EndpointUrl::as_str).collect();
    urls.sort_unstable();
    let mut hash = Sha1::new();
    for url in urls {
        hash.update(url);
    }
    hash.update(cluster_token);
    first_8_bytes(hash)
}

/// Returns the id of a cluster: the first 8 bytes of the SHA-1 hash of the sorted ids of its members, 8
/// bytes each.
pub fn cluster_id(member_ids: &[u64]) -> u64 {
    let mut ids = member_ids.to_vec();
    ids.sort_unstable();
    let mut hash = Sha1::new();
    for id in ids {
        hash.update(id.to_be_bytes());
    }
    first_8_bytes(hash)
}

fn first_8_bytes(hash: Sha1) -> u64 {
    hash.finalize()
        .iter()
        .take(8)
        .fold(0, |id, byte| id << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(peer_urls: &str, token: &str, expected: (u64, u64)) {
        let member = member_id(&EndpointUrl::parse_list(peer_urls).unwrap(), token);
        assert_eq!(
            (member, cluster_id(&[member])),
            expected,
            "{peer_urls} {token}"
        );
    }

    #[test]
    fn dm_11_the_default_ids_are_those_of_etcd() {
        check(
            "http://localhost:2380",
            "etcd-cluster",
            (10_276_657_743_932_975_437, 14_841_639_068_965_178_418),
        );
        assert_eq!(10_276_657_743_932_975_437_u64, 0x8e9e_05c5_2164_694d);
        assert_eq!(14_841_639_068_965_178_418_u64, 0xcdf8_1819_4e3a_8c32);
    }

    #[test]
    fn dm_11_ids_do_not_depend_on_the_order_of_urls_and_members() {
        let url = |text| EndpointUrl::parse(text).unwrap();
        let (a, b) = (url("http://a:2380"), url("http://b:2380"));
        assert_eq!(
            member_id(&[a.clone(), b.clone()], "t"),
            member_id(&[b, a], "t")
        );
        assert_eq!(cluster_id(&[1, 2]), cluster_id(&[2, 1]));
        assert_ne!(cluster_id(&[1, 2]), cluster_id(&[1]));
    }
}
