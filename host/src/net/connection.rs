//! A connection: the TLS handshake, HTTP/1.1 or HTTP/2, and graceful shutdown.
//!
//! Requests over HTTP/1.1 are read by hyper, those over HTTP/2 by `http2`, which sets all its limits and buffer sizes.

use std::{
    fmt,
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Poll, ready},
    time::Duration,
};

use crate::net::{
    HttpOptions, RequestBody,
    driver::{ConnectionDriver, RequestExecutor},
    http1::{DISCARD_TIME, Http1Connection, Http1Service},
    http2::Http2Connection,
    http2::frame::PREFACE,
    ping_limit::PingLimit,
    tls::{NotTls, Rejection, SecuredStream, TlsAcceptor},
    transport::{Transport, WriteBuffer},
    upgrade::{self, Upgraded},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::{server::conn::http1, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

/// The time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The first byte of every TLS connection: the record type `handshake`.
const TLS_RECORD_HANDSHAKE: u8 = 22;

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
    /// The client's certificate in DER; `None` without a [`common_name`](Self::common_name).
    pub certificate: Option<Bytes>,
    /// Whether the client has a certificate that is not valid, which the listener
    /// [accepts](crate::net::ClientAuth::accept_invalid). Then there is no [`common_name`](Self::common_name).
    pub is_invalid: bool,
    /// The address of the client; `None` on a Unix socket.
    pub address: Option<SocketAddr>,
    /// The id that the [`ConnectionGate`](crate::net::ConnectionGate) of the listener has given to the connection.
    pub connection: Option<u64>,
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
    serve_connection_until(stream, options, make_service, std::future::pending()).await
}

/// Serves a connection like [`serve_connection`]. After `shutdown` completes, the connection ends when the requests in flight
/// have completed.
///
/// # Errors
/// The connection failed.
pub async fn serve_connection_until<M: MakeService>(
    stream: impl AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static,
    options: HttpOptions,
    make_service: M,
    shutdown: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    let serving = Serving {
        options,
        security: Security::Plain,
        make_service,
    };
    let transport = Transport::Boxed(Box::new(stream));
    let served = serve(transport, Arc::new(serving), None, shutdown).await;
    served.map_err(Into::into)
}

/// Serves a connection until the client closes it or, after `shutdown` completes, until the requests in
/// flight have completed. Dropping the future closes the connection. `id` is what a gate has given to it.
///
/// # Errors
/// The handshake or the connection failed. No other connection is affected.
pub(crate) async fn serve<M: MakeService>(
    transport: Transport,
    serving: Arc<Serving<M>>,
    id: Option<u64>,
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
    let client = ClientIdentity {
        address,
        connection: id,
        ..client
    };
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
            Ok(client) => {
                let stream = SecuredStream::new(stream);
                Ok((Transport::Boxed(Box::new(stream)), client))
            }
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
