//! The members of the cluster: this node, and the learner that a client may add.
//!
//! No other member ever joins. A learner is only data, which responses, the snapshot and the journal contain. Every change
//! is checked in two steps, as in etcd: before it is proposed, and when the proposal, which counts also if it fails, is
//! applied. The counterpart in etcd is `RaftCluster`.

use std::collections::{BTreeMap, HashSet, VecDeque};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use tracing::info;

use crate::node::admission::RaftIndex;
use crate::node::identity::Identity;
use crate::request::peer_url;
use crate::status::EtcdError;

/// The maximum number of learners (CL-3). In etcd 3.5 no flag changes it.
const LEARNERS_MAX: usize = 1;

/// The maximum number of removed ids that are kept. Beyond it, the oldest ones are forgotten. A forgotten id is an
/// unknown one, for which all errors are the same.
const REMOVED_MAX: usize = 1000;

/// The maximum size of the URLs in a line of the log. Further ones are left out.
const LOGGED_BYTES_MAX: usize = 16 * 1024;

/// A member of the cluster, as in responses.
///
/// ```
/// use revstore_engine::Engine;
/// use revstore_grpc::{Identity, Services};
/// let identity = Identity::new(7, 8).name("default").peer_urls(["http://localhost:2380"]);
/// let services = Services::builder(Engine::builder().build()).identity(identity).build();
/// let expected = r#"{"id":8,"peerURLs":["http://localhost:2380"],"name":"default"}"#;
/// assert_eq!(services.members()[0].to_json(), expected);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClusterMember {
    /// The id of the member.
    pub id: u64,
    /// The URLs for other members.
    #[serde(rename = "peerURLs")]
    pub peer_urls: Vec<String>,
    /// Whether the member has no vote.
    #[serde(rename = "isLearner", skip_serializing_if = "is_false")]
    pub is_learner: bool,
    /// The name of the member; empty if it has not started.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The URLs for clients; empty if it has not started.
    #[serde(rename = "clientURLs", skip_serializing_if = "Vec::is_empty")]
    pub client_urls: Vec<String>,
}

impl ClusterMember {
    /// Returns the member in the form in which etcd shows it to other members and stores it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature of serde")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The members of the cluster, with the ids of removed ones.
#[derive(Debug)]
pub(crate) struct Members {
    own_id: u64,
    cluster_id: u64,
    /// A leaf lock, held for one change or copy.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    members: BTreeMap<u64, ClusterMember>,
    /// Ids of removed members, oldest first.
    removed: VecDeque<u64>,
    /// The number of changes.
    changes: u64,
    promote_failures: PromoteFailures,
}

/// Decodes the key of a member in a bucket: its id in hexadecimal.
pub(crate) fn id_of_key(key: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(key).ok()?, 16).ok()
}

/// The members that a journal contains.
#[derive(Debug, Default)]
pub(crate) struct StoredMembers {
    pub(crate) members: Vec<ClusterMember>,
    pub(crate) removed: Vec<u64>,
}

/// The failed promotions of members, by reason. None succeeds, because no learner receives any data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromoteFailures {
    /// There was no such member.
    pub unknown: u64,
    /// The member was no learner.
    pub not_learner: u64,
    /// The learner did not have the data of the leader.
    pub not_ready: u64,
}

impl Members {
    /// Continues with stored members. The names, and the URLs for clients, are those of `identity`; the peer URLs are
    /// the stored ones, as in etcd.
    pub(crate) fn new(identity: &Identity, stored: StoredMembers) -> Self {
        let own_id = identity.member_id;
        let mut own = ClusterMember {
            id: own_id,
            name: identity.name.clone(),
            peer_urls: identity.peer_urls.clone(),
            client_urls: identity.client_urls.clone(),
            is_learner: false,
        };
        let mut state = State::default();
        // Members that an embedding program has stored with another identity are those of another cluster.
        if let Some(stored_own) = stored.members.iter().find(|it| it.id == own_id) {
            own.peer_urls.clone_from(&stored_own.peer_urls);
            state.members = stored.members.into_iter().map(|it| (it.id, it)).collect();
            state.removed = stored.removed.into();
        }
        state.members.insert(own_id, own);
        Self {
            own_id,
            cluster_id: identity.cluster_id,
            state: Mutex::new(state),
        }
    }

    /// Returns all members, ordered by id.
    pub(crate) fn list(&self) -> Vec<ClusterMember> {
        self.state.lock().list()
    }

    /// Returns the ids of removed members, oldest first.
    pub(crate) fn removed(&self) -> Vec<u64> {
        self.state.lock().removed.iter().copied().collect()
    }

    /// Returns the number of changes since the start.
    pub(crate) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    pub(crate) fn promote_failures(&self) -> PromoteFailures {
        self.state.lock().promote_failures
    }

    /// Adds a learner and returns it with all members. `unix_seconds` is the time of day, which is part of its id.
    ///
    /// A second voting member is refused: it would leave the cluster without a quorum (CL-3).
    pub(crate) fn add(
        &self,
        raft_index: &RaftIndex,
        peer_urls: &[String],
        is_learner: bool,
        unix_seconds: u64,
    ) -> Result<(ClusterMember, Vec<ClusterMember>), EtcdError> {
        let mut peer_urls: Vec<_> = peer_urls
            .iter()
            .map(|url| peer_url::normalize(url))
            .collect();
        peer_urls.sort_unstable();
        let id = member_id(&peer_urls, unix_seconds);
        let mut state = self.state.lock();
        if state.has_unstarted_voter(self.own_id) {
            return Err(if is_learner {
                EtcdError::Unhealthy
            } else {
                EtcdError::LastMember
            });
        }
        if !is_learner && !state.has_peer_url(&peer_urls, None) {
            return Err(EtcdError::NotEnoughStartedMembers);
        }
        raft_index.advance();
        if state.removed.contains(&id) {
            return Err(EtcdError::MemberNotFound);
        }
        if state.members.contains_key(&id) {
            return Err(EtcdError::MemberExists);
        }
        if state.has_peer_url(&peer_urls, None) {
            return Err(EtcdError::PeerUrlExists);
        }
        let learners = state.members.values().filter(|it| it.is_learner).count();
        if learners >= LEARNERS_MAX {
            return Err(EtcdError::TooManyLearners);
        }
        let added = ClusterMember {
            id,
            peer_urls,
            is_learner,
            ..ClusterMember::default()
        };
        state.members.insert(id, added.clone());
        state.changes += 1;
        let members = state.list();
        drop(state);
        info!(
            "cluster-id" = hex(self.cluster_id),
            "local-member-id" = hex(self.own_id),
            "added-peer-id" = hex(id),
            "added-peer-peer-urls" = ?logged(&added.peer_urls),
            "added member"
        );
        Ok((added, members))
    }

    /// Removes a member and returns the others. This node cannot be removed (CL-5).
    pub(crate) fn remove(
        &self,
        raft_index: &RaftIndex,
        id: u64,
    ) -> Result<Vec<ClusterMember>, EtcdError> {
        if id == self.own_id {
            return Err(EtcdError::LastMember);
        }
        let mut state = self.state.lock();
        raft_index.advance();
        let removed = state.members.remove(&id).ok_or(EtcdError::MemberNotFound)?;
        if state.removed.len() == REMOVED_MAX {
            state.removed.pop_front();
        }
        state.removed.push_back(id);
        state.changes += 1;
        let members = state.list();
        drop(state);
        info!(
            "cluster-id" = hex(self.cluster_id),
            "local-member-id" = hex(self.own_id),
            "removed-remote-peer-id" = hex(id),
            "removed-remote-peer-urls" = ?logged(&removed.peer_urls),
            "removed member"
        );
        Ok(members)
    }

    /// Replaces the peer URLs of a member and returns all members. As in etcd, the URLs of this node are not validated,
    /// and an updated learner is not shown as one any more (CL-6).
    pub(crate) fn update(
        &self,
        raft_index: &RaftIndex,
        id: u64,
        peer_urls: &[String],
    ) -> Result<Vec<ClusterMember>, EtcdError> {
        let mut state = self.state.lock();
        raft_index.advance();
        if !state.members.contains_key(&id) {
            return Err(EtcdError::MemberNotFound);
        }
        if state.has_peer_url(peer_urls, Some(id)) {
            return Err(EtcdError::PeerUrlExists);
        }
        // CL-8: etcd ends.
        if id != self.own_id && !peer_url::are_valid(peer_urls) {
            return Err(EtcdError::BadMemberUrls);
        }
        if let Some(member) = state.members.get_mut(&id) {
            member.peer_urls = peer_urls.to_vec();
            member.is_learner = false;
        }
        state.changes += 1;
        let members = state.list();
        drop(state);
        info!(
            "cluster-id" = hex(self.cluster_id),
            "local-member-id" = hex(self.own_id),
            "updated-remote-peer-id" = hex(id),
            "updated-remote-peer-urls" = ?logged(peer_urls),
            "updated member"
        );
        Ok(members)
    }

    /// Counts a promotion and returns its error (CL-4). Only that of this node, which votes already, is proposed.
    pub(crate) fn promote_error(&self, raft_index: &RaftIndex, id: u64) -> EtcdError {
        let mut state = self.state.lock();
        let is_known = state.members.contains_key(&id);
        let failures = &mut state.promote_failures;
        if id == self.own_id {
            raft_index.advance();
            failures.not_learner += 1;
            EtcdError::MemberNotLearner
        } else if is_known {
            failures.not_ready += 1;
            EtcdError::LearnerNotReady
        } else {
            failures.unknown += 1;
            EtcdError::MemberNotFound
        }
    }
}

impl State {
    fn list(&self) -> Vec<ClusterMember> {
        self.members.values().cloned().collect()
    }

    /// Returns whether a member other than `except` has one of the URLs. They are compared as texts, as in etcd.
    fn has_peer_url(&self, peer_urls: &[String], except: Option<u64>) -> bool {
        let others = self.members.values().filter(|it| Some(it.id) != except);
        let known: HashSet<&String> = others.flat_map(|it| &it.peer_urls).collect();
        peer_urls.iter().any(|url| known.contains(url))
    }

    /// Returns whether an updated learner counts as a voting member, which never starts (CL-6).
    fn has_unstarted_voter(&self, own_id: u64) -> bool {
        let mut members = self.members.values();
        members.any(|it| it.id != own_id && !it.is_learner)
    }
}

/// Returns the id of a new member: the first 8 bytes of the SHA-1 hash of its sorted peer URLs and the time in decimal.
fn member_id(peer_urls: &[String], unix_seconds: u64) -> u64 {
    let mut hash = Sha1::new();
    for url in peer_urls {
        hash.update(url);
    }
    hash.update(unix_seconds.to_string());
    let hash = hash.finalize();
    hash.iter()
        .take(8)
        .fold(0, |id, byte| id << 8 | u64::from(*byte))
}

/// Returns the first URLs, as many as a log line may contain.
fn logged(urls: &[String]) -> &[String] {
    let mut bytes = 0;
    let fitting = urls.iter().take_while(|url| {
        bytes += url.len();
        bytes <= LOGGED_BYTES_MAX
    });
    &urls[..fitting.count()]
}

/// Returns an id as in etcd's log and database.
pub(crate) fn hex(id: u64) -> String {
    format!("{id:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_ID: u64 = 8;

    fn members() -> (Members, RaftIndex) {
        let identity = Identity::new(7, OWN_ID).peer_urls(["http://localhost:2380"]);
        let members = Members::new(&identity, StoredMembers::default());
        (members, RaftIndex::new())
    }

    fn urls(url: &str) -> Vec<String> {
        vec![url.to_owned()]
    }

    /// The id of a learner that was added to etcd 3.5.16 at that second.
    #[test]
    fn dm_11_the_id_of_an_added_member_is_that_of_etcd() {
        let id = member_id(&urls("http://127.0.0.1:9991"), 1_795_405_761);
        assert_eq!(id, 0x26c0_584a_69f4_16fd);
    }

    /// The order of the checks is that of etcd 3.5.16.
    #[test]
    fn cl_3_a_member_that_is_added_again_in_the_same_second_has_the_same_id() {
        let (members, index) = members();
        let url = urls("http://a:1");
        let (added, _) = members.add(&index, &url, true, 1).unwrap();
        let again = members.add(&index, &url, true, 1).unwrap_err();
        assert_eq!(again, EtcdError::MemberExists);
        let later = members.add(&index, &url, true, 2).unwrap_err();
        assert_eq!(later, EtcdError::PeerUrlExists);
        members.remove(&index, added.id).unwrap();
        let removed = members.add(&index, &url, true, 1).unwrap_err();
        assert_eq!(removed, EtcdError::MemberNotFound);
        assert_ne!(members.add(&index, &url, true, 2).unwrap().0.id, added.id);
        assert_eq!(index.get(), 10);
    }

    #[test]
    fn the_urls_in_a_log_line_are_bounded() {
        let urls = vec!["http://a:1".repeat(100); 20];
        assert_eq!(logged(&urls).len(), 16);
    }

    #[test]
    fn the_number_of_removed_ids_is_bounded() {
        let (members, index) = members();
        let ids: Vec<_> = (0..=REMOVED_MAX as u64)
            .map(|now| {
                let (added, _) = members.add(&index, &urls("http://a:1"), true, now).unwrap();
                members.remove(&index, added.id).unwrap();
                added.id
            })
            .collect();
        assert_eq!(members.removed(), ids[1..]);
    }

    /// etcd 3.5.16 ends with a panic, also after a restart.
    #[test]
    fn cl_8_invalid_urls_of_a_learner_are_refused() {
        let (members, index) = members();
        let (added, _) = members.add(&index, &urls("http://a:1"), true, 1).unwrap();
        for invalid in [vec![], urls("z"), urls(" http://a:1")] {
            let error = members.update(&index, added.id, &invalid).unwrap_err();
            assert_eq!(error, EtcdError::BadMemberUrls);
        }
        assert_eq!(members.list()[1..], [added]);
    }

    /// A program that embeds the services may choose other ids than those of its journal.
    #[test]
    fn members_of_another_identity_are_not_restored() {
        let (members, index) = members();
        members.add(&index, &urls("http://a:1"), true, 1).unwrap();
        let stored = || StoredMembers {
            members: members.list(),
            removed: vec![1],
        };
        let restored = |id| Members::new(&Identity::new(7, id), stored());
        assert_eq!(restored(OWN_ID).list()[1], members.list()[1]);
        assert_eq!(restored(OWN_ID).removed(), [1]);
        assert_eq!(restored(9).list().len(), 1);
    }
}
