//! The promises of watches (I5, I6) while they are held, released, cut and canceled at random.

use std::collections::HashMap;

use revstore::engine::Engine;
use revstore_control::{
    fault::{Action, Trigger},
    open::WatchCommand,
};
use revstore_proto::etcdserverpb::{
    WatchCreateRequest, WatchProgressRequest, watch_request::RequestUnion,
};

use super::{Controlled, WatchClientStream, method};

const STEPS: usize = 400;

/// The next revision that each watch of a stream expects, and what it saw.
#[derive(Debug, Default)]
struct Seen {
    /// By the id of a watch: its prefix, and the revision up to which it got everything.
    watches: HashMap<i64, (String, i64)>,
    /// The watches whose creation was requested.
    requested: HashMap<i64, (String, i64)>,
}

impl Seen {
    /// Checks that a response keeps the promises. Returns the canceled watch.
    fn check(
        &mut self,
        engine: &Engine,
        response: &revstore_proto::etcdserverpb::WatchResponse,
    ) -> Option<i64> {
        let id = response.watch_id;
        let revision = response.header.as_ref().unwrap().revision;
        if response.canceled {
            assert!(response.compact_revision > 0, "{response:?}");
            self.watches.remove(&id).expect("an open watch");
            return Some(id);
        }
        if response.events.is_empty() {
            // I6: progress, for one watch or all.
            for (watch, (prefix, seen)) in &mut self.watches {
                if id == -1 || id == *watch {
                    let missed = revisions(engine, prefix, *seen + 1, revision);
                    assert_eq!(
                        missed,
                        Vec::<i64>::new(),
                        "progress at {revision} of {watch}"
                    );
                    *seen = (*seen).max(revision);
                }
            }
            return None;
        }
        // I5: each event once, in order, without a gap.
        let (prefix, seen) = self.watches.get_mut(&id).expect("an open watch");
        let got: Vec<i64> = response
            .events
            .iter()
            .map(|event| event.kv.as_ref().unwrap().mod_revision)
            .collect();
        let last = *got.last().unwrap();
        assert_eq!(
            got,
            revisions(engine, prefix, *seen + 1, last),
            "watch {id}"
        );
        *seen = last;
        None
    }
}

/// Returns the revisions in a range at which keys with a prefix were put. The key of a put contains its revision.
fn revisions(engine: &Engine, prefix: &str, from: i64, to: i64) -> Vec<i64> {
    (from..=to)
        .filter(|revision| engine.get(format!("{prefix}{revision}")).is_some())
        .collect()
}

async fn run(number: u64) {
    let controlled = Controlled::start();
    let engine = controlled.server.engine();
    let channel = controlled.connect().await;
    let mut random = fastrand::Rng::with_seed(number);
    let mut stream = WatchClientStream::open(channel.clone()).await;
    let mut seen = Seen::default();
    let prefixes = ["a/", "b/", "c/"];
    for prefix in prefixes {
        let id = stream.create(prefix, 1).await;
        seen.watches.insert(id, (prefix.to_owned(), 0));
    }
    let open = &controlled.inner.open;
    for _ in 0..STEPS {
        let current = engine.current_revision().0;
        let watches = open.watches(current);
        let id = (!watches.is_empty()).then(|| watches[random.usize(..watches.len())].id);
        match random.u8(..20) {
            0..10 => {
                let prefix = prefixes[random.usize(..prefixes.len())];
                engine.put(format!("{prefix}{}", current + 1), "x").unwrap();
            }
            // Watches may have ended meanwhile.
            10..12 => drop(open.command(id, WatchCommand::Hold)),
            12..14 => drop(open.command(id, WatchCommand::Release)),
            14 => drop(open.command(id, WatchCommand::Bookmark)),
            15 if id.is_some() => drop(open.command(id, WatchCommand::CancelCompacted)),
            16 => {
                let progress = RequestUnion::ProgressRequest(WatchProgressRequest {});
                stream.send(progress).await;
            }
            17 => {
                let trigger = Trigger::Probability {
                    probability: 0.3,
                    seed: random.u64(..),
                };
                let action = if random.bool() {
                    Action::Hold
                } else {
                    Action::CancelCompacted
                };
                controlled.add(method("Watch"), trigger, action);
            }
            18 => drop(controlled.inner.rules.clear(None)),
            _ => {
                // Reads what is there.
                let short = std::time::Duration::from_millis(1);
                while let Ok(Ok(Some(response))) =
                    tokio::time::timeout(short, stream.responses.message()).await
                {
                    follow_up(&mut stream, &mut seen, &engine, response).await;
                }
            }
        }
    }
    // In the end each watch gets everything.
    controlled.inner.rules.clear(None).unwrap();
    open.command(None, WatchCommand::Release).unwrap();
    let last = engine.current_revision().0;
    while seen.watches.len() < prefixes.len()
        || seen
            .watches
            .values()
            .any(|(prefix, seen)| !revisions(&engine, prefix, *seen + 1, last).is_empty())
    {
        let response = stream.next().await;
        follow_up(&mut stream, &mut seen, &engine, response).await;
    }
}

/// Checks a response. A watch that was canceled is created again from where it was.
async fn follow_up(
    stream: &mut WatchClientStream,
    seen: &mut Seen,
    engine: &Engine,
    response: revstore_proto::etcdserverpb::WatchResponse,
) {
    if response.created {
        assert!(!response.canceled, "{response:?}");
        let requested = seen.requested.remove(&response.watch_id);
        (seen.watches).insert(response.watch_id, requested.expect("a request"));
        return;
    }
    let open = seen.watches.get(&response.watch_id).cloned();
    let Some(id) = seen.check(engine, &response) else {
        return;
    };
    let (prefix, position) = open.unwrap();
    let mut end = prefix.clone().into_bytes();
    *end.last_mut().unwrap() += 1;
    let create = WatchCreateRequest {
        key: prefix.clone().into(),
        range_end: end.into(),
        start_revision: position + 1,
        watch_id: id + 100,
        ..WatchCreateRequest::default()
    };
    stream.send(RequestUnion::CreateRequest(create)).await;
    seen.requested.insert(id + 100, (prefix, position));
}

#[tokio::test]
async fn i5_i6_watches_keep_their_promises_while_they_are_held_and_canceled_at_random() {
    for seed in 0..20 {
        run(seed).await;
    }
}
