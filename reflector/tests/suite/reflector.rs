//! T-59, T-60: the reflector against a server that answers by script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::stream;
use revstore_reflector::{
    ListWatch, Object, Reflector, ReflectorEvent, ReflectorMode, StorageListWatch,
};
use revstore_watch_cache::{
    EventStream, EventType, Expired, List, ListOptions, ManualClock, RequestError, Revision, Scope,
    Selector, SharedEvent, Storage, WatchEvent, WatchOptions,
};

use crate::support::{Fixture, poll_once};

/// What the server answers next.
enum Answer {
    /// A list of these, of this revision, and whether there is a next page.
    List(Vec<Object>, i64, bool),
    /// A watch that tells these; then it ends, or stays open.
    Watch(Vec<WatchEvent>, bool),
    Error(RequestError),
}

#[derive(Default)]
struct Script {
    answers: VecDeque<Answer>,
    /// What was asked, in words.
    asked: Vec<String>,
}

/// A server that answers by script.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Script>>);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl Server {
    fn answer(&self, asked: String) -> Answer {
        let mut script = self.0.lock().unwrap();
        script.asked.push(asked.clone());
        script
            .answers
            .pop_front()
            .unwrap_or_else(|| panic!("no answer left for {asked}"))
    }

    fn then(&self, answers: impl IntoIterator<Item = Answer>) {
        self.0.lock().unwrap().answers.extend(answers);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }
}

impl ListWatch for Server {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<List, RequestError>> {
        let (version, limit) = (&options.resource_version, options.limit);
        let token = if options.continue_token.is_empty() {
            ""
        } else {
            " continue"
        };
        let answer = match self.answer(format!("list {version:?} {limit}{token}")) {
            Answer::List(objects, revision, more) => Ok(page(&objects, revision, more)),
            Answer::Error(error) => Err(error),
            Answer::Watch(..) => panic!("a list was asked for"),
        };
        Box::pin(futures_util::future::ready(answer))
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        let timeout = options.timeout.unwrap();
        assert!((300..600).contains(&timeout.as_secs()) && options.allow_bookmarks);
        let initial = if options.send_initial_events == Some(true) {
            " initial"
        } else {
            ""
        };
        let asked = format!("watch {:?}{initial}", options.resource_version);
        let answer = match self.answer(asked) {
            Answer::Watch(events, open) => {
                let events = stream::iter(events);
                use futures_util::StreamExt as _;
                Ok(if open {
                    Box::pin(events.chain(stream::pending())) as EventStream
                } else {
                    Box::pin(events) as EventStream
                })
            }
            Answer::Error(error) => Err(error),
            Answer::List(..) => panic!("a watch was asked for"),
        };
        Box::pin(futures_util::future::ready(answer))
    }
}

fn page(objects: &[Object], revision: i64, more: bool) -> List {
    let mut list = List::from_objects(Revision(revision), objects);
    list.continue_token = more.then(|| "next".into());
    list
}

fn objects(names: &[&str]) -> Vec<Object> {
    let fixture = Fixture::new();
    for name in names {
        fixture.put_pod(&format!("ns/{name}"));
    }
    let list = fixture.wait(fixture.pods.list(&Scope::All, &ListOptions::default()));
    list.unwrap().into_objects().unwrap()
}

fn added(object: &Object) -> WatchEvent {
    WatchEvent::Object {
        event: EventType::Added,
        object: object.clone(),
        shared: SharedEvent::default(),
    }
}

fn bookmark(revision: i64, end: bool) -> WatchEvent {
    WatchEvent::Bookmark {
        revision: Revision(revision),
        initial_events_end: end,
    }
}

fn gone() -> RequestError {
    RequestError::Expired(Expired::Watch)
}

fn too_large() -> RequestError {
    RequestError::TooLarge {
        asked: Revision(9),
        current: Revision(1),
    }
}

struct Bench {
    server: Server,
    clock: ManualClock,
    reflector: Reflector,
}

impl Bench {
    fn new(mode: ReflectorMode, resume: Option<i64>) -> Self {
        let (server, clock) = (Server::default(), ManualClock::new());
        let builder = Reflector::builder(Arc::new(server.clone()))
            .clock(Arc::new(clock.clone()))
            .seed(1)
            .mode(mode);
        let builder = match resume {
            Some(revision) => builder.resume_after(Revision(revision)),
            None => builder,
        };
        Self {
            server,
            clock,
            reflector: builder.build(),
        }
    }

    /// What is told now, in words, until the reflector waits.
    fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Poll::Ready(event) = poll_once(self.reflector.next()) {
            told.push(match event {
                ReflectorEvent::Init => "init".into(),
                ReflectorEvent::InitApply(object) => format!("init {}", object.name()),
                ReflectorEvent::InitDone(revision) => format!("done {revision}"),
                ReflectorEvent::Apply(object) => format!("apply {}", object.name()),
                ReflectorEvent::Delete(object) => format!("delete {}", object.name()),
                ReflectorEvent::Bookmark(revision) => format!("bookmark {revision}"),
                ReflectorEvent::BookmarkOverdue(age) => format!("overdue {}", age.as_secs()),
                ReflectorEvent::Failed(error) => format!("failed {}", error.code()),
                _ => unreachable!("a new event"),
            });
        }
        told
    }

    fn pause(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

#[test]
fn t_59_list_watch_watch_again_without_a_second_list() {
    let pods = objects(&["a", "b"]);
    let mut bench = Bench::new(ReflectorMode::ListWatch, None);
    bench.server.then([
        Answer::List(pods[..1].to_vec(), 5, false),
        Answer::Watch(vec![added(&pods[1]), bookmark(70, false)], false),
        Answer::Watch(vec![], true),
    ]);
    assert_eq!(
        bench.told(),
        ["init", "init a", "done 5", "apply b", "bookmark 70"]
    );
    assert_eq!(
        bench.server.asked(),
        ["list \"0\" 500", "watch \"5\"", "watch \"70\""]
    );
    assert_eq!(bench.reflector.last_revision(), Some(Revision(70)));
}

#[test]
fn t_59_after_410_a_list_at_the_last_revision_and_then_at_the_most_recent() {
    let mut bench = Bench::new(ReflectorMode::ListWatch, None);
    bench.server.then([
        Answer::List(vec![], 5, false),
        Answer::Watch(vec![WatchEvent::Error(gone())], false),
    ]);
    assert_eq!(bench.told(), ["init", "done 5", "failed 410"]);
    bench.server.asked();
    bench.server.then([
        Answer::Error(too_large()),
        Answer::List(vec![], 3, false),
        Answer::Watch(vec![], true),
    ]);
    assert!(bench.told().is_empty(), "it waits before it lists again");
    bench.pause(2);
    assert_eq!(bench.told(), ["failed 504", "init", "done 3"]);
    // No pages at a version; pages at the most recent state.
    assert_eq!(
        bench.server.asked(),
        ["list \"5\" 0", "list \"\" 500", "watch \"3\""]
    );
}

#[test]
fn t_59_429_asks_the_same_again_and_http_410_is_as_good_as_the_event() {
    let not_ready = || RequestError::NotReady {
        cause: None,
        retry_after_seconds: 1,
    };
    let mut bench = Bench::new(ReflectorMode::ListWatch, Some(8));
    bench.server.then([Answer::Error(not_ready())]);
    assert_eq!(bench.told(), ["failed 429"]);
    bench.server.then([Answer::Error(gone())]);
    bench.pause(2);
    assert_eq!(bench.told(), ["failed 410"]);
    bench
        .server
        .then([Answer::List(vec![], 9, false), Answer::Watch(vec![], true)]);
    bench.pause(4);
    assert_eq!(bench.told(), ["init", "done 9"]);
    assert_eq!(
        bench.server.asked(),
        ["watch \"8\"", "watch \"8\"", "list \"8\" 0", "watch \"9\""]
    );
}

#[test]
fn t_59_a_very_short_watch_is_a_failure() {
    let mut bench = Bench::new(ReflectorMode::ListWatch, None);
    bench
        .server
        .then([Answer::List(vec![], 5, false), Answer::Watch(vec![], false)]);
    assert_eq!(bench.told(), ["init", "done 5", "failed 500"]);
    assert_eq!(bench.reflector.metrics().short_watches, 1);
    bench
        .server
        .then([Answer::List(vec![], 6, false), Answer::Watch(vec![], true)]);
    bench.pause(2);
    assert_eq!(bench.told(), ["init", "done 6"]);
    assert_eq!(bench.server.asked()[2], "list \"5\" 0");
}

#[test]
fn t_59_pages_and_a_page_that_expired() {
    let pods = objects(&["a", "b"]);
    let mut bench = Bench::new(ReflectorMode::ListWatch, None);
    bench.server.then([
        Answer::List(pods[..1].to_vec(), 5, true),
        Answer::Error(gone()),
        Answer::List(pods.clone(), 7, false),
        Answer::Watch(vec![WatchEvent::Error(gone())], false),
    ]);
    assert_eq!(
        bench.told(),
        [
            "init",
            "init a",
            "failed 410",
            "init",
            "init a",
            "init b",
            "done 7",
            "failed 410"
        ]
    );
    assert_eq!(
        bench.server.asked(),
        [
            "list \"0\" 500",
            "list \"\" 500 continue",
            "list \"0\" 0",
            "watch \"7\""
        ]
    );
    // A server that pages at version 0 is asked in pages from then on.
    bench
        .server
        .then([Answer::List(vec![], 8, false), Answer::Watch(vec![], true)]);
    bench.pause(2);
    bench.told();
    assert_eq!(bench.server.asked(), ["list \"7\" 500", "watch \"8\""]);
}

#[test]
fn t_59_a_silent_watch_is_given_up_behind_its_deadline() {
    let mut bench = Bench::new(ReflectorMode::ListWatch, Some(5));
    bench
        .server
        .then([Answer::Watch(vec![], true), Answer::Watch(vec![], true)]);
    assert!(bench.told().is_empty());
    bench.pause(606);
    assert!(bench.told().is_empty());
    assert_eq!(bench.server.asked(), ["watch \"5\"", "watch \"5\""]);
}

#[test]
fn t_60_watch_list() {
    let pods = objects(&["a", "b"]);
    let mut bench = Bench::new(ReflectorMode::WatchList, None);
    bench.server.then([Answer::Watch(
        vec![
            added(&pods[0]),
            bookmark(5, true),
            added(&pods[1]),
            bookmark(9, false),
        ],
        true,
    )]);
    assert_eq!(
        bench.told(),
        ["init", "init a", "done 5", "apply b", "bookmark 9"]
    );
    assert_eq!(
        bench.server.asked(),
        ["watch \"\" initial"],
        "one stream for both"
    );
}

#[test]
fn t_60_a_watch_list_that_breaks_is_begun_again() {
    let pods = objects(&["a"]);
    let mut bench = Bench::new(ReflectorMode::WatchList, None);
    bench
        .server
        .then([Answer::Watch(vec![added(&pods[0])], false)]);
    assert_eq!(bench.told(), ["init", "init a", "failed 500"]);
    bench.server.then([
        Answer::Error(too_large()),
        Answer::Watch(vec![bookmark(6, true)], true),
    ]);
    bench.pause(2);
    assert_eq!(bench.told(), ["failed 504", "init", "done 6"]);
}

#[test]
fn t_60_a_watch_list_that_is_too_late_asks_for_the_most_recent_state() {
    for (why, code) in [(gone(), 410), (too_large(), 504)] {
        let mut bench = Bench::new(ReflectorMode::WatchList, None);
        bench.server.then([Answer::Watch(
            vec![bookmark(5, true), WatchEvent::Error(gone())],
            false,
        )]);
        assert_eq!(bench.told(), ["init", "done 5", "failed 410"]);
        // Not older than what is known; if that is gone as well, or not there yet, whatever there is.
        bench.server.then([
            Answer::Watch(vec![WatchEvent::Error(why)], false),
            Answer::Watch(vec![bookmark(9, true)], true),
        ]);
        bench.pause(2);
        let failed = format!("failed {code}");
        assert_eq!(bench.told(), ["init", &failed, "init", "done 9"]);
        assert_eq!(
            bench.server.asked(),
            [
                "watch \"\" initial",
                "watch \"5\" initial",
                "watch \"\" initial"
            ]
        );
    }
}

#[test]
fn t_60_initial_events_that_do_not_end_are_told_every_ten_seconds() {
    let pods = objects(&["a"]);
    let mut bench = Bench::new(ReflectorMode::WatchList, None);
    bench
        .server
        .then([Answer::Watch(vec![added(&pods[0])], true)]);
    assert_eq!(bench.told(), ["init", "init a"]);
    bench.pause(9);
    assert!(bench.told().is_empty());
    bench.pause(1);
    assert_eq!(bench.told(), ["overdue 10"]);
    bench.pause(10);
    assert_eq!(bench.told(), ["overdue 20"]);
    assert_eq!(bench.reflector.metrics().bookmarks_overdue, 2);
}

#[test]
fn wc_703_what_a_reflector_counts() {
    let pods = objects(&["a", "b"]);
    let mut bench = Bench::new(ReflectorMode::ListWatch, None);
    bench.server.then([
        Answer::List(pods.clone(), 5, false),
        Answer::Watch(vec![bookmark(70, false)], false),
        Answer::Watch(vec![WatchEvent::Error(gone())], false),
    ]);
    bench.told();
    let metrics = bench.reflector.metrics();
    assert_eq!(
        (metrics.lists, metrics.watches, metrics.failures),
        (1, 2, 1)
    );
    assert_eq!(metrics.last_revision, 70);
    assert_eq!(
        (metrics.items_per_list.count, metrics.items_per_list.sum),
        (1, 2.0)
    );
    assert_eq!(
        (metrics.list_seconds.count, metrics.watch_seconds.count),
        (1, 2)
    );
}

#[test]
fn t_60_a_server_without_watch_lists_is_listed() {
    let mut bench = Bench::new(ReflectorMode::WatchList, None);
    bench.server.then([
        Answer::Error(RequestError::Invalid(Vec::new())),
        Answer::List(vec![], 5, false),
        Answer::Watch(vec![], true),
    ]);
    assert_eq!(bench.told(), ["failed 422", "init", "done 5"]);
    assert_eq!(bench.server.asked()[1], "list \"0\" 500");
}

#[test]
fn t_59_and_t_60_both_modes_over_both_stores() {
    for is_cached in [false, true] {
        for mode in [ReflectorMode::ListWatch, ReflectorMode::WatchList] {
            let fixture = Fixture::new();
            fixture.put_pod("ns/a");
            fixture.settle();
            let storage: Arc<dyn Storage> = if is_cached {
                Arc::new(fixture.pods.clone())
            } else {
                Arc::new(fixture.raw.clone())
            };
            let source = StorageListWatch::new(storage, Scope::All, Selector::default());
            let mut reflector = Reflector::builder(Arc::new(source))
                .clock(Arc::new(fixture.clock.clone()))
                .mode(mode)
                .build();
            let mut names = Vec::new();
            loop {
                match fixture.wait(reflector.next()) {
                    ReflectorEvent::InitApply(object) => names.push(object.store_key()),
                    ReflectorEvent::InitDone(_) => break,
                    _ => {}
                }
            }
            assert_eq!(names, ["ns/a"], "cached: {is_cached}, {mode:?}");
            fixture.put_pod("ns/b");
            loop {
                if let ReflectorEvent::Apply(object) = fixture.wait(reflector.next()) {
                    assert_eq!(object.store_key(), "ns/b");
                    break;
                }
                fixture.settle();
            }
        }
    }
}
