//! One request to a server with control. Faults are decided here.

use std::convert::Infallible;
use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::service::Service;
use revstore_control::call::{Call, FrontObject, client_name};
use revstore_control::fault::{Action, DelayOf, Delayed};
use revstore_control::open::{Connection, Work};
use revstore_host::net::{ClientIdentity, RequestBody};
use revstore_watch_cache::api::Query;
use revstore_watch_cache::status::Status;
use revstore_watch_cache::{RequestError, Revision};

use super::Stage;
use super::history::{self, check_not_future};
use super::record::{RequestRecord, Sender, created_name, finished};
use super::stage::StagedFront;
use super::statuses::{failure_status, status_of};
use super::watch::WatchControl;
use crate::auth::Client;
use crate::http::{Accepted, Answer, Body, RequestInfo};

/// The service of one connection of a server with control.
#[derive(Clone, Debug)]
pub(crate) struct ControlledService {
    stage: Stage,
    connection: Option<Arc<Connection>>,
    client: Arc<Client>,
    trusted: bool,
}

/// What control adds to a request that the front answers.
#[derive(Debug)]
pub(crate) struct RequestControl {
    /// The revision as of which an object or a list is read.
    pub(crate) at: Option<Revision>,
    /// What the events of a watch go through.
    pub(crate) watch: WatchControl,
}

/// What is decided about a request.
enum Decided {
    /// It is answered with this, without the front.
    Answer(Status),
    /// The front answers it.
    Execute {
        /// As of this revision.
        at: Option<Revision>,
        /// Of a delay that has ended on the clock, which waits for the request.
        delayed: Option<Delayed>,
        /// The answer is replaced by this.
        replacement: Option<Status>,
        /// Whether the answer is the last one of the connection.
        is_last: bool,
    },
    /// It is never answered: its connection is reset, or neither reads nor writes.
    Lost,
}

impl Sender {
    /// Returns the request as rules see it.
    pub(super) fn call(&self, revision: i64) -> Call<'_> {
        Call {
            user: self.user.as_deref(),
            client: self.client.as_deref(),
            connection: self.connection.as_ref().map(|it| it.id()),
            revision,
            front: Some(self.object.for_rules()),
            ..Call::default()
        }
    }
}

impl ControlledService {
    /// Creates the service of a connection with this client. `trusted` is whether requests without credentials are those
    /// of an administrator.
    pub(crate) fn new(stage: &Stage, client: &ClientIdentity, trusted: bool) -> Self {
        let open = &stage.interceptor().open;
        Self {
            connection: client.connection.and_then(|id| open.connection(id).ok()),
            stage: stage.clone(),
            client: Arc::new(Client::new(client)),
            trusted,
        }
    }

    async fn answer(self, request: Request<RequestBody>) -> Answer {
        let staged = self.stage.current();
        let interceptor = self.stage.interceptor();
        let mut work = interceptor.open.activity().start();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query);
        let sender = self.sender(&staged, &parts.headers, &info).await;
        let mut record = RequestRecord::new(interceptor.clone(), sender.clone(), &parts);
        let mut body = record.copy(body);
        let decided = self
            .decide(
                &staged,
                &mut record,
                &mut work,
                &parts.headers,
                &info,
                &mut body,
            )
            .await;
        let (at, replacement, delayed, is_last) = match decided {
            Ok(Decided::Execute {
                at,
                replacement,
                delayed,
                is_last,
            }) => (at, replacement, delayed, is_last),
            Ok(Decided::Answer(status)) => {
                let answer = error(&parts.headers, &query, &status);
                return finished(answer, record, work, staged);
            }
            Ok(Decided::Lost) => {
                drop(record);
                drop(work);
                return future::pending().await;
            }
            Err(refused) => {
                let answer = error(&parts.headers, &query, &refused.status());
                return finished(answer, record, work, staged);
            }
        };
        record.set_executed(staged.revision());
        let headers = replacement.as_ref().map(|_| parts.headers.clone());
        let control = RequestControl {
            at,
            watch: WatchControl {
                interceptor: interceptor.clone(),
                sender,
                staged: staged.clone(),
                rule: record.rule,
                is_open: record.is_watch_open.clone(),
                request: record.opened_watch(),
            },
        };
        let request = Request::from_parts(parts, body);
        let front = &staged.front;
        let answered = front.answer_under(request, &self.client, self.trusted, Some(control));
        let mut answer = answered.await;
        drop(delayed);
        record.set_answer(&answer, staged.revision());
        if let Some((status, headers)) = replacement.zip(headers) {
            answer = error(&headers, &query, &status);
        }
        if is_last {
            // HTTP/1.1 has no GOAWAY: a client that does not get this sends its next request into a closed connection.
            let close = HeaderValue::from_static("close");
            answer.headers.push((CONNECTION, close));
        }
        finished(answer, record, work, staged)
    }

    /// Returns who sends a request, and what it is about. The user is the one in whose name it is made; without valid
    /// credentials, there is none.
    async fn sender(
        &self,
        staged: &StagedFront,
        headers: &HeaderMap,
        info: &RequestInfo,
    ) -> Sender {
        let client = client_name(headers);
        if let Some(connection) = &self.connection {
            connection.count_request(client.as_ref());
        }
        let mut headers = headers.clone();
        let authenticated = staged
            .front
            .authenticate(&mut headers, &self.client, self.trusted, info.attributes())
            .await;
        Sender {
            client,
            user: authenticated.ok().map(|user| user.name.as_str().into()),
            connection: self.connection.clone(),
            object: Arc::new(object(info)),
        }
    }

    async fn decide(
        &self,
        staged: &Arc<StagedFront>,
        record: &mut RequestRecord,
        work: &mut Work,
        headers: &HeaderMap,
        info: &RequestInfo,
        body: &mut RequestBody,
    ) -> Result<Decided, RequestError> {
        let at = history::requested(headers, info)?;
        if let Some(revision) = at {
            check_not_future(revision, staged.revision())?;
        }
        let call = record.sender.call(staged.revision().0);
        let decision = self.stage.interceptor().rules.decide(&call);
        let mut delayed = None;
        if !decision.delays.is_empty() {
            record.rule = decision.delays.last().map(|delay| delay.rule);
            delayed = self.wait(staged, work, decision.delays).await;
        }
        let execute = |at, delayed, is_last| Decided::Execute {
            at,
            replacement: None,
            delayed,
            is_last,
        };
        let Some((rule, action)) = decision.action else {
            return Ok(execute(at, delayed, false));
        };
        record.rule = Some(rule);
        let name = failed_name(&action, info, body).await;
        if let Some(status) = status_of(&action, info, &name) {
            return Ok(Decided::Answer(status));
        }
        let commands = self.connection.as_ref().map(|it| it.commands());
        match (&action, commands) {
            (Action::ErrorAfter(failure), _) => {
                let replacement = Some(failure_status(failure));
                return Ok(Decided::Execute {
                    at,
                    replacement,
                    delayed,
                    is_last: false,
                });
            }
            (Action::Reset, Some(commands)) => {
                commands.reset();
                return Ok(Decided::Lost);
            }
            (Action::BlackHole, Some(commands)) => {
                if let Some(removal) = decision.removal {
                    commands.black_hole(removal);
                }
                return Ok(Decided::Lost);
            }
            (Action::GoAway, Some(commands)) => commands.go_away(),
            (
                Action::Stale {
                    revision: Some(revision),
                },
                _,
            ) if at.is_none() && history::is_read(info) => {
                let stale = Revision(*revision).min(staged.revision());
                return Ok(execute(Some(stale), delayed, false));
            }
            _ => {}
        }
        let is_last = matches!(action, Action::GoAway);
        Ok(execute(at, delayed, is_last))
    }

    /// Waits for the delays of a request. Each ends with its rule, and all with the front. Returns the right of the last one
    /// to go on at its time.
    async fn wait(
        &self,
        staged: &StagedFront,
        work: &mut Work,
        delays: Vec<DelayOf>,
    ) -> Option<Delayed> {
        let interceptor = self.stage.interceptor();
        let mut ended = staged.ended.subscribe();
        let mut delayed = None;
        for delay in delays {
            let on_clock = interceptor.delays.wait(delay.time, delay.rule);
            // Time can pass only when the delay before this one is not waited for.
            drop(delayed.take());
            // Time of the clock can only pass while the request does not count as under way.
            if !delay.wall {
                work.park();
            }
            let passed = async {
                if delay.wall {
                    tokio::time::sleep(delay.time).await;
                    None
                } else {
                    on_clock.await
                }
            };
            tokio::select! {
                passed = passed => delayed = passed,
                () = delay.removal => {}
                _ = ended.wait_for(Option::is_some) => {}
            }
            work.resume();
        }
        delayed
    }
}

/// Returns what a request is about, for rules and records.
fn object(info: &RequestInfo) -> FrontObject {
    let Some(target) = &info.target else {
        return FrontObject {
            verb: info.verb,
            resource: info.path.clone(),
            ..FrontObject::default()
        };
    };
    let mut resource = target.resource.clone();
    if !target.group.is_empty() {
        resource = format!("{resource}.{}", target.group);
    }
    if !target.subresource.is_empty() {
        resource = format!("{resource}/{}", target.subresource);
    }
    let name = match &*target.name {
        "" => &target.selected_name,
        name => name,
    };
    FrontObject {
        verb: info.verb,
        resource,
        namespace: target.shown_namespace().to_owned(),
        name: name.to_owned(),
    }
}

/// Returns the name of the object for an error. That of an object that exists already is in the body of its creation.
async fn failed_name(action: &Action, info: &RequestInfo, body: &mut RequestBody) -> String {
    let name = info.target.as_ref().map_or("", |target| &*target.name);
    if name.is_empty()
        && info.verb == "create"
        && matches!(action, Action::Http { status: 409, .. })
    {
        return created_name(body).await;
    }
    name.to_owned()
}

/// Returns an error in the media type that the client accepts.
fn error(headers: &HeaderMap, query: &Query, status: &Status) -> Answer {
    Answer::error(Accepted::of_error(headers, query), status)
}

impl Service<Request<RequestBody>> for ControlledService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<RequestBody>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.answer(request).await.into_response()) })
    }
}
