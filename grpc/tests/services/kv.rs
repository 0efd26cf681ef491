//! The KV service without transactions: sections A to C.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prost::Message as _;
use revstore_grpc::Limits;
use revstore_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use revstore_proto::etcdserverpb::watch_client::WatchClient;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseLeasesRequest, PutRequest,
    RangeRequest, RangeResponse, RangeStreamResponse, StatusRequest, WatchRequest, response_op,
};
use revstore_proto::mvccpb::KeyValue;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use crate::support::{
    CLUSTER_ID, COMPACTED, FUTURE, KEY_NOT_FOUND, LEASE_NOT_FOUND, MEMBER_ID, TestNode,
    assert_error, delete, from_key, get, header, keys, op_get, put, txn_of, watch_of, within,
};

#[tokio::test]
async fn dm_1_dm_20_a_new_store_is_at_revision_1() {
    let found = TestNode::new().range(get("k")).await.unwrap();
    let expected = RangeResponse {
        header: header(1),
        ..RangeResponse::default()
    };
    assert_eq!(found, expected);
}

#[tokio::test]
async fn dm_10_dm_12_headers_contain_cluster_member_revision_and_term() {
    let node = TestNode::new();
    let written = node.put(put("k", "v")).await.unwrap().header;
    let read = node.range(get("k")).await.unwrap().header;
    let decided = node.txn(txn_of(vec![])).await.unwrap().header;
    let deleted = node.kv().delete_range(delete("x", "")).await.unwrap();
    let compaction = CompactionRequest::default();
    let compacted = node.kv().compact(compaction).await.unwrap();
    let leases = node.lease().lease_leases(LeaseLeasesRequest {}).await;
    let status = node.maintenance().status(StatusRequest {}).await;
    for header in [
        written,
        read,
        decided,
        deleted.into_inner().header,
        compacted.into_inner().header,
        leases.unwrap().into_inner().header,
        status.unwrap().into_inner().header,
    ] {
        let header = header.unwrap();
        assert_eq!(
            (header.cluster_id, header.member_id),
            (CLUSTER_ID, MEMBER_ID)
        );
        assert_eq!((header.raft_term, header.revision), (2, 2));
    }
}

#[tokio::test]
async fn dm_3_dm_21_put_updates_mod_revision_and_version() {
    let node = TestNode::new();
    for (value, revision) in [("1", 2), ("1", 3)] {
        let response = node.put(put("k", value)).await.unwrap();
        assert_eq!(
            (response.header, response.prev_kv),
            (header(revision), None)
        );
    }
    let found = node.range(get("k")).await.unwrap();
    let kv = KeyValue {
        key: "k".into(),
        value: "1".into(),
        create_revision: 2,
        mod_revision: 3,
        version: 2,
        lease: 0,
    };
    assert_eq!((found.kvs, found.count, found.more), (vec![kv], 1, false));
}

#[tokio::test]
async fn rg_1_to_5_a_range_is_one_key_an_interval_or_all_keys_from_a_start() {
    let node = TestNode::new();
    node.fill(["a", "b", "c"]);
    for (request, expected) in [
        (get("b"), &["b"][..]),
        (within("a", "c"), &["a", "b"]),
        (from_key("b"), &["b", "c"]),
        (from_key("\0"), &["a", "b", "c"]),
        (within("c", "a"), &[]),
        (within("b", "b"), &[]),
    ] {
        let found = node.range(request).await.unwrap();
        assert_eq!(keys(&found), expected);
        assert_eq!(usize::try_from(found.count), Ok(expected.len()));
    }
}

#[tokio::test]
async fn rg_10_to_13_revisions_from_compacted_to_current_are_readable() {
    let node = TestNode::new();
    for value in ["1", "2", "3"] {
        node.put(put("k", value)).await.unwrap();
    }
    compact(&node, 3, true).await.unwrap();
    let at = |revision| RangeRequest {
        revision,
        ..get("k")
    };
    for (revision, expected) in [(0, "3"), (-1, "3"), (i64::MIN, "3"), (4, "3"), (3, "2")] {
        let found = node.range(at(revision)).await.unwrap();
        assert_eq!(found.header, header(4), "DM-20");
        assert_eq!(found.kvs[0].value, expected);
    }
    assert_error(node.range(at(2)).await, COMPACTED);
    assert_error(node.range(at(5)).await, FUTURE);
    assert_error(node.range(at(i64::MAX)).await, FUTURE);
    let count = RangeRequest {
        count_only: true,
        revision: 1,
        ..get("never")
    };
    assert_error(node.range(count).await, COMPACTED);
}

#[tokio::test]
async fn rg_20_to_24_limit_applies_to_the_returned_pairs_and_not_to_count() {
    let node = TestNode::new();
    node.fill(["a", "b", "c"]);
    for (limit, expected, more) in [
        (0, 3, false),
        (-5, 3, false),
        (3, 3, false),
        (2, 2, true),
        (i64::MAX, 3, false),
    ] {
        let request = RangeRequest {
            limit,
            ..from_key("a")
        };
        let found = node.range(request).await.unwrap();
        assert_eq!(
            (found.kvs.len(), found.more, found.count),
            (expected, more, 3)
        );
    }
    let count = RangeRequest {
        count_only: true,
        limit: 1,
        ..from_key("a")
    };
    let found = node.range(count).await.unwrap();
    assert_eq!((found.kvs.len(), found.more, found.count), (0, false, 3));
    let keys_only = RangeRequest {
        keys_only: true,
        ..from_key("a")
    };
    let found = node.range(keys_only).await.unwrap();
    assert!(
        found
            .kvs
            .iter()
            .all(|kv| kv.value.is_empty() && kv.version == 1)
    );
}

#[tokio::test]
async fn rg_25_keys_only_keeps_the_lease() {
    let node = TestNode::new();
    let lease = node.engine.grant(None, 60).unwrap().id.get();
    let attached = PutRequest {
        lease,
        ..put("k", "v")
    };
    node.put(attached).await.unwrap();
    let keys_only = RangeRequest {
        keys_only: true,
        ..get("k")
    };
    let found = node.range(keys_only).await.unwrap();
    assert_eq!((found.kvs[0].lease, found.kvs[0].value.len()), (lease, 0));
}

#[tokio::test]
async fn rg_30_rg_40_to_42_sorting_and_filters_apply_before_the_limit() {
    let node = TestNode::new();
    for (key, value) in [("a", "2"), ("b", "3"), ("c", "1")] {
        node.put(put(key, value)).await.unwrap();
    }
    let all = || from_key("a");
    let sorted = |target: SortTarget, order: SortOrder| RangeRequest {
        sort_target: target.into(),
        sort_order: order.into(),
        ..all()
    };
    for (request, expected) in [
        (
            sorted(SortTarget::Value, SortOrder::Ascend),
            &["c", "a", "b"][..],
        ),
        (sorted(SortTarget::Value, SortOrder::None), &["c", "a", "b"]),
        (
            sorted(SortTarget::Key, SortOrder::Descend),
            &["c", "b", "a"],
        ),
        (
            sorted(SortTarget::Mod, SortOrder::Descend),
            &["c", "b", "a"],
        ),
        (
            sorted(SortTarget::Version, SortOrder::Descend),
            &["a", "b", "c"],
        ),
        (
            RangeRequest {
                limit: 1,
                keys_only: true,
                ..sorted(SortTarget::Value, SortOrder::Descend)
            },
            &["b"],
        ),
        (
            RangeRequest {
                min_mod_revision: 3,
                limit: 1,
                ..all()
            },
            &["b"],
        ),
        (
            RangeRequest {
                max_create_revision: 3,
                ..all()
            },
            &["a", "b"],
        ),
        (
            RangeRequest {
                min_create_revision: i64::MIN,
                ..all()
            },
            &["a", "b", "c"],
        ),
        (
            RangeRequest {
                max_mod_revision: -1,
                ..all()
            },
            &[],
        ),
    ] {
        let found = node.range(request).await.unwrap();
        assert_eq!(keys(&found), expected);
        assert_eq!(found.count, 3, "RG-21");
    }
}

/// Returns all messages of a stream and its status.
async fn stream(
    node: &TestNode,
    request: RangeRequest,
) -> (Vec<RangeResponse>, Result<(), Status>) {
    let mut stream = match node.kv().range_stream(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return (Vec::new(), Err(status)),
    };
    let mut messages = Vec::new();
    while let Some(next) = stream.next().await {
        match next {
            Ok(RangeStreamResponse { range_response }) => messages.push(range_response.unwrap()),
            Err(status) => return (messages, Err(status)),
        }
    }
    (messages, Ok(()))
}

#[tokio::test]
async fn rg_60_to_64_the_chunks_of_a_stream_add_up_to_the_range_response() {
    let node = TestNode::new();
    node.fill((0..500).map(|number| format!("k{number:03}")));
    for request in [
        from_key("k"),
        within("k1", "k2"),
        get("k007"),
        get("none"),
        within("z", "a"),
        RangeRequest {
            limit: 10,
            ..from_key("k")
        },
        RangeRequest {
            limit: 33,
            ..from_key("k")
        },
        RangeRequest {
            limit: 500,
            keys_only: true,
            ..from_key("k")
        },
        RangeRequest {
            revision: 300,
            ..from_key("k")
        },
        RangeRequest {
            count_only: true,
            ..from_key("k")
        },
        RangeRequest {
            sort_target: SortTarget::Value.into(),
            ..within("k1", "k2")
        },
        RangeRequest {
            sort_order: SortOrder::Ascend.into(),
            ..within("k1", "k2")
        },
    ] {
        let (messages, end) = stream(&node, request.clone()).await;
        end.unwrap();
        let (last, others) = messages.split_last().unwrap();
        assert!(others.iter().all(|chunk| {
            chunk.header.is_none() && !chunk.more && chunk.count == 0 && !chunk.kvs.is_empty()
        }));
        assert!(messages.iter().all(|chunk| chunk.kvs.len() <= 320), "RG-63");
        let kvs = messages.iter().flat_map(|chunk| chunk.kvs.clone());
        let merged = RangeResponse {
            kvs: kvs.collect(),
            ..last.clone()
        };
        assert_eq!(merged, node.range(request).await.unwrap());
    }
}

#[tokio::test]
async fn rg_62_a_stream_does_not_include_later_writes() {
    let node = TestNode::new();
    // The values are so large that the transport does not read ahead of the client.
    for key in 0..100 {
        node.engine
            .put(format!("k{key:02}"), vec![b'v'; 10_000])
            .unwrap();
    }
    let mut chunks = node
        .kv()
        .range_stream(from_key("k"))
        .await
        .unwrap()
        .into_inner();
    let mut keys = chunks
        .next()
        .await
        .unwrap()
        .unwrap()
        .range_response
        .unwrap()
        .kvs
        .len();
    node.fill(["k050", "k999"]);
    let mut last = None;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.unwrap().range_response.unwrap();
        keys += chunk.kvs.len();
        last = chunk.header;
    }
    assert_eq!((keys, last), (100, header(101)));
}

#[tokio::test]
async fn rg_63_chunks_of_large_values_contain_fewer_pairs() {
    let node = TestNode::with_limits(Limits::default().request_bytes_max(10_000));
    for key in 0..100 {
        node.engine
            .put(format!("k{key:02}"), vec![b'v'; 5000])
            .unwrap();
    }
    let (messages, end) = stream(&node, from_key("k")).await;
    end.unwrap();
    let sizes: Vec<_> = messages.iter().map(|chunk| chunk.kvs.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 100);
    assert_eq!(sizes[..4], [10, 5, 2, 2]);
}

/// Values that grow from one key to the next.
#[tokio::test]
async fn the_chunks_of_a_stream_are_bounded() {
    const REQUEST_BYTES_MAX: usize = 10_000;
    let node = TestNode::with_limits(Limits::default().request_bytes_max(REQUEST_BYTES_MAX));
    for key in 0..12_000 {
        let value = if key < 300 { 0 } else { 9_000 };
        let value = vec![b'v'; if key < 400 { value } else { 0 }];
        node.engine.put(format!("k{key:05}"), value).unwrap();
    }
    let (messages, end) = stream(&node, from_key("k")).await;
    end.unwrap();
    for message in &messages {
        assert!(message.encoded_len() < 5 * REQUEST_BYTES_MAX);
    }
    let keys: usize = messages.iter().map(|chunk| chunk.kvs.len()).sum();
    assert_eq!(keys, 12_000);
    let node = TestNode::new();
    for key in 0..20_000 {
        node.engine.put(format!("k{key:05}"), "").unwrap();
    }
    let (messages, end) = stream(&node, from_key("k")).await;
    end.unwrap();
    let largest = messages.iter().map(|chunk| chunk.kvs.len()).max();
    assert_eq!(largest, Some(5_120));
}

#[tokio::test]
async fn other_tasks_run_between_the_large_chunks_of_a_stream() {
    let node = TestNode::new();
    for key in 0..20_000 {
        node.engine.put(format!("k{key:05}"), "").unwrap();
    }
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let (messages, end) = stream(&node, from_key("k")).await;
    end.unwrap();
    // Chunks of less than 32 KiB are sent together.
    let large = messages.iter().filter(|it| it.encoded_len() > 32 * 1024);
    let large = large.count();
    assert!(large > 2 && turns.load(Ordering::Relaxed) >= large - 1);
    other.abort();
}

#[tokio::test]
async fn rg_65_streams_with_a_sort_order_or_filter_are_rejected() {
    let node = TestNode::new();
    let sorted = RangeRequest {
        sort_order: SortOrder::Descend.into(),
        ..get("k")
    };
    let filtered = RangeRequest {
        max_mod_revision: 1,
        ..get("k")
    };
    let sorting = "RangeStream does not support custom sort orders";
    let filtering = "RangeStream does not support revision filters";
    assert_error(
        stream(&node, sorted).await.1,
        (Code::Unimplemented, sorting),
    );
    assert_error(
        stream(&node, filtered).await.1,
        (Code::Unimplemented, filtering),
    );
}

#[tokio::test]
async fn rg_66_a_compaction_above_its_revision_ends_a_stream() {
    let node = TestNode::new();
    // The values are so large that the transport does not read ahead of the client.
    for key in 0..100 {
        node.engine
            .put(format!("k{key:02}"), vec![b'v'; 10_000])
            .unwrap();
    }
    let mut chunks = node
        .kv()
        .range_stream(from_key("k"))
        .await
        .unwrap()
        .into_inner();
    chunks.next().await.unwrap().unwrap();
    node.fill(["k"]);
    compact(&node, node.revision(), true).await.unwrap();
    let mut error = None;
    while let Some(chunk) = chunks.next().await {
        error = chunk.err();
    }
    assert_error(error.map_or(Ok(()), Err), COMPACTED);
}

#[tokio::test]
async fn put_2_prev_kv_returns_the_previous_pair() {
    let node = TestNode::new();
    let with_prev = |value| PutRequest {
        prev_kv: true,
        ..put("k", value)
    };
    assert_eq!(node.put(with_prev("1")).await.unwrap().prev_kv, None);
    let previous = node.put(with_prev("2")).await.unwrap().prev_kv.unwrap();
    assert_eq!((&previous.value[..], previous.mod_revision), (&b"1"[..], 2));
    assert_eq!(node.put(put("k", "3")).await.unwrap().prev_kv, None);
}

#[tokio::test]
async fn put_4_put_5_ignore_flags_keep_the_value_and_the_lease() {
    let node = TestNode::new();
    let touch = |key| PutRequest {
        ignore_value: true,
        ignore_lease: true,
        ..put(key, "")
    };
    assert_error(node.put(touch("k")).await, KEY_NOT_FOUND);
    let lease = node.engine.grant(None, 60).unwrap().id.get();
    let attached = PutRequest {
        lease,
        ..put("k", "v")
    };
    node.put(attached).await.unwrap();
    node.put(touch("k")).await.unwrap();
    let kv = node.range(get("k")).await.unwrap().kvs.remove(0);
    assert_eq!((&kv.value[..], kv.lease, kv.version), (&b"v"[..], lease, 2));
    assert_eq!(node.revision(), 3);
}

#[tokio::test]
async fn put_6_an_unknown_lease_is_reported_before_an_absent_key() {
    let node = TestNode::new();
    for lease in [77, -3, i64::MIN] {
        let request = PutRequest {
            lease,
            ignore_value: true,
            ..put("k", "")
        };
        assert_error(node.put(request).await, LEASE_NOT_FOUND);
    }
    assert_eq!(node.revision(), 1);
}

#[tokio::test]
async fn del_1_del_2_a_range_is_deleted_at_one_revision() {
    let node = TestNode::new();
    node.fill(["a", "b", "c"]);
    let with_prev = DeleteRangeRequest {
        prev_kv: true,
        ..delete("a", "c")
    };
    let response = node
        .kv()
        .delete_range(with_prev)
        .await
        .unwrap()
        .into_inner();
    let deleted: Vec<_> = response.prev_kvs.iter().map(|kv| &kv.key[..]).collect();
    assert_eq!((response.deleted, response.header), (2, header(5)));
    assert_eq!(deleted, [b"a", b"b"]);
    for request in [delete("a", "c"), delete("z", "a")] {
        let response = node.kv().delete_range(request).await.unwrap().into_inner();
        assert_eq!(
            (response.deleted, response.header),
            (0, header(5)),
            "DM-8, RG-5"
        );
    }
    let response = node
        .kv()
        .delete_range(delete("\0", "\0"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (response.deleted, response.prev_kvs.len(), response.header),
        (1, 0, header(6))
    );
}

async fn compact(node: &TestNode, revision: i64, physical: bool) -> Result<(), Status> {
    let request = CompactionRequest { revision, physical };
    let response = node.kv().compact(request).await?.into_inner();
    assert_eq!(response.header, header(node.revision()), "DM-25");
    Ok(())
}

#[tokio::test]
async fn co_1_to_3_compaction_moves_forward_up_to_the_current_revision() {
    let node = TestNode::new();
    assert_error(compact(&node, 2, false).await, FUTURE);
    assert_error(compact(&node, -1, false).await, COMPACTED);
    compact(&node, 0, false).await.unwrap();
    assert_error(compact(&node, 0, false).await, COMPACTED);
    compact(&node, 1, false).await.unwrap();
    node.fill(["a", "b"]);
    compact(&node, 3, false).await.unwrap();
    for revision in [3, 2, 0, -1, i64::MIN] {
        assert_error(compact(&node, revision, true).await, COMPACTED);
    }
    assert_error(compact(&node, i64::MAX, true).await, FUTURE);
    assert_eq!(node.revision(), 3, "CO-7");
}

#[tokio::test]
async fn co_6_a_physical_compaction_returns_after_the_memory_is_reclaimed() {
    let node = TestNode::new();
    node.fill(["k"; 100]);
    let before = node.engine.stats().history_bytes;
    compact(&node, node.revision(), true).await.unwrap();
    assert_eq!(node.engine.stats().history_bytes, before / 100);
}

/// Existing clients send both metadata keys with each request, also for methods that do not need a
/// leader.
#[tokio::test]
async fn li_8_metadata_of_existing_clients_is_accepted() {
    fn with_metadata<T>(message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        metadata.insert("client-api-version", MetadataValue::from_static("3.5"));
        request
    }
    let node = TestNode::new();
    node.kv().put(with_metadata(put("k", "v"))).await.unwrap();
    node.kv().range(with_metadata(get("k"))).await.unwrap();
    let grant = LeaseGrantRequest { id: 7, ttl: 60 };
    node.lease()
        .lease_grant(with_metadata(grant))
        .await
        .unwrap();
    let status = with_metadata(StatusRequest {});
    node.maintenance().status(status).await.unwrap();
    let create = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(watch_of("k", ""))),
    };
    let requests = with_metadata(tokio_stream::iter([create]));
    let mut watch = WatchClient::new(node.services.clone());
    let mut responses = watch.watch(requests).await.unwrap().into_inner();
    assert!(responses.next().await.unwrap().unwrap().created);
}

#[tokio::test]
async fn li_3_values_of_any_size_are_returned_unchanged() {
    let node = TestNode::new();
    for length in [0, 1, 1024, 1025, 1_000_000] {
        let value = vec![b'v'; length];
        let request = PutRequest {
            key: "k".into(),
            value: value.clone().into(),
            ..PutRequest::default()
        };
        node.put(request).await.unwrap();
        assert_eq!(node.range(get("k")).await.unwrap().kvs[0].value, value);
    }
}

/// The response is larger than the request size limit and than the default limit of many clients.
#[tokio::test]
async fn li_3_responses_have_no_size_limit() {
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let node = TestNode::new();
    for key in KEYS {
        let request = PutRequest {
            key: key.into(),
            value: vec![b'v'; 1_000_000].into(),
            ..PutRequest::default()
        };
        node.put(request).await.unwrap();
    }
    let all = || within("a", "z");
    let complete = |kvs: &[KeyValue]| {
        let bytes: usize = kvs.iter().map(|kv| kv.value.len()).sum();
        (kvs.len(), bytes) == (KEYS.len(), 6_000_000)
    };
    assert!(complete(&node.range(all()).await.unwrap().kvs));
    let mut response = node.txn(txn_of(vec![op_get(all())])).await.unwrap();
    let found = response.responses.remove(0).response;
    let Some(response_op::Response::ResponseRange(found)) = found else {
        panic!("expected a range response, got {found:?}");
    };
    assert!(complete(&found.kvs));
}
