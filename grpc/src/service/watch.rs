//! The Watch service.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use revstore_engine as engine;
use revstore_engine::{Events, Revision, WatchCreated, WatchId, WatchOptions};
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{WatchCreateRequest, WatchRequest};
use tokio::time::{Sleep, sleep};
use tonic::{Request, Response, Status, Streaming};

use crate::auth::credentials::Credentials;
use crate::encode::codec::{self, Encode};
use crate::encode::watch_response::{WatchEvents, WatchResponse};
use crate::generated::Watch;
use crate::intercept::WatchRestarts;
use crate::methods;
use crate::node::Node;
use crate::node::shutdown::ShutdownBegun;
use crate::node::wake_filter::WakeFilter;
use crate::request::watch::convert_watch_create;
use crate::status::{self, EtcdError};

/// The watch id in responses that concern the whole stream or a watcher that was not created (WA-4, WA-53);
/// `InvalidWatchID` in etcd's `clientv3`.
const INVALID_WATCH_ID: i64 = -1;

/// The time after the begin of a shutdown in which a session delivers the events of earlier revisions. It is
/// shorter than the time that a connection has to complete its requests, so that the client receives the
/// status, too.
const SHUTDOWN_DRAIN: Duration = Duration::from_millis(500);

/// The maximum number of requests without a response that one poll handles before it yields.
const REQUESTS_PER_POLL_MAX: usize = 32;

/// `etcdserverpb.Watch`; etcd's `watchServer`.
#[derive(Debug)]
pub(crate) struct WatchService {
    node: Arc<Node>,
}

impl WatchService {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }
}

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = WatchSession;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<WatchSession>, Status> {
        let credentials = Credentials::of(&request);
        let restarts = request.extensions().get::<WatchRestarts>().cloned();
        let requests = request.into_inner();
        Ok(Response::new(WatchSession::new(
            self.node.clone(),
            requests,
            credentials,
            restarts.map(Restartable::new),
        )))
    }
}

/// The stream of responses of one Watch call, with all watchers that the client creates on it; etcd's
/// `serverWatchStream`.
///
/// The task that writes to the connection polls the stream, and only while the connection accepts data. If a
/// client does not read, the session is not polled. The engine then stores events in a bounded queue, and
/// when the queue is full, the watchers continue from the history (I9, WA-43). The session buffers only the
/// fragments of one response. Unread requests of the client are limited by HTTP/2 flow control.
///
/// Responses are sent in the order of their creation: the response to a request precedes everything that the
/// engine reports later (WA-1), and progress follows all events that it covers (WA-55).
#[derive(Debug)]
pub(crate) struct WatchSession {
    node: Arc<Node>,
    watches: engine::WatchStream,
    /// The credentials of the request that opened the stream.
    credentials: Credentials,
    /// `None` after the client has half-closed the stream, which does not end the session (WA-16).
    requests: Option<Streaming<WatchRequest>>,
    /// Skips polls of `requests`, because requests are less frequent than responses.
    requests_filter: WakeFilter,
    /// The watchers whose large responses may be split (WA-36).
    fragmented: HashSet<WatchId>,
    /// The remaining fragments of a response. They are sent before any other response.
    fragments: VecDeque<WatchEvents>,
    /// Whether the engine is polled before the requests. The value alternates, so that neither source delays
    /// the other.
    engine_first: bool,
    /// Delays history, if the node has a delay.
    catch_up: CatchUp,
    /// `None` after the end of the session.
    shutdown: Option<ShutdownBegun>,
    /// With control: the watchers that can begin again.
    restartable: Option<Restartable>,
}

/// The watchers of a session, as they were created.
#[derive(Debug)]
struct Restartable {
    restarts: WatchRestarts,
    /// The number of responses to creations.
    creations: u64,
    /// The number and the options of each open watcher.
    watchers: HashMap<WatchId, (u64, WatchOptions)>,
}

impl Restartable {
    fn new(restarts: WatchRestarts) -> Self {
        Self {
            restarts,
            creations: 0,
            watchers: HashMap::new(),
        }
    }
}

/// The delay of history after the creation of a watcher that starts in the past (WA-18).
#[derive(Debug)]
enum CatchUp {
    /// No response is delayed. Becomes `Delayed` when such a watcher is created.
    Prompt,
    /// The responses of the engine wait. Becomes `Delivering` after the delay.
    Delayed(Pin<Box<Sleep>>),
    /// Everything is delivered that has waited. Becomes `Prompt` when nothing is left, so that a client that
    /// creates watchers all the time cannot delay the others forever.
    Delivering,
}

impl WatchSession {
    fn new(
        node: Arc<Node>,
        requests: Streaming<WatchRequest>,
        credentials: Credentials,
        restartable: Option<Restartable>,
    ) -> Self {
        Self {
            watches: node.engine.watch_stream(),
            credentials,
            requests: Some(requests),
            requests_filter: WakeFilter::new(),
            fragmented: HashSet::new(),
            fragments: VecDeque::new(),
            engine_first: false,
            catch_up: CatchUp::Prompt,
            shutdown: Some(node.shutdown.begun()),
            restartable,
            node,
        }
    }

    /// Lets watchers begin again, until one of them has. Returns the response to its creation.
    fn restart(&mut self) -> Option<WatchResponse> {
        let restartable = self.restartable.as_ref()?;
        while let Some(restart) = restartable.restarts.take() {
            let id = WatchId(restart.watch_id);
            let Some((creation, options)) = restartable.watchers.get(&id) else {
                continue;
            };
            // The engine still has the watcher, unless it has ended by a compaction that the client does not know of yet.
            if *creation != restart.creation || !self.watches.cancel(id) {
                continue;
            }
            let mut options = options.clone();
            options.id = Some(id);
            if let Ok(created) = self.watches.watch(options.from(Revision(restart.from))) {
                return Some(self.created(created).into());
            }
        }
        None
    }

    /// Handles requests of the client until one of them has a response.
    fn poll_requests(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchResponse, Status>> {
        for _ in 0..REQUESTS_PER_POLL_MAX {
            let Some(requests) = &mut self.requests else {
                return Poll::Pending;
            };
            let polled = (self.requests_filter)
                .poll(context, |context| Pin::new(requests).poll_next(context));
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Err(status)),
                Poll::Ready(Some(Ok(request))) => {
                    if let Some(response) = self.handle(request) {
                        return Poll::Ready(Ok(response));
                    }
                }
                Poll::Ready(None) => self.requests = None,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls for the engine's next response.
    fn poll_engine(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchResponse, Status>> {
        if let CatchUp::Delayed(sleep) = &mut self.catch_up {
            ready!(sleep.as_mut().poll(context));
            self.catch_up = CatchUp::Delivering;
        }
        match self.watches.poll_response(context) {
            Poll::Ready(response) => Poll::Ready(Ok(self.convert(response))),
            Poll::Pending => {
                self.catch_up = CatchUp::Prompt;
                Poll::Pending
            }
        }
    }

    /// Polls for the next response during a shutdown: events of earlier revisions, then the end.
    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchResponse, Status>> {
        let stopped = || Poll::Ready(Err(EtcdError::Stopped.to_status()));
        if self.node.shutdown.elapsed() >= SHUTDOWN_DRAIN {
            return stopped();
        }
        // Nothing is delayed any more.
        self.catch_up = CatchUp::Delivering;
        match self.poll_engine(context) {
            // The engine has nothing to deliver. Otherwise, it has woken the task.
            Poll::Pending if self.watches.is_caught_up() => stopped(),
            polled => polled,
        }
    }

    fn handle(&mut self, request: WatchRequest) -> Option<WatchResponse> {
        // WA-15
        match request.request_union? {
            RequestUnion::CreateRequest(request) => Some(self.create(request)),
            RequestUnion::CancelRequest(request) => self.cancel(WatchId(request.watch_id)),
            RequestUnion::ProgressRequest(_) => {
                // WA-53: the engine sends the progress response when all watchers are synced, in order with
                // the events.
                self.watches.request_progress();
                None
            }
        }
    }

    fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        if let Some(restartable) = &mut self.restartable {
            restartable.creations += 1;
        }
        // WA-7: before all other checks.
        if request.start_revision < 0 {
            return self.not_created(EtcdError::Compacted.text().into());
        }
        let accepted =
            (self.node).accept_on_stream::<methods::watch::Watch>(&request, &self.credentials);
        if let Err(error) = accepted {
            return self.not_created(status::go_error_text(error));
        }
        let is_fragmented = request.fragment;
        let start = request.start_revision;
        let options = convert_watch_create(request);
        let kept = self.restartable.is_some().then(|| options.clone());
        match self.watches.watch(options) {
            Ok(created) => {
                if let (Some(restartable), Some(options)) = (&mut self.restartable, kept) {
                    let watcher = (restartable.creations, options);
                    restartable.watchers.insert(created.id, watcher);
                }
                let delay = self.node.watch_catch_up_delay;
                let is_from_past = (1..=created.revision.0).contains(&start);
                if is_from_past && !delay.is_zero() && matches!(self.catch_up, CatchUp::Prompt) {
                    self.catch_up = CatchUp::Delayed(Box::pin(sleep(delay)));
                }
                if is_fragmented {
                    self.fragmented.insert(created.id);
                }
                self.created(created).into()
            }
            Err(error) => self.not_created(status::cancel_reason(error).into()),
        }
    }

    fn created(&self, created: WatchCreated) -> pb::WatchResponse {
        pb::WatchResponse {
            // WA-8
            header: Some(self.node.headers.at(created.revision)),
            watch_id: created.id.0,
            created: true,
            ..pb::WatchResponse::default()
        }
    }

    /// Returns the response for a watcher that is not created (ER-1).
    fn not_created(&self, reason: String) -> WatchResponse {
        let response = pb::WatchResponse {
            header: Some(self.node.current_header()),
            watch_id: INVALID_WATCH_ID,
            created: true,
            canceled: true,
            cancel_reason: reason,
            ..pb::WatchResponse::default()
        };
        response.into()
    }

    fn cancel(&mut self, id: WatchId) -> Option<WatchResponse> {
        if !self.watches.cancel(id) {
            return None;
        }
        self.fragmented.remove(&id);
        self.forget(id);
        let response = pb::WatchResponse {
            // WA-20
            header: Some(self.node.current_header()),
            watch_id: id.0,
            canceled: true,
            ..pb::WatchResponse::default()
        };
        Some(response.into())
    }

    fn convert(&mut self, response: engine::WatchResponse) -> WatchResponse {
        let response = match response {
            engine::WatchResponse::Events {
                id,
                revision,
                events,
            } => return self.convert_events(id, revision, events).into(),
            engine::WatchResponse::Progress { id, revision } => pb::WatchResponse {
                header: Some(self.node.headers.at(revision)),
                watch_id: id.map_or(INVALID_WATCH_ID, |id| id.0),
                ..pb::WatchResponse::default()
            },
            engine::WatchResponse::Compacted { id, compacted } => {
                self.forget(id);
                pb::WatchResponse {
                    // WA-40
                    header: Some(self.node.headers.without_revision()),
                    watch_id: id.0,
                    canceled: true,
                    compact_revision: compacted.0,
                    ..pb::WatchResponse::default()
                }
            }
        };
        response.into()
    }

    /// Removes a watcher that has ended from those that can begin again.
    fn forget(&mut self, id: WatchId) {
        if let Some(restartable) = &mut self.restartable {
            restartable.watchers.remove(&id);
        }
    }

    fn convert_events(&mut self, id: WatchId, revision: Revision, events: Events) -> WatchEvents {
        self.node.counters.add_watch_events(events.len());
        let header = self.node.headers.of_events(revision);
        let response = WatchEvents::new(header, id.0, events);
        if self.fragmented.contains(&id) {
            return self.split(response);
        }
        response
    }

    /// Splits a response into fragments. Returns the first one and stores the others in `fragments`.
    fn split(&mut self, response: WatchEvents) -> WatchEvents {
        let (first, others) = fragments(response, self.node.limits.message_bytes_max());
        self.fragments = others;
        first
    }
}

impl Stream for WatchSession {
    type Item = Result<WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let session = &mut *self;
        let Some(shutdown) = &mut session.shutdown else {
            return Poll::Ready(None);
        };
        let is_stopping = Pin::new(shutdown).poll(context).is_ready();
        let next = if let Some(fragment) = session.fragments.pop_front() {
            Ok(fragment.into())
        } else if let Some(created) = session.restart() {
            Ok(created)
        } else if is_stopping {
            // WA-17
            match session.poll_shutdown(context) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            }
        } else {
            session.engine_first = !session.engine_first;
            let polled = if session.engine_first {
                match session.poll_engine(context) {
                    Poll::Pending => session.poll_requests(context),
                    ready @ Poll::Ready(_) => ready,
                }
            } else {
                match session.poll_requests(context) {
                    Poll::Pending => session.poll_engine(context),
                    ready @ Poll::Ready(_) => ready,
                }
            };
            match polled {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            }
        };
        if next.is_err() {
            session.shutdown = None;
        }
        Poll::Ready(Some(next))
    }
}

/// Splits a response of at least `bytes_max` bytes into fragments (WA-36). A single event is not split. All
/// fragments have the same header, and all except the last have the flag `fragment`.
fn fragments(response: WatchEvents, bytes_max: usize) -> (WatchEvents, VecDeque<WatchEvents>) {
    let mut others = VecDeque::new();
    if response.encoded_len() < bytes_max {
        return (response, others);
    }
    let envelope_bytes = response.fragment(0..0, true).envelope_len();
    let mut start = 0;
    let mut fragment_bytes = envelope_bytes;
    for (at, event) in response.events().iter().enumerate() {
        let event_bytes = codec::message_len(&event);
        if at > start && fragment_bytes + event_bytes >= bytes_max {
            others.push_back(response.fragment(start..at, true));
            start = at;
            fragment_bytes = envelope_bytes;
        }
        fragment_bytes += event_bytes;
    }
    let last = response.fragment(start..response.events().len(), false);
    match others.pop_front() {
        Some(first) => {
            others.push_back(last);
            (first, others)
        }
        None => (last, others),
    }
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, Event};

    use super::*;
    use crate::encode::response::Headers;

    const BYTES_MAX: usize = 1000;

    fn event(bytes: usize) -> Event {
        let engine = Engine::builder().build();
        engine.put("k", vec![b'v'; bytes]).unwrap();
        Event {
            kv: engine.get("k").unwrap(),
            prev_kv: None,
        }
    }

    fn all_fragments(response: WatchEvents) -> Vec<WatchEvents> {
        let (first, others) = fragments(response, BYTES_MAX);
        [first].into_iter().chain(others).collect()
    }

    fn check(event_sizes: &[usize], expected: &[&[usize]]) {
        let header = Headers::new(7, 8).of_events(Revision(9));
        let events: Vec<_> = event_sizes.iter().copied().map(event).collect();
        let fragments = all_fragments(WatchEvents::new(header, 3, events.into()));
        let last = fragments.len() - 1;
        for (at, fragment) in fragments.iter().enumerate() {
            assert!(fragment.encoded_len() < BYTES_MAX || fragment.events().len() == 1);
            assert_eq!((fragment.header, fragment.watch_id), (header, 3));
            assert_eq!(fragment.fragment, at < last);
        }
        let sizes = |fragment: &WatchEvents| -> Vec<usize> {
            let events = fragment.events().iter();
            events.map(|event| event.kv.value().len()).collect()
        };
        let sizes: Vec<_> = fragments.iter().map(sizes).collect();
        assert_eq!(sizes, expected);
    }

    #[test]
    fn wa_36_fragments_stay_below_the_limit_unless_a_single_event_exceeds_it() {
        check(&[100, 100], &[&[100, 100]]);
        check(&[400, 400, 400], &[&[400, 400], &[400]]);
        check(&[900, 900], &[&[900], &[900]]);
        check(&[10, 5000, 10], &[&[10], &[5000], &[10]]);
        check(&[5000], &[&[5000]]);
    }

    #[test]
    fn wa_36_a_response_of_exactly_the_limit_is_split() {
        let response = |bytes| {
            let events = vec![event(10), event(bytes)];
            let header = Headers::new(0, 0).of_events(Revision(0));
            WatchEvents::new(header, 0, events.into())
        };
        let envelope = response(500).encoded_len() - 500;
        let largest = BYTES_MAX - envelope - 1;
        assert_eq!(all_fragments(response(largest)).len(), 1);
        assert_eq!(all_fragments(response(largest + 1)).len(), 2);
    }
}
