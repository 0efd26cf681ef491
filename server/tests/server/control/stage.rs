//! The replacement of the store while clients use it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use revstore::{
    ClockMode, Server,
    engine::{AutoCompaction, Revision},
};
use revstore_control::{Control, clock::ControlClock, store::RestoreOptions};
use revstore_proto::etcdserverpb::{
    PutRequest, WatchCreateRequest, WatchRequest, kv_client::KvClient, watch_client::WatchClient,
    watch_request::RequestUnion,
};
use tonic::transport::{Channel, Endpoint};

use super::until;

/// Returns the number of stores that the clock drives: each has a policy of compaction that is due some time.
fn stores(clock: &ControlClock) -> usize {
    let pending = clock.pending(usize::MAX).work;
    pending.iter().filter(|it| it.kind == "compaction").count()
}

const CLIENTS: usize = 50;
const RESETS: usize = 200;

#[derive(Debug, Default)]
struct Shared {
    puts: AtomicUsize,
    histories: AtomicUsize,
    is_done: AtomicBool,
}

/// Keeps stores whose histories begin with their numbers.
fn keep_stores(server: &Server, control: &Control) {
    for number in 0..=RESETS + 1 {
        control.reset(false).unwrap();
        let engine = server.engine();
        engine.put("history", number.to_string()).unwrap();
        assert_eq!(control.checkpoint(&number.to_string()), Ok(Revision(2)));
    }
}

/// Replaces the store by the one with this number.
fn replace(control: &Control, number: usize) {
    let options = RestoreOptions::default();
    control.restore(&number.to_string(), options).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_watch_shows_events_of_two_histories_while_the_store_is_replaced() {
    let policy = AutoCompaction::Periodic {
        period: Duration::from_secs(3_600),
    };
    let server = Server::builder()
        .auto_compaction(policy)
        .control(ClockMode::Manual);
    let server = server.start().unwrap();
    let control = server.control().unwrap();
    let clock = control.clock().clone();
    keep_stores(&server, control);
    replace(control, 0);
    until(|| stores(&clock) == 1).await;
    let shared = Arc::new(Shared::default());
    let endpoint = server.endpoint().to_owned();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let channel = Endpoint::new(endpoint.clone()).unwrap().connect_lazy();
        let (shared, control) = (shared.clone(), control.clone());
        tasks.spawn(async move {
            while !shared.is_done.load(Ordering::Relaxed) {
                if put_unless_lost(&channel, &format!("c{client}"), &control).await {
                    shared.puts.fetch_add(1, Ordering::Relaxed);
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let mut watches = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let channel = Endpoint::new(endpoint.clone()).unwrap().connect_lazy();
        let shared = shared.clone();
        watches.spawn(async move {
            loop {
                watch_one_history(channel.clone(), &shared).await;
            }
        });
    }
    for number in 1..=RESETS {
        let (puts, seen) = (
            shared.puts.load(Ordering::Relaxed),
            shared.histories.load(Ordering::Relaxed),
        );
        replace(control, number);
        let engine = server.engine();
        let history = engine.get("history").unwrap();
        assert_eq!(history.value(), number.to_string().as_bytes());
        drop((engine, history));
        until(|| {
            shared.puts.load(Ordering::Relaxed) > puts
                && shared.histories.load(Ordering::Relaxed) > seen
        })
        .await;
    }
    shared.is_done.store(true, Ordering::Relaxed);
    replace(control, RESETS + 1);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    watches.abort_all();
    while let Some(ended) = watches.join_next().await {
        assert!(ended.unwrap_err().is_cancelled());
    }
    // All stores but the last are free.
    until(|| stores(&clock) == 1).await;
    server.stop_async().await;
    until(|| stores(&clock) == 0).await;
}

/// The time after which a call without an answer counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// Writes a key, and returns whether it was written.
///
/// A call that the client's library sends at the instant at which its connection ends can stay in the channel to the task
/// of that connection until the next call, without an answer or an error (hyper 1.12 over an unbounded channel of tokio
/// 1.54). So a call without an answer is an error of the server only if the server has a connection of this client.
async fn put_unless_lost(channel: &Channel, name: &str, control: &Control) -> bool {
    let mut request = tonic::Request::new(PutRequest {
        key: name.to_owned().into(),
        ..PutRequest::default()
    });
    (request.metadata_mut()).insert("revstore-client", name.parse().unwrap());
    let mut client = KvClient::new(channel.clone());
    let Ok(answer) = tokio::time::timeout(LOST_AFTER, client.put(request)).await else {
        let open = control.connections();
        let mine = open.iter().find(|it| it.client.as_deref() == Some(name));
        assert!(mine.is_none(), "no answer on {mine:?}");
        return false;
    };
    answer.is_ok()
}

/// Watches everything from the first revision on until the stream ends, and checks that the events are one history.
async fn watch_one_history(channel: Channel, shared: &Shared) {
    let create = WatchCreateRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        start_revision: 2,
        ..WatchCreateRequest::default()
    };
    let (requests, receiver) = tokio::sync::mpsc::channel(1);
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    requests.send(request).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let Ok(response) = WatchClient::new(channel).watch(stream).await else {
        return;
    };
    let mut responses = response.into_inner();
    let mut next = 2;
    while let Ok(Some(response)) = responses.message().await {
        assert!(!response.canceled, "{response:?}");
        for event in response.events {
            let kv = event.kv.unwrap();
            assert_eq!(kv.mod_revision, next, "{kv:?}");
            assert_eq!(kv.key == "history", next == 2, "{kv:?}");
            if next == 2 {
                shared.histories.fetch_add(1, Ordering::Relaxed);
            }
            next += 1;
        }
    }
}

#[test]
fn a_reset_that_keeps_the_revision_uses_no_revision_again() {
    let server = Server::builder().control(ClockMode::Manual);
    let server = server.start().unwrap();
    let control = server.control().unwrap();
    for _ in 0..20 {
        let engine = server.engine();
        let is_over = Arc::new(AtomicBool::new(false));
        let (begun_sender, begun) = std::sync::mpsc::channel();
        let writer = std::thread::spawn({
            let is_over = is_over.clone();
            move || {
                let mut last = engine.current_revision();
                while !is_over.load(Ordering::Relaxed)
                    && let Ok(put) = engine.put("key", "value")
                {
                    last = put.revision;
                    // An error means that nobody waits any longer.
                    let _ = begun_sender.send(());
                }
                last
            }
        });
        begun.recv().unwrap();
        let kept = control.reset(true).unwrap().revision;
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(writer.join().unwrap(), kept);
    }
}
