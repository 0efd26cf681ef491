//! The body of the response of one watch stream.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use revstore_control::{
    fault::{Action, Removal},
    journal::Outcome,
    open::{Watch, WatchInfo, WatchStream},
};
use revstore_engine::KeyRange;
use revstore_grpc::{
    EtcdError,
    intercept::{self, WatchRequestInfo, WatchResponseInfo},
};
use tonic::Status;

use super::{
    HELD_BYTES_MAX,
    held::{Held, Response},
};
use crate::control::{
    call::{CallInfo, outcome_of, success},
    keep_alives::end_of_stream,
    messages::{Message, Messages},
    responses::outcome_of_headers,
    stage::StagedNode,
};

/// The responses of a watch stream. It is polled only while the connection can be written, as the session behind it.
#[derive(Debug)]
pub(in crate::control) struct WatchBody {
    /// `None` after the end.
    inner: Option<tonic::body::Body>,
    call: Arc<CallInfo>,
    stream: Arc<WatchStream>,
    messages: Messages,
    /// What is sent next. Bounded by what is released at once and by one response.
    ready: VecDeque<Bytes>,
    watches: HashMap<i64, OpenWatch>,
    held: Held,
    /// The watches that a rule holds.
    held_by_rule: HashSet<i64>,
    /// Whether a watch with held responses may have been released.
    is_released: bool,
    /// The watches that were canceled without the services, until these confirm it.
    canceled: HashSet<i64>,
    /// The watches that get the next progress notification of the stream.
    bookmarks: HashSet<i64>,
    /// The first response of the stream, whose header is that of all.
    header: Bytes,
    outcome: Option<Outcome>,
    /// Dropped last.
    _node: Option<Arc<StagedNode>>,
}

/// An open watch of the stream.
#[derive(Debug)]
struct OpenWatch {
    watch: Arc<Watch>,
    range: KeyRange,
    /// The end of the rule that holds it.
    hold: Option<Removal>,
    /// Whether further fragments of the last response that was sent follow.
    is_in_fragments: bool,
    /// Whether it is canceled after them.
    is_canceled_next: bool,
}

impl OpenWatch {
    fn is_held(&self) -> bool {
        self.watch.is_held() || self.hold.as_ref().is_some_and(|hold| !hold.is_removed())
    }
}

impl WatchBody {
    pub(in crate::control) fn new(
        inner: tonic::body::Body,
        call: Arc<CallInfo>,
        node: Option<Arc<StagedNode>>,
    ) -> Self {
        call.record_opened();
        Self {
            inner: Some(inner),
            call,
            stream: Arc::default(),
            messages: Messages::default(),
            ready: VecDeque::new(),
            watches: HashMap::new(),
            held: Held::default(),
            held_by_rule: HashSet::new(),
            is_released: false,
            canceled: HashSet::new(),
            bookmarks: HashSet::new(),
            header: Bytes::new(),
            outcome: None,
            _node: node,
        }
    }

    /// Executes the commands to the watches of the stream. Returns the status with which it ends, if it was cut.
    fn execute_commands(&mut self) -> Option<Status> {
        if !self.stream.take_commanded() {
            return None;
        }
        self.is_released = true;
        let mut canceled = Vec::new();
        for (id, open) in &mut self.watches {
            if open.watch.take_cut() {
                return Some(cut());
            }
            if open.watch.take_cancel() {
                canceled.push(*id);
            }
            if open.watch.take_bookmark() && self.bookmarks.insert(*id) {
                self.call.inject(intercept::progress_request());
            }
        }
        for id in canceled {
            self.cancel(id);
        }
        None
    }

    /// Looks for the end of the rules that hold watches. Returns whether one has ended; otherwise, the task is woken
    /// when one ends.
    fn poll_rules(&mut self, context: &mut Context<'_>) -> bool {
        let watches = &mut self.watches;
        let before = self.held_by_rule.len();
        self.held_by_rule.retain(|id| {
            let Some(open) = watches.get_mut(id) else {
                return false;
            };
            let Some(hold) = &mut open.hold else {
                return false;
            };
            if Pin::new(hold).poll(context).is_pending() {
                return true;
            }
            open.hold = None;
            open.watch.set_held_by_rule(false);
            false
        });
        let has_ended = self.held_by_rule.len() < before;
        self.is_released |= has_ended;
        has_ended
    }

    /// Makes the held responses of watches that are not held any longer ready.
    fn release(&mut self) {
        if !std::mem::take(&mut self.is_released) || self.held.is_empty() {
            return;
        }
        let watches = &self.watches;
        let is_held = |id: i64| watches.get(&id).is_some_and(OpenWatch::is_held);
        for response in self.held.release(is_held) {
            self.send(response);
        }
    }

    /// Cancels a watch as if its revision had been compacted.
    fn cancel(&mut self, id: i64) {
        let Some(open) = self.watches.get_mut(&id) else {
            return;
        };
        if open.is_in_fragments {
            open.is_canceled_next = true;
            return;
        }
        let compacted = self.call.engine.current_revision().0;
        self.ready
            .push_back(intercept::compacted_response(&self.header, id, compacted));
        self.canceled.insert(id);
        // Before the client can know that the id is free.
        self.call.inject(intercept::cancel_request(id));
        self.remove(id);
    }

    /// Removes a watch that has ended.
    fn remove(&mut self, id: i64) {
        self.held.remove(id);
        self.held_by_rule.remove(&id);
        self.is_released = true;
        self.bookmarks.remove(&id);
        if let Some(open) = self.watches.remove(&id) {
            self.call.interceptor.open.watch_ended(open.watch.id());
        }
    }

    /// Makes a response ready.
    fn send(&mut self, response: Response) {
        let Response { bytes, info } = response;
        self.ready.push_back(bytes);
        let id = info.watch_id;
        if info.is_canceled {
            return self.remove(id);
        }
        let sent = info.last_event.unwrap_or(info.revision);
        if id < 0 {
            for open in self.watches.values() {
                open.watch.sent(sent);
            }
            return;
        }
        let Some(open) = self.watches.get_mut(&id) else {
            return;
        };
        open.is_in_fragments = info.is_fragment;
        if !info.is_fragment {
            open.watch.sent(sent);
            self.call.record_progress(open.watch.id(), sent);
            if std::mem::take(&mut open.is_canceled_next) {
                self.cancel(id);
            }
        }
    }

    /// Handles a response of the services. Returns the status with which the stream ends, if it does.
    fn take(&mut self, message: Message) -> Option<Status> {
        let content = message.content(usize::MAX);
        let info = content.as_deref().and_then(WatchResponseInfo::of);
        let (Some(content), Some(info)) = (content, info) else {
            // The services send only valid responses.
            self.ready.push_back(message.0);
            return None;
        };
        if self.header.is_empty() {
            // Copied: the response may be part of a large buffer.
            self.header = Bytes::copy_from_slice(&content);
        }
        let response = Response {
            bytes: message.0,
            info,
        };
        if info.is_created {
            return self.create(response);
        }
        if self.canceled.contains(&info.watch_id) {
            if info.is_canceled {
                self.canceled.remove(&info.watch_id);
            }
            return None;
        }
        if info.watch_id < 0 && info.is_progress() {
            self.progress(&content, response);
            return None;
        }
        self.deliver(response)
    }

    /// Handles the response to the creation of a watch.
    fn create(&mut self, response: Response) -> Option<Status> {
        let info = response.info;
        let request = self.call.answered();
        if let Some(request) = &request
            && let Some(status) = &request.after
        {
            let outcome = outcome_of(status);
            (self.call).record_request(request, outcome, info.revision, None);
            return Some(status.clone());
        }
        self.ready.push_back(response.bytes);
        let request = request?;
        let mut number = None;
        if !info.is_canceled
            && let Some(WatchRequestInfo::Create {
                key,
                range_end,
                range,
                start,
            }) = &request.watch
        {
            self.canceled.remove(&info.watch_id);
            // I6: a notification that waits says nothing about the events of this watch. The client gets a later one.
            if self.held.remove_progress() {
                self.is_released = true;
                self.call.inject(intercept::progress_request());
            }
            let watch_info = WatchInfo {
                front: None,
                client: self.call.client.clone(),
                user: self.call.user.clone(),
                connection: self.call.connection.as_ref().map(|it| it.id()),
                // Copied: the request may be part of a large buffer.
                key: Bytes::copy_from_slice(key),
                range_end: Bytes::copy_from_slice(range_end),
                start: if *start > 0 {
                    *start
                } else {
                    info.revision + 1
                },
            };
            let open = &self.call.interceptor.open;
            let watch = open.watch_created(watch_info, &self.stream);
            number = Some(watch.id());
            let open_watch = OpenWatch {
                watch,
                range: range.clone(),
                hold: None,
                is_in_fragments: false,
                is_canceled_next: false,
            };
            self.watches.insert(info.watch_id, open_watch);
        }
        (self.call).record_request(&request, success(), info.revision, number);
        None
    }

    /// Handles a progress notification for all watches of the stream: the answer to the client, to commands, or both.
    fn progress(&mut self, content: &[u8], response: Response) {
        let mut ids: Vec<i64> = self.bookmarks.drain().collect();
        ids.sort_unstable();
        for id in ids {
            let info = WatchResponseInfo {
                watch_id: id,
                ..response.info
            };
            let bytes = intercept::progress_response(content, id);
            // I6: a watch that was released since may still have events that wait.
            let is_held = self.watches.get(&id).is_some_and(OpenWatch::is_held);
            let waits = self.held.contains(id) || is_held;
            self.queue(Response { bytes, info }, waits);
        }
        if self.call.wants_progress() {
            let waits = !self.held.is_empty();
            self.queue(response, waits);
        }
    }

    /// Handles events, progress or the end of a watch.
    fn deliver(&mut self, response: Response) -> Option<Status> {
        let info = response.info;
        let Some(open) = self.watches.get_mut(&info.watch_id) else {
            self.ready.push_back(response.bytes);
            return None;
        };
        if info.is_canceled && info.compact_revision == 0 {
            // The client has canceled it, and wants nothing more of it.
            self.held.remove(info.watch_id);
            self.is_released = true;
            self.send(response);
            return None;
        }
        let rules = &self.call.interceptor.rules;
        let is_new = !open.is_in_fragments && !self.held.contains(info.watch_id);
        if info.last_event.is_some() && is_new && !open.is_held() && !rules.is_empty() {
            let keys = std::slice::from_ref(&open.range);
            let decision = rules.decide_events(&self.call.for_rules(keys));
            match decision.action.map(|(_, action)| action) {
                Some(Action::Hold) => {
                    open.hold = decision.removal;
                    self.held_by_rule.insert(info.watch_id);
                    open.watch.set_held_by_rule(true);
                }
                Some(Action::Cut) => return Some(cut()),
                Some(Action::CancelCompacted) => {
                    self.cancel(info.watch_id);
                    return None;
                }
                _ => {}
            }
        }
        let waits = self.held.contains(info.watch_id) || (!open.is_in_fragments && open.is_held());
        self.queue(response, waits);
        None
    }

    fn queue(&mut self, response: Response, waits: bool) {
        if waits {
            self.held.push(response);
        } else {
            self.send(response);
        }
    }

    /// Ends the stream with a status.
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.inner = None;
        self.outcome = Some(outcome_of(status));
        end_of_stream(status)
    }
}

/// Returns the status of a stream that was cut. Clients reconnect after it.
fn cut() -> Status {
    EtcdError::Stopped.to_status()
}

impl Body for WatchBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let body = &mut *self;
        body.call.register_response(context.waker());
        body.stream.register(context.waker());
        body.call.resume();
        // Once for all responses of this call: a stream may have very many watches.
        body.poll_rules(context);
        loop {
            if body.inner.is_none() {
                return Poll::Ready(None);
            }
            if let Some(status) = body.execute_commands() {
                return Poll::Ready(Some(Ok(body.end(&status))));
            }
            body.release();
            if let Some(bytes) = body.ready.pop_front() {
                body.stream.set_idle(false);
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            // The messages of the services have no limit.
            if let Ok(Some(message)) = body.messages.next(usize::MAX) {
                if let Some(status) = body.take(message) {
                    return Poll::Ready(Some(Ok(body.end(&status))));
                }
                continue;
            }
            let is_full = body.held.bytes_max() >= HELD_BYTES_MAX;
            let polled = match &mut body.inner {
                Some(inner) if !is_full => Pin::new(inner).poll_frame(context),
                _ => Poll::Pending,
            };
            if let Some(status) = body.call.take_failure() {
                return Poll::Ready(Some(Ok(body.end(&status))));
            }
            match polled {
                // The rules of watches that are held since.
                Poll::Pending if body.poll_rules(context) => {}
                Poll::Pending => {
                    body.stream.set_idle(!is_full);
                    body.call.park();
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => body.messages.push(data),
                    Err(trailers) => {
                        // The stream ends, also for what is held: an end, not a gap.
                        body.outcome = trailers.trailers_ref().and_then(outcome_of_headers);
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                Poll::Ready(end) => {
                    body.inner = None;
                    return Poll::Ready(end);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_ended = self.inner.as_ref().is_none_or(Body::is_end_stream);
        is_ended && self.messages.is_empty() && self.ready.is_empty()
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        let open = &self.call.interceptor.open;
        for watch in self.watches.values() {
            open.watch_ended(watch.watch.id());
        }
        self.call.record_end(self.outcome.take(), None);
        self.call.end();
    }
}
