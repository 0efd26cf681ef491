//! Calls of an etcd cluster: deadlines, the choice of an endpoint, and tokens of a user.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use parking_lot::Mutex;
use prost::Message;
use revstore_proto::etcdserverpb::{
    AuthenticateRequest, AuthenticateResponse, StatusRequest, StatusResponse,
};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{AsciiMetadataValue, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Request, Status};
use tonic_prost::ProstCodec;

use super::options::{EtcdOptions, EtcdOptionsError, chain};
use crate::wake::timer_queue::TimerQueue;

/// The maximum size in bytes of a message from etcd, as in etcd's own client. The default of gRPC is
/// 4 MiB. A page of large objects, or a watch response with one large revision, can be larger: etcd
/// limits neither.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// The methods that are called.
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(super) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// A client of an etcd cluster.
///
/// Calls use one endpoint until a call fails there for a reason that another endpoint may not have;
/// then they use the next one.
#[derive(Debug)]
pub(super) struct EtcdClient {
    members: Box<[Member]>,
    /// The position of the endpoint in use.
    current: AtomicUsize,
    user: Option<(String, String)>,
    /// The token of the user. The lock is held during a request for a token, so that concurrent calls
    /// share it.
    token: tokio::sync::Mutex<Token>,
    pub(super) request_timeout: Duration,
    pub(super) timers: Arc<TimerQueue>,
}

/// The token of a user.
#[derive(Debug)]
enum Token {
    /// It must be requested.
    Unknown,
    /// There is none, because authentication is disabled.
    NotNeeded,
    Known(AsciiMetadataValue),
}

/// One endpoint.
#[derive(Debug)]
pub(super) struct Member {
    url: String,
    endpoint: Endpoint,
    /// The connection for requests, which is made by the first one, because it needs the runtime of
    /// the caller.
    /// The lock is held for one lookup or change.
    channel: Mutex<Option<Channel>>,
}

/// The error of a call at an endpoint.
#[derive(Debug)]
pub(super) struct CallError {
    url: String,
    pub(super) status: Status,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, status } = self;
        write!(f, "{url}: {}", status.message())?;
        if let Some(cause) = std::error::Error::source(status) {
            write!(f, ": {}", chain(cause))?;
        }
        Ok(())
    }
}

/// When a call that failed is repeated at the next endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Whenever another endpoint may succeed, because the call changes nothing.
    Always,
    /// Only if the call was not sent, because it would be executed twice.
    IfNotSent,
}

/// A connection to an endpoint.
#[derive(Clone)]
pub(super) struct Connection(Grpc<Channel>);

impl Member {
    /// Returns the connection for requests.
    fn connection(&self) -> Connection {
        let mut channel = self.channel.lock();
        let channel = channel.get_or_insert_with(|| self.endpoint.connect_lazy());
        Connection::over(channel.clone())
    }

    /// Returns a new connection, for a watch: a watch that is not read blocks its connection.
    pub(super) fn own_connection(&self) -> Connection {
        Connection::over(self.endpoint.connect_lazy())
    }

    /// Lets the next request connect again. The requests that use the connection keep it.
    fn disconnect(&self) {
        *self.channel.lock() = None;
    }
}

impl Connection {
    fn over(channel: Channel) -> Self {
        Self(Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    async fn unary<Q, R>(&mut self, method: &'static str, request: Request<Q>) -> Result<R, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        self.0.ready().await.map_err(not_ready)?;
        let path = PathAndQuery::from_static(method);
        let response = self.0.unary(request, path, ProstCodec::default()).await?;
        Ok(response.into_inner())
    }

    /// Returns the version of the server.
    pub(super) async fn version(&mut self) -> Result<String, Status> {
        let request = Request::new(StatusRequest::default());
        let status: StatusResponse = self.unary(STATUS, request).await?;
        Ok(status.version)
    }

    /// Opens a stream in both directions.
    pub(super) async fn streaming<Q, R>(
        &mut self,
        method: &'static str,
        requests: Request<impl futures_core::Stream<Item = Q> + Send + 'static>,
    ) -> Result<tonic::Streaming<R>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        self.0.ready().await.map_err(not_ready)?;
        let path = PathAndQuery::from_static(method);
        let codec = ProstCodec::default();
        let response = self.0.streaming(requests, path, codec).await?;
        Ok(response.into_inner())
    }
}

fn not_ready(error: tonic::transport::Error) -> Status {
    Status::from_error(Box::new(error))
}

impl EtcdClient {
    pub(super) fn new(
        options: &EtcdOptions,
        timers: Arc<TimerQueue>,
    ) -> Result<Self, EtcdOptionsError> {
        let member = |(url, endpoint)| Member {
            url,
            endpoint,
            channel: Mutex::new(None),
        };
        Ok(Self {
            members: options.endpoints()?.into_iter().map(member).collect(),
            current: AtomicUsize::new(0),
            user: options.user.clone(),
            token: tokio::sync::Mutex::new(Token::Unknown),
            request_timeout: options.request_timeout,
            timers,
        })
    }

    /// Calls a method. Fails after the request timeout.
    pub(super) async fn call<Q, R>(
        &self,
        method: &'static str,
        message: Q,
        repeat: Repeat,
    ) -> Result<R, CallError>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let message = &message;
        let call = self.over_members(repeat, |member| {
            Box::pin(async move {
                let mut connection = member.connection();
                let mut attempts = 0;
                loop {
                    let message = message.clone();
                    let request = self.authorized(&mut connection, message).await?;
                    match connection.unary(method, request).await {
                        Err(status) if attempts == 0 && self.discards_token(&status).await => {
                            attempts += 1;
                        }
                        other => return other,
                    }
                }
            })
        });
        Ok(call.await?.1)
    }

    /// Calls `send` with the endpoint in use, and with the next ones while the call fails and may be
    /// repeated. Also returns the position of the endpoint.
    pub(super) async fn over_members<'a, T>(
        &'a self,
        repeat: Repeat,
        send: impl Fn(&'a Member) -> BoxFuture<'a, Result<T, Status>>,
    ) -> Result<(usize, T), CallError> {
        let due = self.timers.now().saturating_add(self.request_timeout);
        let mut attempts = 1;
        loop {
            // Relaxed: the position carries no data.
            let position = self.current.load(Ordering::Relaxed);
            let member = &self.members[position];
            let Some(result) = self.within(due, send(member)).await else {
                member.disconnect();
                self.leave(position);
                let limit = self.request_timeout;
                let text = format!("the request did not complete within {limit:?}");
                let status = Status::deadline_exceeded(text);
                return Err(self.error(position, status));
            };
            let status = match result {
                Ok(response) => return Ok((position, response)),
                Err(status) => status,
            };
            if is_final(&status) {
                return Err(self.error(position, status));
            }
            self.leave(position);
            let repeats = repeat == Repeat::Always || is_not_sent(&status);
            if !repeats || attempts == self.members.len() {
                return Err(self.error(position, status));
            }
            attempts += 1;
        }
    }

    /// Runs a future until `due`, and returns `None` if it has not completed then.
    async fn within<T>(&self, due: Duration, future: impl Future<Output = T> + Unpin) -> Option<T> {
        let elapsed = std::pin::pin!(self.timers.sleep_until(due, "request"));
        match futures_util::future::select(future, elapsed).await {
            futures_util::future::Either::Left((output, _)) => Some(output),
            futures_util::future::Either::Right(_) => None,
        }
    }

    /// Lets further calls use the endpoint after `position`.
    pub(super) fn leave(&self, position: usize) {
        let next = (position + 1) % self.members.len();
        // Relaxed: the position carries no data. Of concurrent calls that fail one moves on.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self
            .current
            .compare_exchange(position, next, success, failure);
    }

    /// Lets further calls at this endpoint use a new connection, or another endpoint.
    pub(super) fn leave_silent(&self, position: usize) {
        self.members[position].disconnect();
        self.leave(position);
    }

    pub(super) fn error(&self, position: usize, status: Status) -> CallError {
        CallError {
            url: self.members[position].url.clone(),
            status,
        }
    }

    /// Returns a request with the metadata of etcd: an endpoint without a leader rejects it, and the
    /// user is authenticated.
    pub(super) async fn authorized<Q>(
        &self,
        connection: &mut Connection,
        message: Q,
    ) -> Result<Request<Q>, Status> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        if let Some((name, password)) = &self.user {
            let mut known = self.token.lock().await;
            if let Token::Unknown = *known {
                *known = authenticate(connection, name, password).await?;
            }
            if let Token::Known(token) = &*known {
                metadata.insert("token", token.clone());
            }
        }
        Ok(request)
    }

    /// Discards the token if a call failed because it is invalid. Returns whether it was.
    pub(super) async fn discards_token(&self, status: &Status) -> bool {
        let is_invalid = self.user.is_some() && is_token_invalid(status);
        if is_invalid {
            *self.token.lock().await = Token::Unknown;
        }
        is_invalid
    }
}

/// Requests a token.
async fn authenticate(
    connection: &mut Connection,
    name: &str,
    password: &str,
) -> Result<Token, Status> {
    let message = AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    let response: Result<AuthenticateResponse, _> =
        connection.unary(AUTHENTICATE, Request::new(message)).await;
    match response {
        Ok(response) => {
            let token = response.token.parse();
            token
                .map(Token::Known)
                .map_err(|_| Status::unauthenticated("the token of the server is not ASCII"))
        }
        Err(status) if status.message().contains("authentication is not enabled") => {
            Ok(Token::NotNeeded)
        }
        Err(status) => Err(status),
    }
}

/// Returns whether a token has expired, or belongs to an older state of users and roles, or is
/// missing because authentication was enabled meanwhile.
fn is_token_invalid(status: &Status) -> bool {
    let text = status.message();
    status.code() == Code::Unauthenticated
        || text.contains("invalid auth token")
        || text.contains("revision of auth store is old")
        || text.contains("user name is empty")
}

/// Returns whether all endpoints would answer a call with this error.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::OutOfRange
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::ResourceExhausted
    )
}

/// Returns whether a call failed because no connection could be made.
fn is_not_sent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
