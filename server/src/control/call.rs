//! What is known of a call, and its record in the journal.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use revstore_control::{
    call::Call,
    fault::{Action, Delayed, RuleId},
    journal::{EndReason, Event, KeptAnswer, KeptBody, KeptRequest, LeftOut, Outcome, Record},
    open::{Connection, Work},
};
use revstore_engine::{Engine, KeyRange};
use revstore_grpc::{
    RpcKind, RpcMethod, Shutdown,
    intercept::{self, WatchRequestInfo, WatchRestarts},
};
use tonic::Status;

use super::{
    ControlledServices, Interceptor, KEEP_ALIVE, WATCH, controlled::Caller, messages::Message,
    preset_error,
};

/// A call, from its arrival to the end of its response. The request and the response share it.
#[derive(Debug)]
pub(super) struct CallInfo {
    pub(super) interceptor: Interceptor,
    /// Of a watch stream: the watches that continue from the history.
    pub(super) restarts: WatchRestarts,
    pub(super) engine: Engine,
    pub(super) node_shutdown: Shutdown,
    /// The maximum length of a message of the client.
    pub(super) bytes_max: usize,
    /// `None` for an unknown method.
    pub(super) method: Option<&'static RpcMethod>,
    position: Option<usize>,
    pub(super) kind: CallKind,
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) client: Option<Arc<str>>,
    pub(super) user: Option<Arc<str>>,
    start: Instant,
    time: Duration,
    /// The number of replacements of the store before the call.
    store: u64,
    /// A leaf lock: held for a look or a change. Wakers are called without it.
    state: Mutex<CallState>,
}

/// How a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// One request, one response.
    Unary,
    /// The same, of a call that may wait for other clients.
    Waiting,
    /// One request, many responses.
    ServerStream,
    KeepAlive,
    Watch,
}

#[derive(Debug)]
struct CallState {
    /// Counts the call for automatic time.
    work: Work,
    /// Whether a request waits for the end of a delay by the time of the wall, in which the call counts.
    waits_for_wall: bool,
    /// The call ends with this, by a rule.
    failure: Option<Status>,
    /// The answer is replaced by this.
    after: Option<Status>,
    rule: Option<RuleId>,
    /// The clock waits for the call, which it has woken from a delay.
    delayed: Option<Delayed>,
    keys: Vec<KeyRange>,
    /// The only request, for the journal.
    kept: Option<Box<KeptRequest>>,
    /// The revision before the services got the only request.
    before: i64,
    /// Requests for the services that no client has sent.
    injected: VecDeque<Bytes>,
    /// Wakes the reader of the requests.
    request_task: Option<Waker>,
    /// Wakes the sender of the responses.
    response_task: Option<Waker>,
    /// The requests on a stream that have yet to be answered, in order. Bounded by what the services read: they answer
    /// each before they read the next but 32.
    unanswered: VecDeque<StreamRequest>,
    /// Whether the client has asked for progress notifications.
    wants_progress: bool,
}

/// A request on a stream.
#[derive(Debug)]
pub(super) struct StreamRequest {
    /// Of a watch stream: the creation.
    pub(super) watch: Option<WatchRequestInfo>,
    kept: Box<KeptRequest>,
    start: Instant,
    time: Duration,
    rule: Option<RuleId>,
    /// The answer is replaced by this, and the stream ends.
    pub(super) after: Option<Status>,
}

impl CallInfo {
    pub(super) fn new(
        services: &ControlledServices,
        path: &str,
        headers: &HeaderMap,
        caller: Caller,
    ) -> Self {
        let interceptor = services.interceptor.clone();
        let position = RpcMethod::position(path);
        let method = position.and_then(|position| RpcMethod::all().get(position));
        let kind = match method {
            Some(method) => match (method.path(), method.kind()) {
                (WATCH, _) => CallKind::Watch,
                (KEEP_ALIVE, _) => CallKind::KeepAlive,
                ("/v3lockpb.Lock/Lock" | "/v3electionpb.Election/Campaign", _) => CallKind::Waiting,
                (_, RpcKind::Unary) => CallKind::Unary,
                _ => CallKind::ServerStream,
            },
            None => CallKind::Unary,
        };
        let user = (services.counted.services).user_of(headers, caller.certified.as_ref());
        let work = interceptor.open.activity().start();
        if let Some(http) = &caller.http {
            // The call counts in the place of the request that the gateway converts.
            http.lock().park();
        }
        let time = interceptor.delays.now();
        Self {
            restarts: WatchRestarts::default(),
            engine: services.engine.clone(),
            node_shutdown: services.node_shutdown.clone(),
            bytes_max: services.message_bytes_max,
            method,
            position,
            kind,
            connection: caller.connection,
            client: caller.client,
            user,
            start: Instant::now(),
            time,
            store: interceptor.journal.store(),
            interceptor,
            state: Mutex::new(CallState {
                work,
                waits_for_wall: false,
                failure: None,
                after: None,
                rule: None,
                delayed: None,
                keys: Vec::new(),
                kept: None,
                before: 0,
                injected: VecDeque::new(),
                request_task: None,
                response_task: None,
                unanswered: VecDeque::new(),
                wants_progress: false,
            }),
        }
    }

    /// Returns the call as rules see it.
    pub(super) fn for_rules<'a>(&'a self, keys: &'a [KeyRange]) -> Call<'a> {
        Call {
            method: self.position,
            keys,
            user: self.user.as_deref(),
            client: self.client.as_deref(),
            connection: self.connection.as_ref().map(|it| it.id()),
            revision: self.engine.current_revision().0,
            front: None,
        }
    }

    /// Returns whether the call has one request and one response.
    pub(super) fn is_unary(&self) -> bool {
        matches!(self.kind, CallKind::Unary | CallKind::Waiting)
    }

    /// Counts the call for automatic time again.
    pub(super) fn resume(&self) {
        self.state.lock().work.resume();
    }

    /// Does not count the call while it waits for the store, the clock or a command, and not for the wall.
    pub(super) fn park(&self) {
        let mut state = self.state.lock();
        if !state.waits_for_wall {
            state.work.park();
        }
    }

    /// Counts the call while a request of it waits for the wall.
    pub(super) fn set_waits_for_wall(&self, waits: bool) {
        let mut state = self.state.lock();
        state.waits_for_wall = waits;
        if waits {
            state.work.resume();
        }
    }

    /// Does not count the call any more, whose response has ended.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.waits_for_wall = false;
        state.work.park();
    }

    /// Sets the keys of the request, for the journal.
    pub(super) fn set_keys(&self, keys: Vec<KeyRange>) {
        self.state.lock().keys = keys;
    }

    /// Lets the clock wait for the end of the call.
    pub(super) fn set_delayed(&self, delayed: Option<Delayed>) {
        self.state.lock().delayed = delayed;
    }

    /// Returns a request with this content, for the journal. The content is copied: it is a part of a receive buffer.
    pub(super) fn keep(&self, content: Option<&Bytes>) -> Box<KeptRequest> {
        let has_secrets = self.method.is_some_and(RpcMethod::has_secrets);
        Box::new(KeptRequest {
            body: match content {
                _ if has_secrets => KeptBody::LeftOut(LeftOut::Secret),
                Some(content) => KeptBody::copy_of(content),
                None => KeptBody::LeftOut(LeftOut::Unread),
            },
            store: self.store,
            ..KeptRequest::default()
        })
    }

    /// Sets the only request, for the journal.
    pub(super) fn set_kept(&self, kept: Box<KeptRequest>) {
        self.state.lock().kept = Some(kept);
    }

    /// Notes for the journal that the services get the only request now.
    pub(super) fn set_executed(&self) {
        let before = self.engine.current_revision().0;
        let mut state = self.state.lock();
        state.before = before;
        if let Some(kept) = &mut state.kept {
            kept.is_executed = true;
        }
    }

    /// Notes the first message of the answer of the services for the journal, with its prefix. Returns its revision.
    pub(super) fn set_answer(&self, message: &Bytes) -> Option<i64> {
        let content = Message::of(message)?.content(self.bytes_max)?;
        let revision = intercept::response_revision(&content);
        let current = self.engine.current_revision().0;
        let mut state = self.state.lock();
        let before = state.before;
        let (Some(kept), Some(method)) = (&mut state.kept, self.method) else {
            return revision;
        };
        if let (KeptBody::Kept(body), Some(lease)) =
            (&kept.body, intercept::granted_lease(method, &content))
            && let Some(body) = intercept::with_lease(body, lease)
        {
            kept.body = KeptBody::Kept(body);
        }
        kept.at = revision.unwrap_or(current);
        let has_written = intercept::has_written(method, &content);
        kept.has_written = has_written.unwrap_or(kept.at > before);
        kept.answer = Some(KeptAnswer {
            outcome: Outcome::success(),
            revision,
            status: None,
        });
        revision
    }

    /// Notes for the journal that the services have answered with this outcome, unless they have sent a message.
    pub(super) fn set_answer_outcome(&self, outcome: &Outcome) {
        let current = self.engine.current_revision().0;
        let mut state = self.state.lock();
        if let Some(kept) = &mut state.kept
            && kept.answer.is_none()
        {
            kept.at = current;
            kept.answer = Some(KeptAnswer {
                outcome: outcome.clone(),
                revision: None,
                status: None,
            });
        }
    }

    /// Sets the rule that decided about the call, for the journal.
    pub(super) fn set_rule(&self, rule: RuleId) {
        self.state.lock().rule = Some(rule);
    }

    /// Ends the call with a status.
    pub(super) fn fail(&self, status: Status) {
        let task = {
            let mut state = self.state.lock();
            state.failure = Some(status);
            state.response_task.clone()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    pub(super) fn take_failure(&self) -> Option<Status> {
        self.state.lock().failure.take()
    }

    /// Replaces the answer of the call.
    pub(super) fn replace_answer(&self, status: Status) {
        self.state.lock().after = Some(status);
    }

    pub(super) fn take_replacement(&self) -> Option<Status> {
        self.state.lock().after.take()
    }

    /// Sets the task that sends the response.
    pub(super) fn register_response(&self, waker: &Waker) {
        let mut state = self.state.lock();
        if !(state.response_task.as_ref()).is_some_and(|task| task.will_wake(waker)) {
            let previous = state.response_task.replace(waker.clone());
            drop(state);
            drop(previous);
        }
    }

    /// Sets the task that reads the requests, and returns a request that was injected.
    pub(super) fn poll_injected(&self, waker: &Waker) -> Option<Bytes> {
        let mut state = self.state.lock();
        let injected = state.injected.pop_front();
        if injected.is_none() {
            let previous = state.request_task.replace(waker.clone());
            drop(state);
            drop(previous);
        }
        injected
    }

    /// Sends a request to the services that no client has sent.
    pub(super) fn inject(&self, message: Bytes) {
        let task = {
            let mut state = self.state.lock();
            state.injected.push_back(message);
            state.request_task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Adds a request on a stream that is now sent to the services.
    pub(super) fn sent(&self, request: StreamRequest) {
        self.state.lock().unanswered.push_back(request);
    }

    /// Takes the request that is answered now.
    pub(super) fn answered(&self) -> Option<StreamRequest> {
        self.state.lock().unanswered.pop_front()
    }

    pub(super) fn set_wants_progress(&self) {
        self.state.lock().wants_progress = true;
    }

    pub(super) fn wants_progress(&self) -> bool {
        self.state.lock().wants_progress
    }

    /// Returns a request on this stream.
    pub(super) fn stream_request(
        &self,
        watch: Option<WatchRequestInfo>,
        kept: Box<KeptRequest>,
        rule: Option<RuleId>,
        after: Option<Status>,
    ) -> StreamRequest {
        StreamRequest {
            watch,
            kept,
            start: Instant::now(),
            time: self.interceptor.delays.now(),
            rule,
            after,
        }
    }

    /// Returns a record of the call.
    fn record(&self, event: Event) -> Record {
        Record {
            time: self.time,
            event,
            method: self
                .method
                .map_or("unknown", |it| it.path().trim_start_matches('/')),
            client: self.client.clone(),
            user: self.user.clone(),
            connection: self.connection.as_ref().map(|it| it.id()),
            duration: self.start.elapsed(),
            ..Record::default()
        }
    }

    /// Records the end of a call, or of a stream.
    pub(super) fn record_end(&self, outcome: Option<Outcome>, revision: Option<i64>) {
        self.record_end_with(outcome, revision, None);
    }

    /// Records the end of a call, or of a stream with the reason.
    pub(super) fn record_end_with(
        &self,
        outcome: Option<Outcome>,
        revision: Option<i64>,
        reason: Option<EndReason>,
    ) {
        let is_stream = !self.is_unary();
        let mut record = self.record(if is_stream {
            Event::Ended
        } else {
            Event::Request
        });
        if let Some(outcome) = &outcome {
            self.set_answer_outcome(outcome);
        }
        {
            let mut state = self.state.lock();
            record.set_keys(&state.keys);
            record.rule = state.rule;
            record.request = state.kept.take();
        }
        if is_stream {
            record.time = self.interceptor.delays.now();
        } else {
            record.request.get_or_insert_with(|| self.keep(None));
        }
        record.outcome = outcome;
        record.revision = revision;
        record.reason = reason;
        self.interceptor.journal.append(record);
    }

    /// Records the start of a stream.
    pub(super) fn record_opened(&self) {
        self.interceptor.journal.append(self.record(Event::Opened));
    }

    /// Records an answered request on the stream.
    pub(super) fn record_request(
        &self,
        request: StreamRequest,
        outcome: Outcome,
        revision: i64,
        watch: Option<u64>,
    ) {
        let mut record = self.record(Event::Request);
        record.time = request.time;
        record.duration = request.start.elapsed();
        record.rule = request.rule;
        record.outcome = Some(outcome);
        record.revision = Some(revision);
        record.watch = watch;
        if let Some(WatchRequestInfo::Create { range, .. }) = &request.watch {
            record.set_keys(std::slice::from_ref(range));
        }
        let mut kept = request.kept;
        kept.is_on_stream = true;
        kept.is_executed = true;
        kept.at = revision;
        kept.answer = Some(KeptAnswer {
            outcome: Outcome::success(),
            revision: Some(revision),
            status: None,
        });
        record.request = Some(kept);
        self.interceptor.journal.append(record);
    }

    /// Records the end of a watch, which was open for this time of the system.
    pub(super) fn record_watch_ended(
        &self,
        watch: u64,
        open_for: Duration,
        reason: EndReason,
        outcome: Option<Outcome>,
        rule: Option<RuleId>,
    ) {
        self.interceptor.journal.append(Record {
            time: self.interceptor.delays.now(),
            watch: Some(watch),
            duration: open_for,
            reason: Some(reason),
            outcome,
            rule,
            ..self.record(Event::Ended)
        });
    }

    /// Records that a watch has sent everything up to a revision.
    pub(super) fn record_progress(&self, watch: u64, revision: i64) {
        let mut record = self.record(Event::Progress);
        record.time = self.interceptor.delays.now();
        record.watch = Some(watch);
        record.revision = Some(revision);
        let current = self.engine.current_revision().0;
        record.lag = Some((current - revision).max(0));
        self.interceptor.journal.append(record);
    }
}

/// Returns the status that an action answers with, before the call is executed.
pub(super) fn failure_of(action: &Action) -> Option<Status> {
    match action {
        Action::Error(failure) => Some(Status::new(failure.code, failure.text.clone())),
        Action::Preset(preset) => Some(preset_error(*preset).to_status()),
        _ => None,
    }
}

/// Returns the outcome in a status.
pub(super) fn outcome_of(status: &Status) -> Outcome {
    Outcome {
        code: status.code(),
        text: status.message().to_owned(),
    }
}
