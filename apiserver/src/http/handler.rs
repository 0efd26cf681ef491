//! The way of a request: who asks, for what, may they, and which part of the server answers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use parking_lot::Mutex;
use revstore_host::config::GoDuration;
use revstore_host::net::{RequestBody, UpgradeOffer};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Query;
use revstore_watch_cache::status::{Reason, ResourceName, Status, StatusDetails};

use crate::admission::Chain;
use crate::auth::{
    Attributes, Authenticated, Authenticator, Authorizer, Client, Credentials, Impersonation,
    MASTERS, User,
};
use crate::catalog::{Catalog, Origin, Resource};
use crate::components::Components;
use crate::control::RequestControl;
use crate::decode::MAX_BODY_BYTES;
use crate::http::limits::{self};
use crate::http::reader::{self, Until};
use crate::http::{
    Accepted, Answer, Body, Exchange, Limits, RequestInfo, Target, gzip, paths, websocket,
};
use crate::metrics::{Requests, ServerMetrics, WebhookMetrics};
use crate::openapi::Documents;
use crate::quota::Grants;
use crate::storage::Storage;
use crate::stream::Workers;
use crate::verbs;
use crate::webhook::Clients;

/// Answers requests.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Authorizer,
    pub(crate) admission: Chain,
    /// What requests in flight were granted of quotas.
    pub(crate) grants: Grants,
    pub(crate) catalog: Catalog,
    pub(crate) documents: Documents,
    pub(crate) storage: Arc<Storage>,
    /// The components whose health clients can ask for.
    pub(crate) components: Components,
    pub(crate) requests: Requests,
    pub(crate) webhook_metrics: WebhookMetrics,
    pub(crate) metrics: ServerMetrics,
    pub(crate) request_timeout: Duration,
    pub(crate) min_request_timeout: Duration,
    pub(crate) limits: Limits,
    /// The part of requests over HTTP/2 after which the client is told to connect anew.
    pub(crate) goaway_chance: f64,
    pub(crate) random: Random,
    /// The threads that make lists.
    pub(crate) workers: Workers,
    /// The connections to webhooks.
    pub(crate) webhooks: Arc<Clients>,
    /// Whether the server is about to stop.
    pub(crate) is_stopping: AtomicBool,
}

/// Random numbers from 0 up to, but not, 1.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) Arc<dyn Fn() -> f64 + Send + Sync>);

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Random").finish_non_exhaustive()
    }
}

impl Front {
    /// Returns the time of day as a timestamp.
    pub(crate) fn now(&self) -> String {
        (self.storage.now())()
    }

    /// Returns the beginning and the end of a time in seconds that begins now, each in seconds since 1970 and as a
    /// timestamp.
    pub(crate) fn lifetime(&self, seconds: i64) -> ((i64, String), (i64, String)) {
        let after = Duration::from_secs(seconds.unsigned_abs());
        (
            self.storage.moment(Duration::ZERO),
            self.storage.moment(after),
        )
    }

    /// Answers one request.
    pub(crate) async fn answer(
        &self,
        request: Request<RequestBody>,
        client: &Client,
        trusted: bool,
    ) -> Answer {
        self.answer_under(request, client, trusted, None).await
    }

    /// Answers one request, of a server with control under it.
    pub(crate) async fn answer_under(
        &self,
        request: Request<RequestBody>,
        client: &Client,
        trusted: bool,
        control: Option<RequestControl>,
    ) -> Answer {
        let _in_flight = self.limits.begin();
        let started = Instant::now();
        let (mut parts, body) = request.into_parts();
        if has_malformed_escape(parts.uri.path()) {
            return Answer::text(StatusCode::BAD_REQUEST, "400 Bad Request");
        }
        let version = parts.version;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::new(&parts.method, parts.uri.path(), &query);
        let mut exchange = Exchange {
            user: User::anonymous(),
            method: parts.method,
            info,
            query,
            headers: parts.headers,
            is_known: false,
            upgrade: parts.extensions.remove::<UpgradeOffer>(),
            warnings: Mutex::default(),
            annotations: Mutex::default(),
            grants: Mutex::default(),
            deadline: None,
            has_empty_overhead: false,
            control,
        };
        let mut seats = None;
        let mut is_initial_watch = false;
        let is_reading = ["get", "list", "head"].contains(&exchange.info.verb);
        let running = (exchange.info.verb != "watch").then(|| self.requests.start(!is_reading));
        let answered = match self.admit(&mut exchange, client, trusted).await {
            Ok(()) => {
                if let Some(work) = limits::work(self, &exchange) {
                    is_initial_watch = work.is_initial_watch;
                    let Ok(entered) = self.limits.enter(work).await else {
                        exchange.is_known = self.is_known(&exchange.info);
                        self.requests.dropped(&exchange.labels());
                        return Answer::too_many_requests();
                    };
                    seats = entered;
                }
                self.dispatch_in_time(&mut exchange, body).await
            }
            Err(status) => Err(status),
        };
        let answer = answered.unwrap_or_else(|error| {
            let accepted = Accepted::of_error(&exchange.headers, &exchange.query);
            Answer::error(accepted, &error.status())
        });
        let mut answer = answer.warnings(&exchange.warnings.lock());
        if exchange.info.verb == "get" {
            answer = gzip::compressed(answer, &exchange.headers);
        }
        if exchange.method == Method::HEAD {
            answer.body = Body::empty();
        }
        let until = match exchange.info.verb {
            "watch" => Until::FirstEvents,
            _ => Until::After(self.request_timeout),
        };
        // Other watches were opened before their first event.
        seats = seats.filter(|_| exchange.info.verb != "watch" || is_initial_watch);
        answer.body = reader::watched(answer.body, seats, until);
        if version == Version::HTTP_2 && self.goaway_chance > (self.random.0)() {
            // The connection ends after the requests on it.
            answer = answer.header(CONNECTION, HeaderValue::from_static("close"));
        }
        let recording = self
            .requests
            .answer(&exchange.labels(), answer.status, started);
        answer.body = answer.body.recorded(recording, running);
        answer
    }

    /// Finds the user of a request, and checks that the request is allowed.
    ///
    /// # Errors
    /// 401 or 403.
    async fn admit(
        &self,
        exchange: &mut Exchange,
        client: &Client,
        trusted: bool,
    ) -> Result<(), RequestError> {
        let started = Instant::now();
        let attributes = exchange.info.attributes();
        let authenticated = self
            .authenticate(&mut exchange.headers, client, trusted, attributes)
            .await;
        let after = Instant::now();
        let user = match &authenticated {
            Ok(user) => Some(&*user.name),
            // What impersonation fails with comes after the authentication.
            Err(error) if error.status().code != 401 => Some(""),
            Err(_) => None,
        };
        self.metrics.authenticated(user, after - started);
        exchange.user = authenticated?;
        let checked = self.authorizer.check(&exchange.user, attributes);
        let by_roles = (!exchange.user.is_in(MASTERS)).then(|| self.authorizer.has_roles());
        self.metrics
            .authorized(checked.is_ok(), by_roles, after.elapsed());
        checked
    }

    /// Finds the user of a request, who may make it in the name of another one.
    ///
    /// # Errors
    /// 401, or what impersonation fails with.
    pub(crate) async fn authenticate(
        &self,
        headers: &mut HeaderMap,
        client: &Client,
        trusted: bool,
        attributes: Attributes<'_>,
    ) -> Result<User, RequestError> {
        if websocket::move_token(headers).is_err() {
            return Err(Status::unauthorized().into());
        }
        let without = || {
            if trusted {
                return Some(User::administrator());
            }
            self.authenticator.has_anonymous.then(User::anonymous)
        };
        let user = match Authenticator::credentials(headers, client, without) {
            Credentials::User(user) => user,
            Credentials::Invalid => return Err(Status::unauthorized().into()),
            Credentials::Token(token) => {
                let own = &self.authenticator.service_accounts.audiences;
                match self.user_of_token(&token, own).await {
                    Ok(authenticated) => authenticated.user,
                    Err(_) => return Err(Status::unauthorized().into()),
                }
            }
        };
        match Impersonation::of_headers(headers) {
            Ok(None) => Ok(user),
            Ok(Some(other)) => other.check(&self.authorizer, &user, attributes),
            Err(message) => Err(Status::bad_request(message).into()),
        }
    }

    /// Returns the user of a bearer token that is for one of the audiences.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn user_of_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Authenticated, String> {
        let (now, is_remote) = (self.lifetime(0).0.0, self.storage.engine.is_none());
        self.authenticator
            .user_of_token(token, audiences, &self.catalog, is_remote, now)
            .await
    }

    /// Answers a request within its time limit. The time of watches is limited by themselves.
    ///
    /// # Errors
    /// 504 after the time limit. A write may have succeeded nevertheless.
    async fn dispatch_in_time(
        &self,
        exchange: &mut Exchange,
        body: RequestBody,
    ) -> Result<Answer, RequestError> {
        if exchange.info.verb == "watch" {
            return self.dispatch(exchange, body).await;
        }
        let asked = match exchange.query.first("timeout").unwrap_or_default() {
            "" => None,
            text => Some(GoDuration::parse(text).map_err(|error| {
                let message = format!("invalid timeout specified in the request URL: {error}");
                RequestError::BadRequest(message)
            })?),
        };
        let asked = asked
            .and_then(GoDuration::positive)
            .unwrap_or(self.request_timeout);
        let limit = asked.min(self.request_timeout);
        exchange.deadline = Some(Instant::now() + limit);
        let answered = tokio::time::timeout(limit, self.dispatch(exchange, body)).await;
        answered.unwrap_or_else(|_| {
            self.requests
                .terminated(&exchange.labels(), StatusCode::GATEWAY_TIMEOUT);
            let message = "request did not complete within the allotted timeout";
            Err(Status::timeout(message).into())
        })
    }

    /// Returns whether a request is for a resource that exists.
    fn is_known(&self, info: &RequestInfo) -> bool {
        info.target.as_ref().is_some_and(|target| {
            let (group, version) = (&target.group, &target.version);
            let found = self.catalog.find_served(group, version, &target.resource);
            found.is_ok_and(|resource| has_subresource(&resource, target))
        })
    }

    /// Returns the time after which a watch ends that does not say it.
    pub(crate) fn watch_timeout(&self) -> Duration {
        self.min_request_timeout.mul_f64(1.0 + (self.random.0)())
    }

    /// Begins to refuse the question whether the server is ready, before it stops.
    pub(crate) fn begin_stop(&self) {
        // Relaxed: the flag orders nothing.
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server is about to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        // Relaxed: as above.
        self.is_stopping.load(Ordering::Relaxed)
    }

    async fn dispatch(
        &self,
        exchange: &mut Exchange,
        body: RequestBody,
    ) -> Result<Answer, RequestError> {
        let Some(target) = exchange.info.target.clone() else {
            return paths::answer(self, exchange).await;
        };
        let resource =
            match self
                .catalog
                .find_served(&target.group, &target.version, &target.resource)
            {
                Ok(resource) => resource,
                // Unknown groups, and unknown resources of custom groups.
                Err(true) => return Ok(Answer::page_not_found()),
                Err(false) => return Err(Status::unknown_resource().into()),
            };
        if exchange.info.path.starts_with("//") {
            return Ok(Answer::page_not_found());
        }
        // An empty namespace is all of them.
        let path = exchange.info.path.replacen("/namespaces//", "/", 1);
        if path.trim_end_matches('/').contains("//") {
            return Err(Status::unknown_resource().into());
        }
        if let Err(error) = resource.check_path(exchange.info.verb, &target) {
            // WC-401.
            let is_unknown = resource.origin == Origin::Custom && error.code() == 404;
            return if is_unknown {
                Ok(Answer::page_not_found())
            } else {
                Err(error)
            };
        }
        exchange.is_known = has_subresource(&resource, &target);
        if let Some(warning) = resource.rules.kind_warning()
            && is_routed(&resource, exchange, &target)
        {
            exchange.warn(warning);
        }
        verbs::answer(self, exchange, &resource, &target, body).await
    }
}

/// Returns whether a request gets so far that it is warned of its kind. A built-in kind has no route for other methods.
fn is_routed(resource: &Resource, exchange: &Exchange, target: &Target) -> bool {
    let verb = exchange.info.verb;
    let has_verb = !target.subresource.is_empty() || resource.verbs.iter().any(|it| *it == verb);
    let has_method = (has_verb || verb == "watch") && exchange.method != Method::HEAD;
    resource.origin == Origin::Custom || exchange.is_known && has_method
}

/// Returns whether a target is an object itself, or a subresource that exists.
fn has_subresource(resource: &Resource, target: &Target) -> bool {
    target.subresource.is_empty() || resource.subresource(&target.subresource).is_some()
}

/// Returns whether a path has a percent sign that begins no escape sequence.
fn has_malformed_escape(path: &str) -> bool {
    let mut parts = path.split('%');
    // The part before the first percent sign.
    parts.next();
    parts.any(|part| {
        let digits = part.as_bytes().get(..2);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Returns the error of a verb that a path does not have.
pub(crate) fn method_not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::failure(Reason::MethodNotAllowed, message).with_details(StatusDetails::default())
}

/// Returns the error of a verb that a custom resource does not have.
pub(crate) fn verb_not_supported(resource: &ResourceName, verb: &str) -> Status {
    Status::method_not_allowed(resource, verb)
}

/// Reads the body of a request.
///
/// # Errors
/// 413 for a body above [`MAX_BODY_BYTES`], and 400 if the client breaks off.
pub(crate) async fn read_body(body: RequestBody) -> Result<Bytes, RequestError> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Status::request_entity_too_large(MAX_BODY_BYTES).into())
        }
        Err(error) => Err(Status::bad_request(error.to_string()).into()),
    }
}

/// The status of an object that was created.
pub(crate) const CREATED: StatusCode = StatusCode::CREATED;
