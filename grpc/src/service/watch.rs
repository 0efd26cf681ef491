//! The watch service.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use revstore_engine as engine;
use revstore_engine::{Events, Revision, WatchId};
use revstore_proto::etcdserverpb as pb;
use revstore_proto::etcdserverpb::watch_request::RequestUnion;
use revstore_proto::etcdserverpb::{WatchCreateRequest, WatchRequest};
use tonic::{Request, Response, Status, Streaming};

use crate::auth::authorize::{self, Credentials};
use crate::encode::codec::{self, Encode};
use crate::encode::watch_response::{WatchEvents, WatchResponse};
use crate::generated::Watch;
use crate::node::Node;
use crate::node::shutdown::Begun;
use crate::node::waker::Nudge;
use crate::request::convert;
use crate::status::{self, EtcdError};

/// The watch id that stands for the whole stream, and for a watch that was refused (WA-4, WA-53).
const NO_WATCH: i64 = -1;

/// Requests without a reply that one poll takes before it lets others run.
const REQUESTS_PER_POLL_MAX: usize = 32;

/// `etcdserverpb.Watch`.
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
        let requests = request.into_inner();
        Ok(Response::new(WatchSession::new(
            self.node.clone(),
            requests,
            credentials,
        )))
    }
}

/// One client's stream of watches: asked for the next response, it takes a request or an engine's
/// response and turns it into one.
///
/// It runs in the task that writes the responses to the connection, and only while that can write.
/// So a client that does not read stops the session, the bounded queue of the engine's stream takes
/// what happens meanwhile, and behind that the watches read history (I9, WA-43). Nothing is buffered
/// here but the pieces of one response: the client's own requests wait in the flow control of the
/// connection, just as the responses do.
///
/// Responses leave in the order in which they were made: a reply to a request before all that the
/// engine tells after it (WA-1), progress behind what it covers (WA-55).
#[derive(Debug)]
pub(crate) struct WatchSession {
    node: Arc<Node>,
    watches: engine::WatchStream,
    /// Who the client is, as far as it said when it opened the stream.
    credentials: Credentials,
    /// Nothing after the client's last request, which does not end the session (WA-16).
    requests: Option<Streaming<WatchRequest>>,
    /// Requests are rare and responses are not.
    requests_nudge: Nudge,
    /// Watches whose large responses may be split (WA-36).
    fragmented: HashSet<WatchId>,
    /// The pieces of a response that was split; nothing else is done before they are sent.
    fragments: VecDeque<WatchEvents>,
    /// Requests and the engine are asked in turns, so that neither keeps the other waiting.
    engine_first: bool,
    /// Nothing behind the end of the session.
    stopped: Option<Begun>,
}

impl WatchSession {
    fn new(node: Arc<Node>, requests: Streaming<WatchRequest>, credentials: Credentials) -> Self {
        Self {
            watches: node.engine.watch_stream(),
            credentials,
            requests: Some(requests),
            requests_nudge: Nudge::new(),
            fragmented: HashSet::new(),
            fragments: VecDeque::new(),
            engine_first: false,
            stopped: Some(node.shutdown.begun()),
            node,
        }
    }

    /// The reply to the client's next request that gets one.
    fn poll_requests(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchResponse, Status>> {
        for _ in 0..REQUESTS_PER_POLL_MAX {
            let Some(requests) = &mut self.requests else {
                return Poll::Pending;
            };
            let polled = (self.requests_nudge)
                .poll(context, |context| Pin::new(requests).poll_next(context));
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Err(status)),
                Poll::Ready(Some(Ok(request))) => {
                    if let Some(reply) = self.answer(request) {
                        return Poll::Ready(Ok(reply));
                    }
                }
                Poll::Ready(None) => self.requests = None,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// The next thing that the engine tells.
    fn poll_engine(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchResponse, Status>> {
        self.watches
            .poll_response(context)
            .map(|told| Ok(self.tell(told)))
    }

    fn answer(&mut self, request: WatchRequest) -> Option<WatchResponse> {
        // WA-15
        match request.request_union? {
            RequestUnion::CreateRequest(request) => Some(self.create(request)),
            RequestUnion::CancelRequest(request) => self.cancel(WatchId(request.watch_id)),
            RequestUnion::ProgressRequest(_) => {
                // WA-53: the answer comes in order with the rest, if one is due.
                self.watches.request_progress();
                None
            }
        }
    }

    fn create(&mut self, request: WatchCreateRequest) -> WatchResponse {
        // WA-38: what was created before auth was enabled goes on.
        if let Err(denied) = authorize::watch(&self.node, &request, &self.credentials) {
            return self.refuse(status::rendering(denied));
        }
        let fragment = request.fragment;
        match self.watches.watch(convert::watch(request)) {
            Ok(created) => {
                if fragment {
                    self.fragmented.insert(created.id);
                }
                let head = pb::WatchResponse {
                    // WA-8
                    header: Some(self.node.headers.at(created.revision)),
                    watch_id: created.id.0,
                    created: true,
                    ..pb::WatchResponse::default()
                };
                head.into()
            }
            Err(error) => self.refuse(status::cancel_reason(error).into()),
        }
    }

    /// ER-1
    fn refuse(&self, reason: String) -> WatchResponse {
        let head = pb::WatchResponse {
            header: Some(self.node.current_header()),
            watch_id: NO_WATCH,
            created: true,
            canceled: true,
            cancel_reason: reason,
            ..pb::WatchResponse::default()
        };
        head.into()
    }

    fn cancel(&mut self, id: WatchId) -> Option<WatchResponse> {
        if !self.watches.cancel(id) {
            return None;
        }
        self.fragmented.remove(&id);
        let head = pb::WatchResponse {
            // WA-20
            header: Some(self.node.current_header()),
            watch_id: id.0,
            canceled: true,
            ..pb::WatchResponse::default()
        };
        Some(head.into())
    }

    fn tell(&mut self, told: engine::WatchResponse) -> WatchResponse {
        let head = match told {
            engine::WatchResponse::Events {
                id,
                revision,
                events,
            } => return self.tell_events(id, revision, events).into(),
            engine::WatchResponse::Progress { id, revision } => pb::WatchResponse {
                header: Some(self.node.headers.at(revision)),
                watch_id: id.map_or(NO_WATCH, |id| id.0),
                ..pb::WatchResponse::default()
            },
            engine::WatchResponse::Compacted { id, compacted } => pb::WatchResponse {
                // WA-40
                header: Some(self.node.headers.without_revision()),
                watch_id: id.0,
                canceled: true,
                compact_revision: compacted.0,
                ..pb::WatchResponse::default()
            },
        };
        head.into()
    }

    fn tell_events(&mut self, id: WatchId, revision: Revision, events: Events) -> WatchEvents {
        self.node.counters.add_watch_events(events.len());
        let header = self.node.headers.of_events(revision);
        let response = WatchEvents::new(header, id.0, events);
        if self.fragmented.contains(&id) {
            return self.split(response);
        }
        response
    }

    /// Returns the first piece and keeps the others.
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
        let Some(stopped) = &mut session.stopped else {
            return Poll::Ready(None);
        };
        // WA-17: at once, whatever is still to be told.
        let next = if Pin::new(stopped).poll(context).is_ready() {
            Err(EtcdError::Stopped.to_status())
        } else if let Some(fragment) = session.fragments.pop_front() {
            Ok(fragment.into())
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
            session.stopped = None;
        }
        Poll::Ready(Some(next))
    }
}

/// WA-36: cuts a response that has the limit or more into pieces that have less, but never an
/// event. All have the same header, and all but the last say that more follows.
fn fragments(response: WatchEvents, bytes_max: usize) -> (WatchEvents, VecDeque<WatchEvents>) {
    let mut others = VecDeque::new();
    if response.encoded_len() < bytes_max {
        return (response, others);
    }
    let around = response.fragment(0..0, true).envelope_len();
    let mut start = 0;
    let mut piece_bytes = around;
    for (at, event) in response.events().iter().enumerate() {
        let event_bytes = codec::message_len(&event);
        if at > start && piece_bytes + event_bytes >= bytes_max {
            others.push_back(response.fragment(start..at, true));
            start = at;
            piece_bytes = around;
        }
        piece_bytes += event_bytes;
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
        let pieces = all_fragments(WatchEvents::new(header, 3, events.into()));
        let last = pieces.len() - 1;
        for (at, piece) in pieces.iter().enumerate() {
            assert!(piece.encoded_len() < BYTES_MAX || piece.events().len() == 1);
            assert_eq!((piece.header, piece.watch_id), (header, 3));
            assert_eq!(piece.fragment, at < last);
        }
        let sizes = |piece: &WatchEvents| -> Vec<usize> {
            let events = piece.events().iter();
            events.map(|event| event.kv.value().len()).collect()
        };
        let sizes: Vec<_> = pieces.iter().map(sizes).collect();
        assert_eq!(sizes, expected);
    }

    #[test]
    fn wa_36_pieces_stay_below_the_limit_unless_one_event_does_not() {
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
        let frame = response(500).encoded_len() - 500;
        let largest = BYTES_MAX - frame - 1;
        assert_eq!(all_fragments(response(largest)).len(), 1);
        assert_eq!(all_fragments(response(largest + 1)).len(), 2);
    }
}
