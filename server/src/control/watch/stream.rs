//! The body of the response of one watch stream.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Body, Frame};
use revstore_control::{
    fault::{Action, Removal, RuleId},
    journal::{EndReason, Outcome},
    open::{Watch, WatchInfo, WatchStream},
};
use revstore_engine::KeyRange;
use revstore_grpc::{
    EtcdError,
    intercept::{self, WatchRequestInfo, WatchResponseInfo, WatchRestart},
};
use tonic::{Code, Status};

use crate::control::{
    call::{CallInfo, outcome_of},
    keep_alives::end_of_stream,
    messages::{Message, Messages},
    responses::outcome_of_headers,
    stage::StagedNode,
};

/// The responses of a watch stream. It is polled only while the connection can be written, as the session behind it.
///
/// The events of a held watch are dropped, and read from the history when it is released: the session lets the watch begin
/// again behind what the client was sent. So a held watch takes no memory, and the others of its stream go on.
#[derive(Debug)]
pub(in crate::control) struct WatchBody {
    /// `None` after the end.
    inner: Option<tonic::body::Body>,
    call: Arc<CallInfo>,
    stream: Arc<WatchStream>,
    messages: Messages,
    /// What is sent next. Bounded by one response, and by the ends of held watches.
    ready: VecDeque<Bytes>,
    watches: HashMap<i64, OpenWatch>,
    /// The number of responses to creations.
    creations: u64,
    /// The open watches of which something was dropped that the client has not got since.
    waiting: HashSet<i64>,
    /// The watches that begin again, until the session has confirmed it.
    restarting: HashSet<i64>,
    /// The watches that a rule holds.
    held_by_rule: HashSet<i64>,
    /// Whether a watch that waits may have been released.
    is_released: bool,
    /// The watches that were canceled without the services, until these confirm it.
    canceled: HashSet<i64>,
    /// The watches that get the next progress notification of the stream at which they do not wait.
    bookmarks: HashSet<i64>,
    /// Whether a progress notification of the stream was dropped that the client has asked for.
    owes_progress: bool,
    /// Whether the services were asked for one since their last response.
    has_asked_progress: bool,
    /// The first response of the stream, whose header is that of all.
    header: Bytes,
    outcome: Option<Outcome>,
    /// What has cut the stream.
    cut: Option<Cause>,
    /// Dropped last.
    node: Option<Arc<StagedNode>>,
}

/// An open watch of the stream.
#[derive(Debug)]
struct OpenWatch {
    watch: Arc<Watch>,
    range: KeyRange,
    /// The number of the response to its creation.
    creation: u64,
    /// The revision up to which the client was sent everything.
    position: i64,
    missed: Missed,
    /// Whether rules have decided about the next event already.
    is_decided: bool,
    /// The revision up to which a command has released events, about which rules do not decide.
    released: i64,
    /// The end of the rule that holds it, unless a command has released it.
    hold: Option<Removal>,
    /// Whether further fragments of the last response that was sent follow.
    is_in_fragments: bool,
    /// What cancels it after them.
    is_canceled_next: Option<Cause>,
    since: Instant,
}

/// What was dropped of a watch behind its position.
#[derive(Debug)]
enum Missed {
    Nothing,
    /// It begins again when it is released.
    Events,
    /// A compaction has ended it, of which the client learns when it is released.
    End(Response),
}

/// A response of the services.
#[derive(Debug)]
struct Response {
    /// The message with its prefix.
    bytes: Bytes,
    info: WatchResponseInfo,
}

/// What has cut a stream, or canceled a watch.
#[derive(Clone, Copy, Debug)]
enum Cause {
    Command,
    Rule(RuleId),
}

impl Cause {
    fn rule(self) -> Option<RuleId> {
        match self {
            Self::Command => None,
            Self::Rule(rule) => Some(rule),
        }
    }
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
            creations: 0,
            waiting: HashSet::new(),
            restarting: HashSet::new(),
            held_by_rule: HashSet::new(),
            is_released: false,
            canceled: HashSet::new(),
            bookmarks: HashSet::new(),
            owes_progress: false,
            has_asked_progress: false,
            header: Bytes::new(),
            outcome: None,
            cut: None,
            node,
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
                self.cut = Some(Cause::Command);
                return Some(cut());
            }
            if open.watch.take_cancel() {
                canceled.push(*id);
            }
            if open.watch.take_release() && open.hold.take().is_some() {
                open.released = self.call.engine.current_revision().0;
                open.watch.set_held_by_rule(false);
                self.held_by_rule.remove(id);
            }
            if open.watch.take_bookmark() && self.bookmarks.insert(*id) {
                self.call.inject(intercept::progress_request());
            }
        }
        for id in canceled {
            self.cancel(id, Cause::Command);
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

    /// Lets the watches that are not held any longer go on: from the history, if they have missed something, or to their end.
    fn release(&mut self) {
        if !std::mem::take(&mut self.is_released) || self.waiting.is_empty() {
            return;
        }
        let is_released = |id: &&i64| {
            let is_held = self.watches.get(*id).is_some_and(OpenWatch::is_held);
            !is_held && !self.restarting.contains(*id)
        };
        let mut released: Vec<i64> = self.waiting.iter().filter(is_released).copied().collect();
        released.sort_unstable();
        for id in released {
            let Some(open) = self.watches.get_mut(&id) else {
                self.waiting.remove(&id);
                continue;
            };
            match std::mem::replace(&mut open.missed, Missed::Nothing) {
                Missed::Nothing => {}
                Missed::Events => {
                    self.restarting.insert(id);
                    self.call.restarts.request(WatchRestart {
                        creation: open.creation,
                        watch_id: id,
                        from: open.position.saturating_add(1),
                    });
                }
                Missed::End(end) => self.send(end),
            }
        }
    }

    /// Returns whether something that a watch gets must wait.
    fn waits(&self, id: i64) -> bool {
        self.waiting.contains(&id) || self.watches.get(&id).is_some_and(OpenWatch::is_held)
    }

    /// Asks the services for a progress notification that is due and that they have not sent: they send none while a watch
    /// reads the history.
    fn ask_progress(&mut self) {
        if self.has_asked_progress {
            return;
        }
        let is_due = (self.owes_progress && self.waiting.is_empty())
            || self.bookmarks.iter().any(|id| !self.waits(*id));
        if is_due {
            self.has_asked_progress = true;
            self.call.inject(intercept::progress_request());
        }
    }

    /// Cancels a watch as if its revision had been compacted, by a command or a rule.
    fn cancel(&mut self, id: i64, cause: Cause) {
        let Some(open) = self.watches.get_mut(&id) else {
            return;
        };
        if open.is_in_fragments {
            open.is_canceled_next = Some(cause);
            return;
        }
        let compacted = self.call.engine.current_revision().0;
        self.ready
            .push_back(intercept::compacted_response(&self.header, id, compacted));
        self.canceled.insert(id);
        // Before the client can know that the id is free.
        self.call.inject(intercept::cancel_request(id));
        self.remove(id, EndReason::Compacted, cause.rule());
    }

    /// Removes a watch that has ended.
    fn remove(&mut self, id: i64, reason: EndReason, rule: Option<RuleId>) {
        self.waiting.remove(&id);
        self.held_by_rule.remove(&id);
        self.bookmarks.remove(&id);
        if let Some(open) = self.watches.remove(&id) {
            self.ended(&open, reason, Some(Outcome::success()), rule);
        }
    }

    /// Records the end of a watch.
    fn ended(
        &self,
        open: &OpenWatch,
        reason: EndReason,
        outcome: Option<Outcome>,
        rule: Option<RuleId>,
    ) {
        let (id, open_for) = (open.watch.id(), open.since.elapsed());
        (self.call).record_watch_ended(id, open_for, reason, outcome, rule);
        self.call.interceptor.open.watch_ended(id);
    }

    /// Makes a response ready.
    fn send(&mut self, response: Response) {
        let Response { bytes, info } = response;
        self.ready.push_back(bytes);
        let id = info.watch_id;
        if info.is_canceled {
            let reason = if info.compact_revision > 0 {
                EndReason::Compacted
            } else {
                EndReason::Canceled
            };
            return self.remove(id, reason, None);
        }
        let sent = info.last_event.unwrap_or(info.revision);
        if id < 0 {
            for open in self.watches.values_mut() {
                open.position = open.position.max(sent);
                open.watch.sent(sent);
            }
            return;
        }
        let Some(open) = self.watches.get_mut(&id) else {
            return;
        };
        open.is_in_fragments = info.is_fragment;
        if !info.is_fragment {
            open.position = open.position.max(sent);
            open.watch.sent(sent);
            self.call.record_progress(open.watch.id(), sent);
            if let Some(cause) = open.is_canceled_next.take() {
                self.cancel(id, cause);
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
        self.has_asked_progress = false;
        let id = info.watch_id;
        let ends_restart = info.is_created || info.is_canceled;
        let was_restarting = ends_restart && self.restarting.remove(&id);
        if was_restarting && info.is_created {
            // What comes now is of the watch that has begun again.
            self.waiting.remove(&id);
            return None;
        }
        if info.is_created {
            self.creations += 1;
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
        let Some(request) = self.call.answered() else {
            self.ready.push_back(response.bytes);
            return None;
        };
        if let Some(status) = request.after.clone() {
            let outcome = outcome_of(&status);
            (self.call).record_request(request, outcome, info.revision, None);
            return Some(status);
        }
        self.ready.push_back(response.bytes);
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
            let watch_info = WatchInfo {
                front: None,
                is_without_bookmarks: false,
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
            let position = watch_info.start - 1;
            let open = &self.call.interceptor.open;
            let watch = open.watch_created(watch_info, &self.stream);
            number = Some(watch.id());
            let open_watch = OpenWatch {
                watch,
                range: range.clone(),
                creation: self.creations,
                position,
                missed: Missed::Nothing,
                is_decided: false,
                released: 0,
                hold: None,
                is_in_fragments: false,
                is_canceled_next: None,
                since: Instant::now(),
            };
            self.watches.insert(info.watch_id, open_watch);
        }
        (self.call).record_request(request, Outcome::success(), info.revision, number);
        None
    }

    /// Handles a progress notification for all watches of the stream: the answer to the client, to commands, or both.
    fn progress(&mut self, content: &[u8], response: Response) {
        let bookmarks = self.bookmarks.iter().copied();
        let mut ids: Vec<i64> = bookmarks.filter(|id| !self.waits(*id)).collect();
        ids.sort_unstable();
        for id in ids {
            self.bookmarks.remove(&id);
            let info = WatchResponseInfo {
                watch_id: id,
                ..response.info
            };
            let bytes = intercept::progress_response(content, id);
            self.send(Response { bytes, info });
        }
        if !self.call.wants_progress() {
            return;
        }
        // I6: not true before the events that watches have missed. The client gets a later one.
        self.owes_progress = !self.waiting.is_empty();
        if !self.owes_progress {
            self.send(response);
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
            self.send(response);
            return None;
        }
        if self.restarting.contains(&info.watch_id) {
            // Of the watch before: it comes again.
            return None;
        }
        let rules = &self.call.interceptor.rules;
        let has_missed = !matches!(open.missed, Missed::Nothing);
        let is_new = !open.is_in_fragments && !has_missed;
        if info.last_event.is_some()
            && is_new
            && !open.is_held()
            && !std::mem::take(&mut open.is_decided)
            && info.last_event > Some(open.released)
            && !rules.is_empty()
        {
            let keys = std::slice::from_ref(&open.range);
            let decision = rules.decide_events(&self.call.for_rules(keys));
            match decision.action {
                Some((_, Action::Hold)) => {
                    open.hold = decision.removal;
                    open.is_decided = true;
                    self.held_by_rule.insert(info.watch_id);
                    open.watch.set_held_by_rule(true);
                }
                Some((rule, Action::Cut)) => {
                    self.cut = Some(Cause::Rule(rule));
                    return Some(cut());
                }
                Some((rule, Action::CancelCompacted)) => {
                    self.cancel(info.watch_id, Cause::Rule(rule));
                    return None;
                }
                _ => {}
            }
        }
        let is_held = !open.is_in_fragments && open.is_held();
        if !is_held && !has_missed {
            self.send(response);
            return None;
        }
        if info.is_canceled {
            open.missed = Missed::End(response);
        } else if info.last_event.is_some() {
            open.missed = Missed::Events;
        } else {
            // The client gets a later one.
            self.bookmarks.insert(info.watch_id);
            return None;
        }
        self.waiting.insert(info.watch_id);
        None
    }

    /// Returns why the stream has ended, and the rule that has ended it.
    fn end_reason(&self, outcome: Option<&Outcome>) -> (EndReason, Option<RuleId>) {
        if let Some(cause) = self.cut {
            return (EndReason::Cut, cause.rule());
        }
        let is_replaced = self.node.as_ref().is_some_and(|node| node.is_replaced());
        let reason = if is_replaced {
            EndReason::StoreReplaced
        } else if self.call.node_shutdown.has_begun() {
            EndReason::ServerStopped
        } else if outcome.is_some_and(|outcome| outcome.code != Code::Ok) {
            EndReason::Failed
        } else {
            EndReason::ClientGone
        };
        (reason, None)
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
            let polled = match &mut body.inner {
                Some(inner) => Pin::new(inner).poll_frame(context),
                None => Poll::Ready(None),
            };
            if let Some(status) = body.call.take_failure() {
                return Poll::Ready(Some(Ok(body.end(&status))));
            }
            match polled {
                // The rules of watches that are held since.
                Poll::Pending if body.poll_rules(context) => {}
                Poll::Pending => {
                    body.ask_progress();
                    body.stream.set_idle(true);
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
        let outcome = self.outcome.take();
        let (reason, rule) = self.end_reason(outcome.as_ref());
        for open in self.watches.values() {
            self.ended(open, reason, outcome.clone(), rule);
        }
        self.call.record_end_with(outcome, None, Some(reason));
        self.call.end();
    }
}
