//! Attacks on the learner of a server with `--persist`: the largest lists of peer URLs, and a killed process.

use std::net::SocketAddr;

use revstore_proto::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberRemoveRequest, MemberUpdateRequest,
    cluster_client::ClusterClient,
};
use tonic::{Code, transport::Channel};

use crate::{
    persist::{range, start},
    support::{block_on, connect, put},
};

/// About 900 KB of URLs, in order.
fn many_urls(host: &str) -> Vec<String> {
    let urls = (0..30_000).map(|number| format!("http://{host}-{number:05}.example:2380"));
    urls.collect()
}

/// One URL of the same size.
fn long_url() -> String {
    format!("http://{}:2380", "h".repeat(900_000))
}

async fn cluster(address: SocketAddr) -> ClusterClient<Channel> {
    let client = ClusterClient::new(connect(address).await);
    client.max_decoding_message_size(usize::MAX)
}

/// Returns the member that is not this one.
async fn other(address: SocketAddr) -> Option<Member> {
    let list = MemberListRequest::default();
    let listed = cluster(address).await.member_list(list).await.unwrap();
    let own = listed.get_ref().header.unwrap().member_id;
    let mut members = listed.into_inner().members.into_iter();
    members.find(|member| member.id != own)
}

fn learner(peer_ur_ls: Vec<String>) -> MemberAddRequest {
    MemberAddRequest {
        peer_ur_ls,
        is_learner: true,
    }
}

#[test]
fn cl_7_a_learner_with_900_kb_of_urls_is_there_after_each_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (process, address) = start(dir.path(), &[]);
    let urls = many_urls("first");
    let added = block_on(async {
        let mut cluster = cluster(address).await;
        let too_large = [urls.clone(), urls.clone(), urls.clone()].concat();
        let refused = cluster.member_add(learner(too_large)).await.unwrap_err();
        assert!(
            matches!(
                refused.code(),
                Code::ResourceExhausted | Code::InvalidArgument
            ),
            "{refused:?}"
        );
        let added = cluster.member_add(learner(urls.clone())).await;
        added.unwrap().into_inner().member.unwrap()
    });
    assert!(added.is_learner && added.peer_ur_ls == urls);
    process.signal("KILL");
    process.wait();

    let (process, address) = start(dir.path(), &[]);
    let updated = many_urls("second");
    block_on(async {
        assert!(other(address).await.as_ref() == Some(&added));
        let update = MemberUpdateRequest {
            id: added.id,
            peer_ur_ls: updated.clone(),
        };
        cluster(address).await.member_update(update).await.unwrap();
    });
    process.signal("KILL");
    process.wait();

    let (process, address) = start(dir.path(), &[]);
    let long = block_on(async {
        let learner_now = other(address).await.unwrap();
        assert!(learner_now.id == added.id && learner_now.peer_ur_ls == updated);
        let mut cluster = cluster(address).await;
        let remove = MemberRemoveRequest { id: added.id };
        cluster.member_remove(remove).await.unwrap();
        let long = cluster.member_add(learner(vec![long_url()])).await;
        long.unwrap().into_inner().member.unwrap()
    });
    process.signal("KILL");
    process.wait();

    let (_process, address) = start(dir.path(), &[]);
    block_on(async {
        assert!(other(address).await == Some(long));
        // The removed id stays removed, and the store accepts writes.
        let update = MemberUpdateRequest {
            id: added.id,
            peer_ur_ls: updated,
        };
        let removed = cluster(address).await.member_update(update).await;
        assert_eq!(removed.unwrap_err().code(), Code::NotFound);
        let channel = connect(address).await;
        put(channel.clone(), "a").await.unwrap();
        assert_eq!(range(&channel, "a", 0).await.unwrap().len(), 1);
    });
}

/// Each removal and each addition is acknowledged before the process is killed at once.
#[test]
fn cl_7_a_removed_learner_does_not_come_back_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let (process, address) = start(dir.path(), &[]);
        block_on(async {
            assert_eq!(other(address).await, None);
            let mut cluster = cluster(address).await;
            let url = format!("http://round-{round}:2380");
            let added = cluster.member_add(learner(vec![url])).await.unwrap();
            let id = added.into_inner().member.unwrap().id;
            let remove = MemberRemoveRequest { id };
            cluster.member_remove(remove).await.unwrap();
        });
        process.signal("KILL");
        process.wait();
    }
}
