//! A connection: the TLS handshake, HTTP/1.1 or HTTP/2, and graceful shutdown.
//!
//! Requests over HTTP/1.1 are read by hyper, those over HTTP/2 by `http2`, which sets all its limits and buffer sizes.
//!
//! # Execution of requests
//! An HTTP server usually spawns a task for each request of an HTTP/2 connection. This costs an allocation,
//! an entry in the task lists of the runtime and, as the largest part, a system call if another thread is
//! woken. Requests that take 1 or 2 µs run faster in the task that reads them. So a [`ConnectionDriver`]
//! works in rounds: it reads bytes that have arrived, up to a limit, runs the requests in them, and writes all their
//! responses with one system call. A request that has to wait is moved to a separate task.

use std::{
    fmt,
    future::{Future, poll_fn},
    mem,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use crate::net::{
    HttpOptions, RequestBody,
    http1::{DISCARD_TIME, Http1Connection, Http1Service},
    http2::Http2Connection,
    http2::frame::PREFACE,
    ping_limit::PingLimit,
    task_waker::TaskWaker,
    tls::{NotTls, Rejection, TlsAcceptor},
    transport::{Transport, WriteBuffer},
    upgrade::{self, Upgraded},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::{server::conn::http1, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

/// The time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The first byte of every TLS connection: the record type `handshake`.
const TLS_RECORD_HANDSHAKE: u8 = 22;

/// The maximum number of rounds of a connection before it yields to other tasks.
const ROUNDS_MAX: usize = 16;

/// The security of a connection, which is established before HTTP.
#[derive(Clone, Debug)]
pub(crate) enum Security {
    /// Without TLS.
    Plain,
    /// With a TLS handshake.
    Tls(TlsAcceptor),
    /// The connection is closed, because TLS is required and the server has no certificate.
    Closed,
}

/// The address of a client, and the identity that it proved in its TLS handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientIdentity {
    /// The common name of the client's certificate, which is empty if the certificate has none.
    /// `None` if there is no certificate, or the listener does not
    /// [authenticate users](crate::net::ClientAuth::names_users) by it.
    pub common_name: Option<String>,
    /// The organizations in the client's certificate, in their order; empty without a
    /// [`common_name`](Self::common_name).
    pub organizations: Vec<String>,
    /// The address of the client; `None` on a Unix socket.
    pub address: Option<SocketAddr>,
}

/// Creates the HTTP service of each connection. Implemented by functions that return a
/// [`hyper::service::Service`].
///
/// All types are known at compile time, so the service is called without dynamic dispatch.
pub trait MakeService: Send + Sync + 'static {
    /// The body of responses.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    /// The future of a response.
    type Future: Future<Output = Result<Response<Self::Body>, Self::Error>> + Send + 'static;
    /// An error that ends the request; over HTTP/1.1, the connection.
    type Error: Into<BoxError> + Send + 'static;
    /// The service of one connection.
    type Service: Service<
            Request<RequestBody>,
            Response = Response<Self::Body>,
            Error = Self::Error,
            Future = Self::Future,
        > + Send
        + Unpin;

    /// Returns the service of a connection whose client is `client`.
    fn make_service(&self, client: ClientIdentity) -> Self::Service;
}

impl<M, S, B> MakeService for M
where
    M: Fn(ClientIdentity) -> S + Send + Sync + 'static,
    S: Service<
            Request<RequestBody>,
            Response = Response<B>,
            Error: Into<BoxError> + Send + 'static,
        > + Send
        + Unpin,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
    type Future = S::Future;
    type Error = S::Error;
    type Service = S;

    fn make_service(&self, client: ClientIdentity) -> S {
        self(client)
    }
}

/// An error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The settings that the connections of a listener share.
#[derive(Debug)]
pub(crate) struct Serving<M> {
    pub(crate) options: HttpOptions,
    pub(crate) security: Security,
    pub(crate) make_service: M,
}

/// Serves a connection that the program has accepted or made itself, such as one in memory, without TLS. Completes when
/// the client has closed it. Dropping the future closes the connection.
///
/// ```
/// use http::Response;
/// use http_body_util::Full;
/// use hyper::service::service_fn;
/// use revstore_host::net::{self, HttpOptions};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let (mut client, server) = tokio::io::duplex(1024);
/// let respond = |_| async { Ok::<_, std::io::Error>(Response::new(Full::from("hello"))) };
/// tokio::spawn(net::serve_connection(server, HttpOptions::new(), move |_| service_fn(respond)));
/// client.write_all(b"GET / HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").await?;
/// let mut response = String::new();
/// client.read_to_string(&mut response).await?;
/// assert!(response.ends_with("hello"));
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The connection failed.
pub async fn serve_connection<M: MakeService>(
    stream: impl AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static,
    options: HttpOptions,
    make_service: M,
) -> Result<(), BoxError> {
    let serving = Serving {
        options,
        security: Security::Plain,
        make_service,
    };
    let transport = Transport::Boxed(Box::new(stream));
    let served = serve(transport, Arc::new(serving), std::future::pending()).await;
    served.map_err(Into::into)
}

/// Serves a connection until the client closes it or, after `shutdown` completes, until the requests in
/// flight have completed. Dropping the future closes the connection.
///
/// # Errors
/// The handshake or the connection failed. No other connection is affected.
pub(crate) async fn serve<M: MakeService>(
    transport: Transport,
    serving: Arc<Serving<M>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ConnectionError> {
    let mut shutdown = pin!(shutdown);
    let mut has_begun = false;
    // Can be polled again after it has completed.
    let mut shutdown = pin!(poll_fn(|context| {
        if !has_begun {
            ready!(shutdown.as_mut().poll(context));
            has_begun = true;
        }
        Poll::Ready(())
    }));
    let address = transport.peer_address();
    let (transport, client) = match &serving.security {
        Security::Plain => (transport, ClientIdentity::default()),
        Security::Closed => return Ok(()),
        Security::Tls(acceptor) => {
            let secured = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                secured = handshake(transport, acceptor) => secured,
            };
            if let Err(rejection) = &secured {
                rejection.log(serving.options.endpoint, address);
            }
            secured?
        }
    };
    let transport = PingLimit::new(transport, serving.options.keepalive.min_time);
    let (write_buffer, executor) = (WriteBuffer::new(transport), RequestExecutor::default());
    let mut transport = write_buffer.transport();
    let is_http2 = serving.options.http2_only
        || tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            is_http2 = transport.has_prefix(PREFACE) => {
                is_http2.map_err(|error| ConnectionError::Http(error.into()))?
            }
        };
    let client = ClientIdentity { address, ..client };
    let service = serving.make_service.make_service(client);
    if is_http2 {
        transport.repair_authorities();
        let (buffer, requests) = (write_buffer.clone(), executor.clone());
        let connection = pin!(Http2Connection::new(
            transport,
            buffer,
            requests,
            &serving.options,
            service
        ));
        let driver = ConnectionDriver::new(connection, executor, write_buffer);
        let close =
            |connection: Pin<&mut Http2Connection<_>>| connection.get_mut().graceful_shutdown();
        drive(driver, shutdown.as_mut(), close).await
    } else {
        let (io, service) = (TokioIo::new(transport), Http1Service::new(service));
        let (is_unread, handover) = (service.is_unread(), service.handover());
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new());
        let mut http = http.serve_connection(io, service);
        let served = {
            let connection = pin!(Http1Connection::new(
                Pin::new(&mut http),
                write_buffer.clone()
            ));
            let driver = ConnectionDriver::new(connection, executor, write_buffer.clone());
            let close = |connection: Pin<&mut Http1Connection<'_, _>>| {
                http1::Connection::graceful_shutdown(connection.get_mut().connection());
            };
            drive(driver, shutdown.as_mut(), close).await
        };
        let upgrade = handover.take().filter(|_| served.is_ok());
        let is_upgraded = upgrade.is_some();
        if let Some(serve) = upgrade {
            let parts = http.into_parts();
            let transport = parts.io.into_inner();
            let upgraded = Upgraded::new(parts.read_buf, transport, write_buffer.clone());
            upgrade::run(serve, upgraded, shutdown).await;
        }
        if is_upgraded || served.is_err() || is_unread.load(Ordering::Relaxed) {
            // The client can read the last response, even if it has not been read to the end.
            let _ = tokio::time::timeout(DISCARD_TIME, write_buffer.linger()).await;
        }
        served
    }
}

/// Drives a connection to its end, and shuts it down after `shutdown` has completed.
async fn drive<C, E>(
    mut driver: ConnectionDriver<'_, C>,
    shutdown: Pin<&mut impl Future<Output = ()>>,
    close: impl FnOnce(Pin<&mut C>),
) -> Result<(), ConnectionError>
where
    C: Future<Output = Result<(), E>>,
    E: Into<BoxError>,
{
    let http_error = |error: E| ConnectionError::Http(error.into());
    tokio::select! {
        biased;
        served = &mut driver => return served.map_err(http_error),
        () = shutdown => close(driver.connection()),
    }
    driver.await.map_err(http_error)
}

/// A connection failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("{0}")]
    Http(#[source] BoxError),
}

/// Performs the TLS handshake.
async fn handshake(
    transport: Transport,
    acceptor: &TlsAcceptor,
) -> Result<(Transport, ClientIdentity), Rejection> {
    let handshake = async {
        if let Transport::Tcp(tcp) = &transport {
            let mut first = [0];
            let peeked = tcp.peek(&mut first).await;
            // If the connection was closed, the acceptor returns the error.
            if peeked.map_err(Rejection::of)? == 1 && first != [TLS_RECORD_HANDSHAKE] {
                // HT-3: the server sends neither a response nor an alert. The bytes that have arrived are
                // read, because closing a socket with unread bytes resets the connection.
                let _ = tcp.try_read(&mut [0; 4_096]);
                return Err(Rejection::of(NotTls));
            }
        }
        let address = transport.peer_address();
        let mut stream = acceptor.accept(transport).await?;
        let connection = stream.get_ref().1;
        let certificates = connection.peer_certificates().unwrap_or_default();
        let client = acceptor.client(certificates, address.map(|it| it.ip()));
        match client.await {
            Ok(client) => Ok((Transport::Boxed(Box::new(stream)), client)),
            Err(error) => {
                let rejection = Rejection::of(error)
                    .server_name(connection.server_name())
                    .certificate(certificates.first());
                // As in etcd, the connection ends without an alert.
                let _ = stream.shutdown().await;
                Err(rejection)
            }
        }
    };
    tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .unwrap_or_else(|_| Err(Rejection::of("the TLS handshake took too long")))
}

/// A running request.
type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Collects the requests that are read from an HTTP/2 connection. The [`ConnectionDriver`] of the
/// connection runs them.
#[derive(Clone, Default)]
pub(super) struct RequestExecutor {
    /// The requests that have not been polled yet. A leaf lock that only the task of the connection locks. It
    /// is needed because the handles are shared. The list is bounded by the bytes that are read in a round.
    queued: Arc<Mutex<Vec<RequestFuture>>>,
}

impl RequestExecutor {
    /// Queues a request, which is polled in this round.
    pub(super) fn add(&self, request: impl Future<Output = ()> + Send + 'static) {
        self.queued.lock().push(Box::pin(request));
    }

    /// Polls each queued request once, and spawns those that have to wait. Returns whether the queue
    /// contained requests.
    fn run(&self, context: &mut Context<'_>) -> bool {
        let queued = mem::take(&mut *self.queued.lock());
        let any = !queued.is_empty();
        for mut request in queued {
            // A panic ends only one request, as in a separate task: the future is dropped, which resets its
            // stream, and no other code accesses its state.
            let polled = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(context)));
            if let Ok(Poll::Pending) = polled {
                // The new task polls again and registers its own waker.
                tokio::spawn(request);
            }
        }
        any
    }
}

impl fmt::Debug for RequestExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestExecutor").finish_non_exhaustive()
    }
}

/// A future that drives a connection, its requests and its write buffer.
#[derive(Debug)]
struct ConnectionDriver<'a, C> {
    connection: Pin<&'a mut C>,
    executor: RequestExecutor,
    write_buffer: WriteBuffer,
    task: Arc<TaskWaker>,
    waker: Waker,
}

impl<'a, C: Future> ConnectionDriver<'a, C> {
    /// Drives `connection`, which writes into `write_buffer` and executes its requests on
    /// `executor`.
    fn new(
        connection: Pin<&'a mut C>,
        executor: RequestExecutor,
        write_buffer: WriteBuffer,
    ) -> Self {
        let task = Arc::new(TaskWaker::default());
        Self {
            connection,
            executor,
            write_buffer,
            waker: Waker::from(task.clone()),
            task,
        }
    }

    fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future> Future for ConnectionDriver<'_, C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<C::Output> {
        let driver = self.get_mut();
        driver.task.register(task.waker());
        let mut context = Context::from_waker(&driver.waker);
        for _ in 0..ROUNDS_MAX {
            driver.task.start_round();
            driver.write_buffer.start_round();
            if let Poll::Ready(end) = driver.connection.as_mut().poll(&mut context) {
                // Writes the last bytes if the connection has not closed the transport.
                driver.write_buffer.flush(&mut context);
                return Poll::Ready(end);
            }
            let has_run = driver.executor.run(&mut context);
            if driver.write_buffer.is_read_paused() {
                // The tasks that have got data run before more is read.
                break;
            }
            if has_run {
                // The next round encodes the responses.
                continue;
            }
            driver.write_buffer.flush(&mut context);
            if driver.task.sleep() {
                return Poll::Pending;
            }
        }
        driver.write_buffer.flush(&mut context);
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn, ready},
        sync::atomic::AtomicUsize,
        task::Wake,
    };

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn write_buffer() -> WriteBuffer {
        let (server, _client) = tokio::io::duplex(64);
        let transport = Transport::Boxed(Box::new(server));
        WriteBuffer::new(PingLimit::new(transport, Duration::ZERO))
    }

    /// Polls the driver of a connection once, and checks the number of polls of the connection. The
    /// connection queues `requests` at its first poll.
    fn check_polls(requests: Vec<RequestFuture>, expected: usize) {
        let executor = RequestExecutor::default();
        let polls = AtomicUsize::new(0);
        let mut requests = Some(requests);
        let connection = pin!(poll_fn(|_| -> Poll<()> {
            polls.fetch_add(1, Ordering::Relaxed);
            for request in requests.take().into_iter().flatten() {
                executor.queued.lock().push(request);
            }
            Poll::Pending
        }));
        let wake_ups = Arc::new(Count::default());
        let waker = Waker::from(wake_ups.clone());
        let driver = pin!(ConnectionDriver::new(
            connection,
            executor.clone(),
            write_buffer()
        ));
        assert!(driver.poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(polls.load(Ordering::Relaxed), expected);
        assert_eq!(wake_ups.get(), 0);
    }

    #[tokio::test]
    async fn a_connection_is_polled_again_after_its_requests() {
        check_polls(Vec::new(), 1);
        check_polls(vec![Box::pin(ready(())), Box::pin(ready(()))], 2);
        // The second request runs although the first one panics.
        let (done, seen) = oneshot::channel();
        let second = async move { done.send(()).unwrap() };
        check_polls(
            vec![Box::pin(async { panic!("on purpose") }), Box::pin(second)],
            2,
        );
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn a_request_that_waits_continues_in_a_separate_task() {
        let (start, started) = oneshot::channel::<()>();
        let (done, seen) = oneshot::channel();
        let waits = async move {
            started.await.unwrap();
            done.send(()).unwrap();
        };
        check_polls(vec![Box::pin(waits), Box::pin(pending())], 2);
        start.send(()).unwrap();
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn a_wake_up_wakes_a_sleeping_task_and_starts_a_round_of_a_running_one() {
        let wake_ups = Arc::new(Count::default());
        let waker = Waker::from(wake_ups.clone());
        let mut context = Context::from_waker(&waker);
        let (mut polls, mut inner) = (0, None);
        let connection = pin!(poll_fn(|context: &mut Context<'_>| -> Poll<()> {
            polls += 1;
            inner = Some(context.waker().clone());
            if polls == 1 {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        }));
        {
            let mut driver = pin!(ConnectionDriver::new(
                connection,
                RequestExecutor::default(),
                write_buffer()
            ));
            assert!(driver.as_mut().poll(&mut context).is_pending());
            assert_eq!(wake_ups.get(), 0);
            driver.waker.wake_by_ref();
            driver.waker.wake_by_ref();
            // Two wake-ups of a sleeping task wake it once.
            assert_eq!(wake_ups.get(), 1);
            assert!(driver.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(polls, 3);
    }

    #[tokio::test]
    async fn a_connection_that_is_always_ready_yields_to_other_tasks() {
        let wake_ups = Arc::new(Count::default());
        let waker = Waker::from(wake_ups.clone());
        let mut polls = 0;
        let connection = pin!(poll_fn(|context: &mut Context<'_>| -> Poll<()> {
            polls += 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        let driver = pin!(ConnectionDriver::new(
            connection,
            RequestExecutor::default(),
            write_buffer()
        ));
        let polled = driver.poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        assert_eq!((polls, wake_ups.get()), (ROUNDS_MAX, 1));
    }
}
