//! Accepting connections on one listener, and letting go of them when the server stops.

use std::{io, sync::Arc, time::Duration};

use revstore_grpc::Shutdown;
use tokio::{
    net::{TcpListener, UnixListener},
    task::JoinSet,
    time,
};

use crate::{
    connection::{self, Protocol},
    dispatch::Dispatch,
    listener::{ListenSocket, Listener, SocketFile},
    log::Log,
    transport::Transport,
};

/// How long a stopping server waits for requests in flight (FL-15). Watches and other streams do
/// not count: they are ended at once.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// How long accepting pauses when the system refuses, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener that the runtime knows.
enum Accepting {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Removed when the socket is closed.
        _file: SocketFile,
    },
}

impl Accepting {
    fn new(socket: ListenSocket) -> io::Result<Self> {
        Ok(match socket {
            ListenSocket::Tcp(socket) => Self::Tcp(TcpListener::from_std(socket)?),
            ListenSocket::Unix(socket, file) => Self::Unix {
                listener: UnixListener::from_std(socket)?,
                _file: file,
            },
        })
    }

    async fn next(&self) -> io::Result<Transport> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Small answers are wanted at once. A failure only makes them slower.
                let _ = stream.set_nodelay(true);
                Ok(Transport::Tcp(stream))
            }
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok(Transport::Other(Box::new(stream)))
            }
        }
    }
}

/// A listener and what is to be done with its connections.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) listener: Listener,
    pub(crate) protocol: Arc<Protocol>,
    pub(crate) dispatch: Dispatch,
}

impl Port {
    /// Serves until `shutdown` begins, drops `open` when nobody can connect any more, and returns
    /// when the last connection is over or [`GRACE`] has passed.
    ///
    /// # Errors
    /// The runtime cannot take the socket.
    pub(crate) async fn serve<T>(self, shutdown: Shutdown, open: T, log: Log) -> io::Result<()> {
        let address = self.listener.address().clone();
        let accepting = Accepting::new(self.listener.into_socket())?;
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(shutdown.begun());
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = accepting.next() => match accepted {
                    Ok(transport) => {
                        let served = connection::serve(
                            transport,
                            self.protocol.clone(),
                            self.dispatch.clone(),
                            shutdown.clone(),
                        );
                        let log = log.clone();
                        connections.spawn(async move {
                            if let Err(error) = served.await {
                                log.debug("a connection ended badly", &[("error", &error)]);
                            }
                        });
                    }
                    Err(error) => {
                        log.warn("cannot accept a connection", &[("error", &error)]);
                        time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(accepting);
        drop(open);
        let drained = async { while connections.join_next().await.is_some() {} };
        if time::timeout(GRACE, drained).await.is_err() {
            // They end as the set is dropped.
            let count = connections.len();
            log.warn(
                "cutting connections off",
                &[("address", &address), ("count", &count)],
            );
        }
        Ok(())
    }
}
