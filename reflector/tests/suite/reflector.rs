//! T-59, T-60: the reflector against a server with scripted responses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::stream;
use revstore_reflector::{ListWatch, Reflector, ReflectorEvent, ReflectorMode, StorageListWatch};
use revstore_watch_cache::api::{EventStream, Expired, ObjectList, SharedEncoding, Storage};
use revstore_watch_cache::clock::ManualClock;
use revstore_watch_cache::{
    EventType, ListOptions, Object, RequestError, Revision, Scope, Selector, WatchEvent,
    WatchOptions,
};

use crate::support::{Fixture, poll_once};

/// A response of the server.
enum ScriptedResponse {
    /// A page with these objects, its revision, and whether there is a next page.
    List(Vec<Object>, i64, bool),
    /// A watch with these events, and whether it stays open after them.
    Watch(Vec<WatchEvent>, bool),
    Error(RequestError),
}

#[derive(Default)]
struct ServerScript {
    responses: VecDeque<ScriptedResponse>,
    /// The received requests, as text.
    requests: Vec<String>,
}

/// A server with scripted responses.
#[derive(Clone, Default)]
struct ScriptedServer(Arc<Mutex<ServerScript>>);

impl std::fmt::Debug for ScriptedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedServer")
    }
}

impl ScriptedServer {
    fn respond(&self, request: String) -> ScriptedResponse {
        let mut script = self.0.lock().unwrap();
        let response = script.responses.pop_front();
        let response =
            response.unwrap_or_else(|| panic!("the script has no response to {request}"));
        script.requests.push(request);
        response
    }

    /// Adds responses to the script.
    fn then(&self, responses: impl IntoIterator<Item = ScriptedResponse>) {
        self.0.lock().unwrap().responses.extend(responses);
    }

    /// Returns the requests since the last call.
    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().requests)
    }
}

impl ListWatch for ScriptedServer {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>> {
        let (version, limit) = (&options.resource_version, options.limit);
        let token = if options.continue_token.is_empty() {
            ""
        } else {
            " continue"
        };
        let response = match self.respond(format!("list {version:?} {limit}{token}")) {
            ScriptedResponse::List(objects, revision, more) => Ok(page(&objects, revision, more)),
            ScriptedResponse::Error(error) => Err(error),
            ScriptedResponse::Watch(..) => {
                panic!("the script has a watch as the response to a list")
            }
        };
        Box::pin(futures_util::future::ready(response))
    }

    fn watch(&self, options: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        let timeout = options.timeout.unwrap();
        assert!((300..600).contains(&timeout.as_secs()) && options.allow_bookmarks);
        let initial = if options.send_initial_events == Some(true) {
            " initial"
        } else {
            ""
        };
        let request = format!("watch {:?}{initial}", options.resource_version);
        let response = match self.respond(request) {
            ScriptedResponse::Watch(events, open) => {
                let events = stream::iter(events);
                use futures_util::StreamExt as _;
                Ok(if open {
                    Box::pin(events.chain(stream::pending())) as EventStream
                } else {
                    Box::pin(events) as EventStream
                })
            }
            ScriptedResponse::Error(error) => Err(error),
            ScriptedResponse::List(..) => {
                panic!("the script has a list as the response to a watch")
            }
        };
        Box::pin(futures_util::future::ready(response))
    }
}

fn page(objects: &[Object], revision: i64, more: bool) -> ObjectList {
    let mut list = ObjectList::from_objects(Revision(revision), objects);
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
        shared: SharedEncoding::default(),
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
        requested: Revision(9),
        current: Revision(1),
    }
}

/// A reflector of a scripted server, on a manual clock.
struct Setup {
    server: ScriptedServer,
    clock: ManualClock,
    reflector: Reflector,
}

impl Setup {
    fn new(mode: ReflectorMode, resume: Option<i64>) -> Self {
        let (server, clock) = (ScriptedServer::default(), ManualClock::new());
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

    /// Returns the events until the reflector waits, as text.
    fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        while let Poll::Ready(event) = poll_once(self.reflector.next()) {
            events.push(match event {
                ReflectorEvent::Init => "init".into(),
                ReflectorEvent::InitApply(object) => format!("init {}", object.name()),
                ReflectorEvent::InitDone(revision) => format!("done {revision}"),
                ReflectorEvent::Apply(object) => format!("apply {}", object.name()),
                ReflectorEvent::Delete(object) => format!("delete {}", object.name()),
                ReflectorEvent::Bookmark(revision) => format!("bookmark {revision}"),
                ReflectorEvent::BookmarkOverdue(age) => format!("overdue {}", age.as_secs()),
                ReflectorEvent::Failed(error) => format!("failed {}", error.code()),
                other => unreachable!("unknown event {other:?}"),
            });
        }
        events
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

// Shows WC-504, WC-505 and WC-519.
#[test]
fn t_59_a_watch_that_ended_is_started_again_without_a_second_list() {
    let pods = objects(&["a", "b"]);
    let mut setup = Setup::new(ReflectorMode::ListWatch, None);
    setup.server.then([
        ScriptedResponse::List(pods[..1].to_vec(), 5, false),
        ScriptedResponse::Watch(vec![added(&pods[1]), bookmark(70, false)], false),
        ScriptedResponse::Watch(vec![], true),
    ]);
    assert_eq!(
        setup.events(),
        ["init", "init a", "done 5", "apply b", "bookmark 70"]
    );
    assert_eq!(
        setup.server.requests(),
        ["list \"0\" 500", "watch \"5\"", "watch \"70\""]
    );
    assert_eq!(setup.reflector.last_revision(), Some(Revision(70)));
}

// Shows WC-501 and WC-506.
#[test]
fn t_59_after_410_the_list_is_at_the_last_revision_then_at_the_most_recent() {
    let mut setup = Setup::new(ReflectorMode::ListWatch, None);
    setup.server.then([
        ScriptedResponse::List(vec![], 5, false),
        ScriptedResponse::Watch(vec![WatchEvent::Error(gone())], false),
    ]);
    assert_eq!(setup.events(), ["init", "done 5", "failed 410"]);
    setup.server.requests();
    setup.server.then([
        ScriptedResponse::Error(too_large()),
        ScriptedResponse::List(vec![], 3, false),
        ScriptedResponse::Watch(vec![], true),
    ]);
    assert!(setup.events().is_empty(), "a pause precedes the list");
    setup.advance(2);
    assert_eq!(setup.events(), ["failed 504", "init", "done 3"]);
    // A list at a revision has no limit, a list of the most recent state has one.
    assert_eq!(
        setup.server.requests(),
        ["list \"5\" 0", "list \"\" 500", "watch \"3\""]
    );
}

// Shows WC-506 and WC-530.
#[test]
fn t_59_after_429_the_watch_is_requested_again_and_after_410_a_list() {
    let not_ready = || RequestError::NotReady {
        cause: None,
        retry_after_seconds: 1,
    };
    let mut setup = Setup::new(ReflectorMode::ListWatch, Some(8));
    setup.server.then([ScriptedResponse::Error(not_ready())]);
    assert_eq!(setup.events(), ["failed 429"]);
    setup.server.then([ScriptedResponse::Error(gone())]);
    setup.advance(2);
    assert_eq!(setup.events(), ["failed 410"]);
    setup.server.then([
        ScriptedResponse::List(vec![], 9, false),
        ScriptedResponse::Watch(vec![], true),
    ]);
    setup.advance(4);
    assert_eq!(setup.events(), ["init", "done 9"]);
    assert_eq!(
        setup.server.requests(),
        ["watch \"8\"", "watch \"8\"", "list \"8\" 0", "watch \"9\""]
    );
}

// Shows WC-506.
#[test]
fn t_59_an_unreachable_server_is_asked_again_and_a_pause_is_as_long_as_it_wants() {
    let busy = RequestError::TooManyRequests {
        message: "busy".into(),
        retry_after_seconds: 20,
    };
    let endless = RequestError::TooManyRequests {
        message: "busy".into(),
        retry_after_seconds: 100_000,
    };
    let mut setup = Setup::new(ReflectorMode::ListWatch, Some(8));
    setup.server.then([
        ScriptedResponse::Error(RequestError::Unavailable("connection refused".into())),
        ScriptedResponse::Error(busy),
        ScriptedResponse::Error(endless),
        ScriptedResponse::Watch(vec![], true),
    ]);
    assert_eq!(setup.events(), ["failed 503"]);
    setup.advance(2);
    assert_eq!(setup.events(), ["failed 429"]);
    setup.advance(19);
    assert!(setup.events().is_empty());
    setup.advance(1);
    assert_eq!(setup.events(), ["failed 429"]);
    setup.advance(60);
    assert!(setup.events().is_empty());
    assert_eq!(setup.server.requests(), ["watch \"8\""; 4]);
}

/// A source whose requests are never answered.
#[derive(Debug, Default)]
struct SilentServer {
    requests: Mutex<usize>,
}

impl ListWatch for SilentServer {
    fn list(&self, _: ListOptions) -> BoxFuture<'_, Result<ObjectList, RequestError>> {
        *self.requests.lock().unwrap() += 1;
        Box::pin(futures_util::future::pending())
    }
    fn watch(&self, _: WatchOptions) -> BoxFuture<'_, Result<EventStream, RequestError>> {
        *self.requests.lock().unwrap() += 1;
        Box::pin(futures_util::future::pending())
    }
}

#[test]
fn t_59_a_request_continues_if_the_future_that_waits_for_it_is_dropped() {
    for resume in [false, true] {
        let server = Arc::new(SilentServer::default());
        let builder = Reflector::builder(server.clone());
        let mut reflector = if resume {
            builder.resume_after(Revision(5)).build()
        } else {
            builder.build()
        };
        for _ in 0..3 {
            assert!(poll_once(reflector.next()).is_pending());
        }
        assert_eq!(*server.requests.lock().unwrap(), 1);
    }
}

// Shows WC-505.
#[test]
fn t_59_a_very_short_watch_is_a_failure() {
    let mut setup = Setup::new(ReflectorMode::ListWatch, None);
    setup.server.then([
        ScriptedResponse::List(vec![], 5, false),
        ScriptedResponse::Watch(vec![], false),
    ]);
    assert_eq!(setup.events(), ["init", "done 5", "failed 500"]);
    assert_eq!(setup.reflector.metrics().short_watches, 1);
    setup.server.then([
        ScriptedResponse::List(vec![], 6, false),
        ScriptedResponse::Watch(vec![], true),
    ]);
    setup.advance(2);
    assert_eq!(setup.events(), ["init", "done 6"]);
    assert_eq!(setup.server.requests()[2], "list \"5\" 0");
}

// Shows WC-503.
#[test]
fn t_59_after_an_expired_page_the_list_is_requested_without_a_limit() {
    let pods = objects(&["a", "b"]);
    let mut setup = Setup::new(ReflectorMode::ListWatch, None);
    setup.server.then([
        ScriptedResponse::List(pods[..1].to_vec(), 5, true),
        ScriptedResponse::Error(gone()),
        ScriptedResponse::List(pods.clone(), 7, false),
        ScriptedResponse::Watch(vec![WatchEvent::Error(gone())], false),
    ]);
    assert_eq!(
        setup.events(),
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
        setup.server.requests(),
        [
            "list \"0\" 500",
            "list \"\" 500 continue",
            "list \"0\" 0",
            "watch \"7\""
        ]
    );
    // The list at version 0 was returned in pages, so all later lists are requested in pages.
    setup.server.then([
        ScriptedResponse::List(vec![], 8, false),
        ScriptedResponse::Watch(vec![], true),
    ]);
    setup.advance(2);
    setup.events();
    assert_eq!(setup.server.requests(), ["list \"7\" 500", "watch \"8\""]);
}

#[test]
fn t_59_a_watch_without_events_is_abandoned_after_its_deadline() {
    let mut setup = Setup::new(ReflectorMode::ListWatch, Some(5));
    setup.server.then([
        ScriptedResponse::Watch(vec![], true),
        ScriptedResponse::Watch(vec![], true),
    ]);
    assert!(setup.events().is_empty());
    setup.advance(606);
    assert!(setup.events().is_empty());
    assert_eq!(setup.server.requests(), ["watch \"5\"", "watch \"5\""]);
}

// Shows WC-502.
#[test]
fn t_60_one_watch_list_delivers_the_initial_state_and_the_changes() {
    let pods = objects(&["a", "b"]);
    let mut setup = Setup::new(ReflectorMode::WatchList, None);
    setup.server.then([ScriptedResponse::Watch(
        vec![
            added(&pods[0]),
            bookmark(5, true),
            added(&pods[1]),
            bookmark(9, false),
        ],
        true,
    )]);
    assert_eq!(
        setup.events(),
        ["init", "init a", "done 5", "apply b", "bookmark 9"]
    );
    assert_eq!(
        setup.server.requests(),
        ["watch \"\" initial"],
        "one stream for the initial state and the changes"
    );
}

#[test]
fn t_60_a_watch_list_that_ends_before_its_bookmark_is_requested_again() {
    let pods = objects(&["a"]);
    let mut setup = Setup::new(ReflectorMode::WatchList, None);
    setup
        .server
        .then([ScriptedResponse::Watch(vec![added(&pods[0])], false)]);
    assert_eq!(setup.events(), ["init", "init a", "failed 500"]);
    setup.server.then([
        ScriptedResponse::Error(too_large()),
        ScriptedResponse::Watch(vec![bookmark(6, true)], true),
    ]);
    setup.advance(2);
    assert_eq!(setup.events(), ["failed 504", "init", "done 6"]);
}

#[test]
fn t_60_a_watch_list_at_an_unavailable_revision_is_requested_at_the_most_recent() {
    for (error, code) in [(gone(), 410), (too_large(), 504)] {
        let mut setup = Setup::new(ReflectorMode::WatchList, None);
        setup.server.then([ScriptedResponse::Watch(
            vec![bookmark(5, true), WatchEvent::Error(gone())],
            false,
        )]);
        assert_eq!(setup.events(), ["init", "done 5", "failed 410"]);
        // The first request is for a state not older than the last revision. If that revision is
        // compacted or a future revision, the second request is for the most recent state.
        setup.server.then([
            ScriptedResponse::Watch(vec![WatchEvent::Error(error)], false),
            ScriptedResponse::Watch(vec![bookmark(9, true)], true),
        ]);
        setup.advance(2);
        let failed = format!("failed {code}");
        assert_eq!(setup.events(), ["init", &failed, "init", "done 9"]);
        assert_eq!(
            setup.server.requests(),
            [
                "watch \"\" initial",
                "watch \"5\" initial",
                "watch \"\" initial"
            ]
        );
    }
}

#[test]
fn t_60_initial_events_that_do_not_end_are_reported_every_10_seconds() {
    let pods = objects(&["a"]);
    let mut setup = Setup::new(ReflectorMode::WatchList, None);
    setup
        .server
        .then([ScriptedResponse::Watch(vec![added(&pods[0])], true)]);
    assert_eq!(setup.events(), ["init", "init a"]);
    setup.advance(9);
    assert!(setup.events().is_empty());
    setup.advance(1);
    assert_eq!(setup.events(), ["overdue 10"]);
    setup.advance(10);
    assert_eq!(setup.events(), ["overdue 20"]);
    assert_eq!(setup.reflector.metrics().bookmarks_overdue, 2);
}

#[test]
fn wc_703_lists_watches_and_failures_are_counted() {
    let pods = objects(&["a", "b"]);
    let mut setup = Setup::new(ReflectorMode::ListWatch, None);
    setup.server.then([
        ScriptedResponse::List(pods.clone(), 5, false),
        ScriptedResponse::Watch(vec![bookmark(70, false)], false),
        ScriptedResponse::Watch(vec![WatchEvent::Error(gone())], false),
    ]);
    setup.events();
    let metrics = setup.reflector.metrics();
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

// Shows WC-502.
#[test]
fn t_60_after_a_refused_watch_list_only_that_initial_state_is_read_with_lists() {
    let refusals = [
        RequestError::Invalid(Vec::new()),
        RequestError::Internal("a failure that passes".into()),
    ];
    for refusal in refusals {
        let mut setup = Setup::new(ReflectorMode::WatchList, None);
        setup.server.then([
            ScriptedResponse::Error(refusal.clone()),
            ScriptedResponse::List(vec![], 5, false),
            ScriptedResponse::Watch(vec![WatchEvent::Error(gone())], false),
        ]);
        let refused = format!("failed {}", refusal.code());
        assert_eq!(setup.events(), [&refused, "init", "done 5", "failed 410"]);
        setup
            .server
            .then([ScriptedResponse::Watch(vec![bookmark(9, true)], true)]);
        setup.advance(2);
        assert_eq!(setup.events(), ["init", "done 9"]);
        assert_eq!(
            setup.server.requests(),
            [
                "watch \"\" initial",
                "list \"0\" 500",
                "watch \"5\"",
                "watch \"5\" initial"
            ]
        );
    }
}

// Shows WC-502.
#[test]
fn t_60_a_list_that_fails_after_a_refused_watch_list_ends_the_round() {
    let mut setup = Setup::new(ReflectorMode::WatchList, None);
    setup.server.then([
        ScriptedResponse::Error(RequestError::Invalid(Vec::new())),
        ScriptedResponse::Error(gone()),
        ScriptedResponse::Error(RequestError::Internal("a failure that passes".into())),
    ]);
    assert_eq!(setup.events(), ["failed 422", "failed 410", "failed 500"]);
    setup
        .server
        .then([ScriptedResponse::Watch(vec![bookmark(9, true)], true)]);
    setup.advance(2);
    assert_eq!(setup.events(), ["init", "done 9"]);
    // The second list of a round, at the most recent state, is no new round.
    assert_eq!(
        setup.server.requests(),
        [
            "watch \"\" initial",
            "list \"0\" 500",
            "list \"\" 500",
            "watch \"\" initial"
        ]
    );
}

#[test]
fn t_59_and_t_60_both_modes_work_over_the_raw_store_and_the_cache() {
    for is_cached in [false, true] {
        for mode in [ReflectorMode::ListWatch, ReflectorMode::WatchList] {
            let fixture = Fixture::new();
            fixture.put_pod("ns/a");
            fixture.wait_until_fresh();
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
                fixture.wait_until_fresh();
            }
        }
    }
}
