//! The events of a watch, which commands and rules hold, cut and cancel.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use revstore_control::call::Call;
use revstore_control::fault::{Action, Decision, Removal, RuleId, code_of_http};
use revstore_control::journal::{EndReason, Event, KeptRequest, Outcome, Record};
use revstore_control::open::{Watch, WatchInfo, WatchStream};
use revstore_watch_cache::api::Expired;
use revstore_watch_cache::{RequestError, Revision, WatchEvent, WatchOptions};
use tokio::sync::watch;

use super::Interceptor;
use super::record::Sender;
use super::stage::StagedFront;
use crate::verbs::Events;

/// What a watch needs to be under control.
#[derive(Clone, Debug)]
pub(crate) struct WatchControl {
    pub(super) interceptor: Interceptor,
    pub(super) sender: Sender,
    pub(super) staged: Arc<StagedFront>,
    /// The rule that has decided about the request.
    pub(super) rule: Option<RuleId>,
    /// Set when the watch is open.
    pub(super) is_open: Arc<AtomicBool>,
    /// The request, for the record of the watch.
    pub(super) request: Option<Box<KeptRequest>>,
}

/// The events of a watch under control.
///
/// A held watch is not asked for events, as if its client did not read: they wait in the window that all watches of the
/// resource share. One event that a rule holds waits here.
pub(crate) struct ControlledEvents {
    events: Box<Events>,
    control: WatchControl,
    watch: Arc<Watch>,
    stream: Arc<WatchStream>,
    /// Completes when the watches of the front have ended. It is not polled again.
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    held: Option<Held>,
    /// The revision up to which a command has released events, about which rules do not decide.
    released: Revision,
    state: State,
    /// Whether the record of the end is in the journal.
    is_recorded: bool,
    since: Instant,
    /// The time of the clock at which it ends.
    deadline: Option<Duration>,
}

/// An event that a rule holds.
struct Held {
    event: WatchEvent,
    /// The end of the rule. `None` when a command has released the event: then it is sent whatever rules decide.
    until: Option<Removal>,
}

/// The state of a watch.
///
/// ```text
/// Open ──the front stops──▶ Draining ──last event, or held──▶ Ended
///  ├──end of the events, canceled──▶ Ended
///  └──cut──▶ Cut
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The front has stopped: what the events still contain is sent, up to a last bookmark. Commands have no effect.
    Draining,
    /// Nothing follows.
    Ended,
    /// The body breaks off.
    Cut,
}

impl WatchControl {
    /// Returns the events of a watch that starts after a revision, under control.
    pub(crate) fn watch(&self, mut events: Events, options: &WatchOptions) -> ControlledEvents {
        let start = match options.resource_version.parse() {
            Ok(0) | Err(_) => self.staged.revision().0,
            Ok(revision) => revision,
        };
        let now = self.interceptor.delays.now();
        let sender = &self.sender;
        let info = WatchInfo {
            client: sender.client.clone(),
            user: sender.user.clone(),
            connection: sender.connection.as_ref().map(|it| it.id()),
            key: Bytes::new(),
            range_end: Bytes::new(),
            start: start.saturating_add(1),
            front: Some(sender.object.clone()),
            is_without_bookmarks: !options.allow_bookmarks,
        };
        let stream = Arc::new(WatchStream::default());
        let watch = self.interceptor.open.watch_created(info, &stream);
        events.set_number(watch.id());
        let mut stopped: watch::Receiver<bool> = self.staged.stopped.subscribe();
        let controlled = ControlledEvents {
            events: Box::new(events),
            control: self.clone(),
            watch,
            stream,
            stopped: Box::pin(async move {
                // An error means that the front is gone.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            }),
            held: None,
            released: Revision(0),
            state: State::Open,
            is_recorded: false,
            since: Instant::now(),
            deadline: options.timeout.map(|timeout| now.saturating_add(timeout)),
        };
        // Relaxed: read by the task that drops the request, after this.
        self.is_open.store(true, Ordering::Relaxed);
        let mut opened = controlled.record(Event::Opened);
        opened.request.clone_from(&self.request);
        if let Some(request) = &mut opened.request {
            request.at = self.staged.revision().0;
        }
        controlled.append(opened);
        controlled
    }
}

impl ControlledEvents {
    /// Returns whether the body is to break off at the end of the events.
    pub(crate) fn is_cut(&self) -> bool {
        self.state == State::Cut
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.stream.register(context.waker());
        self.stream.set_idle(false);
        if self.state == State::Open && self.stopped.as_mut().poll(context).is_ready() {
            self.state = State::Draining;
        }
        match self.state {
            State::Open => self.poll_open(context),
            State::Draining => self.drain(context),
            State::Ended | State::Cut => Poll::Ready(None),
        }
    }

    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        if self.watch.take_cut() {
            return self.cut(None);
        }
        if self.watch.take_cancel() {
            return self.cancel(None);
        }
        if self.watch.take_bookmark() {
            self.events.request_bookmark();
        }
        if self.watch.take_release()
            && let Some(held) = &mut self.held
        {
            held.until = None;
            self.released = self.control.staged.revision();
            self.watch.set_held_by_rule(false);
        }
        if self.watch.is_held() {
            self.events.defer();
            return Poll::Pending;
        }
        let event = match self.held.take() {
            Some(Held { event, until: None }) => return self.send(event),
            Some(Held {
                event,
                until: Some(mut removal),
            }) => {
                if Pin::new(&mut removal).poll(context).is_pending() {
                    self.events.defer();
                    let until = Some(removal);
                    self.held = Some(Held { event, until });
                    return Poll::Pending;
                }
                self.watch.set_held_by_rule(false);
                event
            }
            None => match self.events.poll_next(context) {
                Poll::Ready(Some(event)) => event,
                Poll::Ready(None) => return self.end(),
                Poll::Pending => {
                    self.stream.set_idle(true);
                    return Poll::Pending;
                }
            },
        };
        self.decide(event, context)
    }

    /// Decides about an event.
    fn decide(&mut self, event: WatchEvent, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let interceptor = &self.control.interceptor;
        let is_released = (event.revision()).is_some_and(|revision| revision <= self.released);
        if !is_released && !interceptor.rules.is_empty() {
            let Decision {
                action, removal, ..
            } = interceptor.rules.decide_events(&self.call());
            match action {
                Some((_, Action::Hold)) => {
                    let held = removal.filter(|removal| !removal.is_removed());
                    if self.state == State::Draining && held.is_some() {
                        return self.end();
                    }
                    if let Some(removal) = held {
                        self.watch.set_held_by_rule(true);
                        let until = Some(removal);
                        self.held = Some(Held { event, until });
                        // The next poll waits for the end of the rule.
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Some((rule, Action::Cut)) => return self.cut(Some(rule)),
                Some((rule, Action::CancelCompacted)) => return self.cancel(Some(rule)),
                _ => {}
            }
        }
        self.send(event)
    }

    /// Sends an event about which was decided.
    fn send(&mut self, event: WatchEvent) -> Poll<Option<WatchEvent>> {
        if let Some(revision) = event.revision() {
            self.watch.sent(revision.0);
            let lag = (self.control.staged.revision().0 - revision.0).max(0);
            self.append(Record {
                revision: Some(revision.0),
                lag: Some(lag),
                ..self.record(Event::Progress)
            });
        }
        if let WatchEvent::Error(error) = &event {
            let reason = match error {
                RequestError::Expired(_) => EndReason::Compacted,
                _ => EndReason::Failed,
            };
            let outcome = outcome_of(error);
            self.record_end(reason, Some(outcome), None);
        }
        Poll::Ready(Some(event))
    }

    /// Sends what the watch of a front that has stopped still has: a cache that has stopped ends its watches itself, after
    /// a last bookmark. Of one that is held, nothing more is sent.
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        if self.held.take().is_some() || self.watch.is_held() {
            return self.end();
        }
        match self.events.poll_next(context) {
            Poll::Ready(Some(event)) => self.decide(event, context),
            Poll::Ready(None) => self.end(),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ends the watch after its last event.
    fn end(&mut self) -> Poll<Option<WatchEvent>> {
        self.state = State::Ended;
        let now = self.control.interceptor.delays.now();
        let reason = match *self.control.staged.ended.borrow() {
            Some(reason) => reason,
            None if self.deadline.is_some_and(|deadline| deadline <= now) => EndReason::Timeout,
            None => EndReason::ResourceGone,
        };
        self.record_end(reason, Some(Outcome::success()), None);
        Poll::Ready(None)
    }

    fn cut(&mut self, rule: Option<RuleId>) -> Poll<Option<WatchEvent>> {
        self.state = State::Cut;
        self.held = None;
        self.record_end(EndReason::Cut, None, rule);
        Poll::Ready(None)
    }

    /// Cancels the watch as if its next event were no longer in the window.
    fn cancel(&mut self, rule: Option<RuleId>) -> Poll<Option<WatchEvent>> {
        self.state = State::Ended;
        self.held = None;
        let error = RequestError::Expired(Expired::Window {
            requested: Revision(self.watch.position()),
            oldest: self.control.staged.revision(),
        });
        self.record_end(EndReason::Compacted, Some(outcome_of(&error)), rule);
        Poll::Ready(Some(WatchEvent::Error(error)))
    }

    /// Returns the watch as rules see it.
    fn call(&self) -> Call<'_> {
        self.control.sender.call(self.control.staged.revision().0)
    }

    /// Returns a record of the watch.
    fn record(&self, event: Event) -> Record {
        let WatchControl {
            interceptor,
            sender,
            ..
        } = &self.control;
        Record {
            time: interceptor.delays.now(),
            event,
            method: sender.object.verb,
            client: sender.client.clone(),
            user: sender.user.clone(),
            connection: sender.connection.as_ref().map(|it| it.id()),
            watch: Some(self.watch.id()),
            front: Some(sender.object.clone()),
            ..Record::default()
        }
    }

    fn append(&self, record: Record) {
        self.control.interceptor.journal.append(record);
    }

    /// Records the end of the watch, once.
    fn record_end(&mut self, reason: EndReason, outcome: Option<Outcome>, rule: Option<RuleId>) {
        if std::mem::replace(&mut self.is_recorded, true) {
            return;
        }
        self.append(Record {
            outcome,
            reason: Some(reason),
            rule: rule.or(self.control.rule),
            duration: self.since.elapsed(),
            status: Some(200),
            ..self.record(Event::Ended)
        });
    }
}

/// Returns the outcome of a watch that ends with an error.
fn outcome_of(error: &RequestError) -> Outcome {
    let status = error.status();
    Outcome {
        code: code_of_http(status.code),
        text: status.message,
    }
}

impl Drop for ControlledEvents {
    fn drop(&mut self) {
        let reason = *self.control.staged.ended.borrow();
        self.record_end(reason.unwrap_or(EndReason::ClientGone), None, None);
        self.control.interceptor.open.watch_ended(self.watch.id());
    }
}
