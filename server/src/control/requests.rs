//! The messages of a call on their way to the services. Faults are decided here.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use revstore_control::{
    fault::{Action, Decision, Delay, DelayOf, Delayed, Removal},
    journal::KeptRequest,
};
use revstore_grpc::{
    EtcdError, ShutdownBegun,
    intercept::{WatchRequestInfo, request_keys},
};
use tokio::time::{Sleep, sleep};
use tonic::Status;

use super::{
    call::{CallInfo, CallKind, failure_of},
    messages::{Message, Messages},
};

/// A request body that decides about each message before the services get it: about the only one of a call, about each
/// creation of a watch and about each keep-alive.
///
/// It reads one message beyond what the services take, so a client that sends more waits as without it.
#[derive(Debug)]
pub(super) struct ControlledRequest<B> {
    inner: B,
    call: Arc<CallInfo>,
    messages: Messages,
    /// What the services get next.
    ready: VecDeque<Bytes>,
    waiting: Option<Waiting>,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Each message is looked at.
    Inspect,
    /// What comes is passed on: the rest of a call with one message, or what the services refuse.
    Pass,
    /// Nothing is passed on: the call ends.
    Blocked,
    /// The client has ended the requests of a watch stream, which goes on: only injected messages follow.
    HalfClosed,
}

/// A message about which was decided.
#[derive(Debug)]
struct Taken {
    message: Message,
    /// Of the creation of a watch.
    watch: Option<WatchRequestInfo>,
    /// Of a request on a stream, for the journal.
    kept: Option<Box<KeptRequest>>,
}

/// A message that waits for the end of its delays.
#[derive(Debug)]
struct Waiting {
    taken: Taken,
    delays: VecDeque<DelayOf>,
    current: Option<CurrentDelay>,
    /// Of a delay that has ended on the clock.
    delayed: Option<Delayed>,
    decision: Decision,
    shutdown: ShutdownBegun,
}

/// A delay, which also ends with its rule.
#[derive(Debug)]
struct CurrentDelay {
    time: DelayTime,
    removal: Removal,
}

#[derive(Debug)]
enum DelayTime {
    Clock(Delay),
    Wall(Pin<Box<Sleep>>),
}

impl<B> ControlledRequest<B> {
    pub(super) fn new(inner: B, call: Arc<CallInfo>) -> Self {
        let mode = match call.method {
            Some(_) => Mode::Inspect,
            None => Mode::Pass,
        };
        Self {
            inner,
            call,
            messages: Messages::default(),
            ready: VecDeque::new(),
            waiting: None,
            mode,
        }
    }

    /// Looks at a message, and decides about it.
    fn take(&mut self, message: Message) {
        let call = &self.call;
        call.interceptor.open.activity().touch();
        let content = message.content(call.bytes_max);
        let mut watch = None;
        let keys = match (call.kind, call.method, &content) {
            (CallKind::Watch, _, Some(content)) => match WatchRequestInfo::of(content) {
                Some(WatchRequestInfo::Create {
                    key,
                    range_end,
                    range,
                    start,
                }) => {
                    let keys = vec![range.clone()];
                    watch = Some(WatchRequestInfo::Create {
                        key,
                        range_end,
                        range,
                        start,
                    });
                    keys
                }
                // Rules are about creations.
                other => {
                    if other == Some(WatchRequestInfo::Progress) {
                        call.set_wants_progress();
                    }
                    return self.ready.push_back(message.0);
                }
            },
            (CallKind::KeepAlive, ..) | (_, None, _) | (_, _, None) => Vec::new(),
            (_, Some(method), Some(content)) => request_keys(method, content),
        };
        let mut decision = call.interceptor.rules.decide(&call.for_rules(&keys));
        let delays = std::mem::take(&mut decision.delays);
        let mut kept = None;
        match call.kind {
            CallKind::Watch | CallKind::KeepAlive => kept = Some(call.keep(content.as_ref())),
            CallKind::Unary | CallKind::Waiting => call.set_kept(call.keep(content.as_ref())),
            CallKind::ServerStream => {}
        }
        if !self.is_stream() {
            call.set_keys(keys);
            self.mode = Mode::Pass;
        }
        let taken = Taken {
            message,
            watch,
            kept,
        };
        if delays.is_empty() {
            return self.apply(taken, decision);
        }
        self.waiting = Some(Waiting {
            taken,
            delays: delays.into(),
            current: None,
            delayed: None,
            decision,
            shutdown: call.node_shutdown.begun(),
        });
    }

    fn is_stream(&self) -> bool {
        matches!(self.call.kind, CallKind::Watch | CallKind::KeepAlive)
    }

    /// Executes what was decided, after the delays.
    fn apply(&mut self, taken: Taken, decision: Decision) {
        let call = &self.call;
        let Decision {
            action, removal, ..
        } = decision;
        let rule = action.as_ref().map(|(rule, _)| *rule);
        if let Some(rule) = rule {
            call.set_rule(rule);
        }
        let mut after = None;
        match action.map(|(_, action)| action) {
            Some(Action::ErrorAfter(failure)) => {
                let status = Status::new(failure.code, failure.text);
                if self.is_stream() {
                    after = Some(status);
                } else {
                    call.replace_answer(status);
                }
            }
            Some(Action::GoAway) => {
                if let Some(connection) = &call.connection {
                    connection.commands().go_away();
                }
            }
            Some(Action::LoseKeepAlive) if call.kind == CallKind::KeepAlive => return,
            Some(Action::Reset) => {
                if let Some(connection) = &call.connection {
                    connection.commands().reset();
                }
                return self.block();
            }
            Some(Action::BlackHole) => {
                if let (Some(connection), Some(removal)) = (&call.connection, removal) {
                    connection.commands().black_hole(removal);
                }
                return self.block();
            }
            Some(action) => {
                if let Some(status) = failure_of(&action) {
                    call.fail(status);
                    return self.block();
                }
            }
            None => {}
        }
        match taken.kept {
            Some(kept) => call.sent(call.stream_request(taken.watch, kept, rule, after)),
            None => call.set_executed(),
        }
        self.ready.push_back(taken.message.0);
    }

    /// Passes nothing more on.
    fn block(&mut self) {
        self.mode = Mode::Blocked;
        self.ready.clear();
        self.messages = Messages::default();
    }

    /// Waits for the end of the delays of a message.
    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(waiting) = &mut self.waiting else {
            return Poll::Ready(());
        };
        if Pin::new(&mut waiting.shutdown).poll(context).is_ready() {
            self.waiting = None;
            self.call.set_waits_for_wall(false);
            self.call.fail(EtcdError::Stopped.to_status());
            self.block();
            return Poll::Ready(());
        }
        ready!(waiting.poll_delays(context, &self.call));
        if let Some(waiting) = self.waiting.take() {
            self.call.resume();
            self.apply(waiting.taken, waiting.decision);
            // Other calls may go on for long.
            if self.call.kind == CallKind::Unary && self.mode == Mode::Pass {
                self.call.set_delayed(waiting.delayed);
            }
        }
        Poll::Ready(())
    }
}

impl Waiting {
    fn poll_delays(&mut self, context: &mut Context<'_>, call: &CallInfo) -> Poll<()> {
        loop {
            if let Some(current) = &mut self.current {
                let removed = Pin::new(&mut current.removal).poll(context);
                let is_on_clock = matches!(current.time, DelayTime::Clock(_));
                let passed = match &mut current.time {
                    DelayTime::Clock(delay) => Pin::new(delay).poll(context),
                    DelayTime::Wall(sleep) => sleep.as_mut().poll(context).map(|()| None),
                };
                // Time can pass only when the delay before this one is not waited for.
                self.delayed = None;
                if let Poll::Ready(delayed) = passed {
                    self.delayed = delayed;
                } else if removed.is_pending() {
                    // Automatic time passes while a call waits for it.
                    call.set_waits_for_wall(!is_on_clock);
                    call.park();
                    return Poll::Pending;
                }
                self.current = None;
                call.set_waits_for_wall(false);
            }
            let Some(next) = self.delays.pop_front() else {
                return Poll::Ready(());
            };
            self.current = Some(CurrentDelay {
                time: if next.wall {
                    DelayTime::Wall(Box::pin(sleep(next.time)))
                } else {
                    DelayTime::Clock(call.interceptor.delays.wait(next.time, next.rule))
                },
                removal: next.removal,
            });
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ControlledRequest<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let body = &mut *self;
        loop {
            if let Some(bytes) = body.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if body.poll_waiting(context).is_pending() {
                // A command to a watch of the stream does not wait for a creation that a rule delays.
                return match body.call.poll_injected(context.waker()) {
                    Some(injected) => Poll::Ready(Some(Ok(Frame::data(injected)))),
                    None => Poll::Pending,
                };
            }
            if !body.ready.is_empty() {
                continue;
            }
            match body.mode {
                Mode::Blocked => return Poll::Pending,
                Mode::Pass => {
                    let rest = body.messages.rest();
                    if !rest.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(rest))));
                    }
                    return Pin::new(&mut body.inner).poll_frame(context);
                }
                Mode::Inspect | Mode::HalfClosed => {}
            }
            // The client is in the middle of no message: all that came before was passed on.
            if body.call.kind == CallKind::Watch
                && let Some(injected) = body.call.poll_injected(context.waker())
            {
                return Poll::Ready(Some(Ok(Frame::data(injected))));
            }
            if body.mode == Mode::HalfClosed {
                return Poll::Pending;
            }
            match body.messages.next(body.call.bytes_max) {
                Ok(Some(message)) => {
                    body.take(message);
                    continue;
                }
                Ok(None) => {}
                // The services refuse it.
                Err(_) => {
                    body.mode = Mode::Pass;
                    continue;
                }
            }
            match ready!(Pin::new(&mut body.inner).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => body.messages.push(data),
                    Err(trailers) => {
                        body.mode = Mode::Pass;
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                end => {
                    let rest = body.messages.rest();
                    if rest.is_empty() && end.is_none() && body.call.kind == CallKind::Watch {
                        body.mode = Mode::HalfClosed;
                        continue;
                    }
                    if rest.is_empty() || end.is_some() {
                        return Poll::Ready(end);
                    }
                    // The services get the end at the next poll.
                    body.mode = Mode::Pass;
                    return Poll::Ready(Some(Ok(Frame::data(rest))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_injected = self.call.kind == CallKind::Watch && self.mode != Mode::Pass;
        !is_injected
            && self.ready.is_empty()
            && self.waiting.is_none()
            && self.messages.is_empty()
            && self.mode != Mode::Blocked
            && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl<B> Drop for ControlledRequest<B> {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            self.call.set_waits_for_wall(false);
        }
    }
}
