//! The replacement of the store while clients use it.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use revstore::{
    Server,
    engine::{Clock, Engine, ManualClock, Timed},
};
use revstore_proto::etcdserverpb::{
    WatchCreateRequest, WatchRequest, watch_client::WatchClient, watch_request::RequestUnion,
};
use tonic::transport::Endpoint;

use super::until;
use crate::support::put;

/// A clock that knows how many engines it drives.
#[derive(Clone, Debug, Default)]
struct CountingClock {
    clock: ManualClock,
    followers: Arc<Mutex<Vec<Weak<dyn Timed>>>>,
}

impl CountingClock {
    fn followers(&self) -> usize {
        let mut followers = self.followers.lock().unwrap();
        followers.retain(|it| it.strong_count() > 0);
        followers.len()
    }
}

impl Clock for CountingClock {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn follow(&self, timed: Weak<dyn Timed>) {
        self.followers.lock().unwrap().push(timed.clone());
        self.clock.follow(timed);
    }

    fn recheck(&self) {
        self.clock.recheck();
    }
}

const CLIENTS: usize = 50;
const RESETS: usize = 200;

#[derive(Debug, Default)]
struct Shared {
    puts: AtomicUsize,
    histories: AtomicUsize,
    is_done: AtomicBool,
}

/// Returns a new store whose history begins with its number.
fn store(clock: &CountingClock, number: usize) -> Engine {
    let engine = Engine::builder().clock(clock.clone()).build();
    engine.put("history", number.to_string()).unwrap();
    engine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_watch_shows_events_of_two_histories_while_the_store_is_replaced() {
    let clock = CountingClock::default();
    let server = Server::builder().store(store(&clock, 0)).intercepted();
    let server = server.start().unwrap();
    let before = clock.followers();
    let shared = Arc::new(Shared::default());
    let endpoint = server.endpoint().to_owned();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let channel = Endpoint::new(endpoint.clone()).unwrap().connect_lazy();
        let (shared, writes) = (shared.clone(), channel.clone());
        tasks.spawn(async move {
            while !shared.is_done.load(Ordering::Relaxed) {
                if put(writes.clone(), &format!("c{client}")).await.is_ok() {
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
        assert!(server.replace_store(store(&clock, number)));
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
    assert!(server.replace_store(store(&clock, RESETS + 1)));
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    watches.abort_all();
    while let Some(ended) = watches.join_next().await {
        assert!(ended.unwrap_err().is_cancelled());
    }
    // All stores but the last are free.
    until(|| clock.followers() <= before).await;
    server.stop_async().await;
    until(|| clock.followers() == 0).await;
}

/// Watches everything from the first revision on until the stream ends, and checks that the events are one history.
async fn watch_one_history(channel: tonic::transport::Channel, shared: &Shared) {
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
