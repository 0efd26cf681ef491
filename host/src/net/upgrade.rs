//! Connections that change from HTTP/1.1 to another protocol, with status 101.
//!
//! The task of the connection goes on with the new protocol. So a shutdown waits for it as for a request, and drops it
//! after the grace period.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::net::transport::{BufferedTransport, WriteBuffer};

/// A client's wish to change the protocol of its connection. It is an extension of requests over HTTP/1.1 with the
/// header `Upgrade`.
///
/// ```
/// use http::{Request, Response, StatusCode, header};
/// use revstore_host::net::{RequestBody, UpgradeOffer};
/// use tokio::io::AsyncWriteExt as _;
///
/// fn respond(mut request: Request<RequestBody>) -> Response<String> {
///     let mut response = Response::new(String::new());
///     if let Some(offer) = request.extensions_mut().remove::<UpgradeOffer>() {
///         offer.accept(|mut connection, _drain| async move {
///             // An error means that the client has gone.
///             let _ = connection.write_all(b"hello").await;
///             let _ = connection.flush().await;
///         });
///         *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
///         let headers = response.headers_mut();
///         headers.insert(header::CONNECTION, header::UPGRADE.into());
///         headers.insert(header::UPGRADE, header::HeaderValue::from_static("greeting"));
///     }
///     response
/// }
/// ```
#[derive(Clone, Debug)]
pub struct UpgradeOffer(Handover);

impl UpgradeOffer {
    /// Lets `serve` continue the connection after a response with status 101. After another response it is dropped.
    ///
    /// The connection is closed when the future has completed. It should soon complete after the [`Drain`].
    pub fn accept<F>(self, serve: impl FnOnce(Upgraded, Drain) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let serve = |connection, drain| -> Serving { Box::pin(serve(connection, drain)) };
        *self.0.0.lock() = Some(Box::new(serve));
    }
}

/// A future that completes when the server shuts down.
#[derive(Debug)]
pub struct Drain(oneshot::Receiver<()>);

impl Future for Drain {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}

type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;
type Serve = Box<dyn FnOnce(Upgraded, Drain) -> Serving + Send>;

/// What continues a connection after its next response, if that has status 101.
#[derive(Clone, Default)]
pub(super) struct Handover(Arc<Mutex<Option<Serve>>>);

impl Handover {
    pub(super) fn offer(&self) -> UpgradeOffer {
        UpgradeOffer(self.clone())
    }

    pub(super) fn take(&self) -> Option<Serve> {
        self.0.lock().take()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

/// Continues a connection until `serve` has completed. `shutdown` completes when the server shuts down.
pub(super) async fn run(
    serve: Serve,
    connection: Upgraded,
    shutdown: Pin<&mut impl Future<Output = ()>>,
) {
    let (draining, drain) = oneshot::channel();
    let mut served = serve(connection, Drain(drain));
    tokio::select! {
        biased;
        () = &mut served => return,
        () = shutdown => drop(draining),
    }
    served.await;
}

/// The bytes of a connection that is no longer one of HTTP. Writes are buffered until they are flushed.
#[derive(Debug)]
pub struct Upgraded {
    /// What the client has sent behind its request.
    first: Bytes,
    transport: BufferedTransport,
    buffer: WriteBuffer,
}

impl Upgraded {
    pub(super) fn new(first: Bytes, transport: BufferedTransport, buffer: WriteBuffer) -> Self {
        buffer.end_rounds();
        Self {
            first,
            transport,
            buffer,
        }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The end of the response may still be in the buffer.
        this.buffer.flush(context);
        if this.first.is_empty() {
            return Pin::new(&mut this.transport).poll_read(context, buffer);
        }
        let count = this.first.len().min(buffer.remaining());
        buffer.put_slice(&this.first[..count]);
        this.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.buffer.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}
