//! The gate of a listener: which connections it serves, and commands to the open ones.

use std::{fmt, net::SocketAddr, sync::Arc};

use tokio::{net::TcpStream, sync::watch};

use crate::net::connection::ConnectionError;

/// Decides which connections a [`Listener`](crate::net::Listener) serves, and may keep a handle of each to end it.
///
/// A listener without a gate does none of this. A gate is asked once for each connection, and is not on the path of
/// requests. It runs in the task of the listener, so it must not block.
pub trait ConnectionGate: fmt::Debug + Send + Sync + 'static {
    /// Returns the id of a connection that was accepted, which its service gets as
    /// [`ClientIdentity::connection`](crate::net::ClientIdentity::connection). `None` refuses the connection: it is
    /// closed with a reset.
    fn admit(&self, connection: ConnectionHandle) -> Option<u64>;

    /// Is called when an admitted connection has ended.
    fn ended(&self, connection: u64);
}

/// A handle of an open connection. Clones share the connection. After its end, commands have no effect.
///
/// A later command replaces an earlier one if it does more, in the order of the methods.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    command: Arc<watch::Sender<Command>>,
    address: Option<SocketAddr>,
}

/// What a connection does, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Command {
    Serve,
    GoAway,
    BlackHole,
    Close,
    Reset,
}

impl ConnectionHandle {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        Self {
            command: Arc::new(watch::channel(Command::Serve).0),
            address,
        }
    }

    /// Returns the address of the client; `None` on a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Ends the connection after the requests in flight: over HTTP/2 the client gets GOAWAY.
    pub fn go_away(&self) {
        self.send(Command::GoAway);
    }

    /// Stops reading and writing. The connection stays open until the next command or the shutdown of the listener,
    /// also if the client closes it.
    pub fn black_hole(&self) {
        self.send(Command::BlackHole);
    }

    /// Closes the connection at once.
    pub fn close(&self) {
        self.send(Command::Close);
    }

    /// Closes the connection at once with a TCP reset (RST). A connection without TCP is closed.
    pub fn reset(&self) {
        self.send(Command::Reset);
    }

    fn send(&self, command: Command) {
        self.command.send_if_modified(|current| {
            let is_more = command > *current;
            *current = command.max(*current);
            is_more
        });
    }

    /// Returns the last command.
    fn command(&self) -> Command {
        *self.command.borrow()
    }

    /// Completes when the connection has to end after the requests in flight.
    pub(crate) async fn going_away(&self) {
        let mut commands = self.command.subscribe();
        // Not for the commands beyond: a reset or a black hole with a GOAWAY before it would tell the client to connect again.
        let is_told = |command: &Command| *command == Command::GoAway;
        if commands.wait_for(is_told).await.is_err() {
            // The sender is `self`.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a command of at least this rank, and returns it.
    async fn wait(&self, least: Command) -> Command {
        let mut commands = self.command.subscribe();
        let waited = commands.wait_for(|command| *command >= least).await;
        let command = waited.ok().map(|command| *command);
        match command {
            Some(command) => command,
            // The sender is `self`.
            None => std::future::pending().await,
        }
    }
}

/// A second handle of the socket of a connection, to reset it.
#[derive(Debug)]
pub(crate) struct ResetSocket(Option<socket2::Socket>);

impl ResetSocket {
    /// Duplicates the descriptor of a socket. Without a free descriptor, a reset only closes the connection.
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self(socket2::SockRef::from(stream).try_clone().ok())
    }

    /// A connection that cannot be reset.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Makes the close of the socket a reset.
    pub(crate) fn reset_on_close(&self) {
        if let Some(socket) = &self.0 {
            // An error means that the socket is closed already.
            let _ = socket.set_linger(Some(std::time::Duration::ZERO));
        }
    }
}

/// Runs a connection until its end or a command. `shutdown` ends a black hole.
pub(crate) async fn run_gated(
    connection: impl Future<Output = Result<(), ConnectionError>>,
    handle: ConnectionHandle,
    socket: ResetSocket,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ConnectionError> {
    let mut connection = Box::pin(connection);
    let command = tokio::select! {
        biased;
        command = handle.wait(Command::BlackHole) => command,
        served = &mut connection => {
            // The command may have come after the first branch was polled, and have ended the connection.
            if handle.command() == Command::Reset {
                socket.reset_on_close();
            }
            return served;
        }
    };
    let command = if command == Command::BlackHole {
        // The connection is not polled any more, so it neither reads nor writes.
        tokio::select! {
            command = handle.wait(Command::Close) => command,
            () = shutdown => Command::Close,
        }
    } else {
        command
    };
    if command == Command::Reset {
        socket.reset_on_close();
    }
    // The socket of the connection is closed before its duplicate, whose close is the last one.
    drop(connection);
    drop(socket);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn only_go_away_is_announced_to_the_client() {
        let announced = |command: fn(&ConnectionHandle)| {
            let handle = ConnectionHandle::new(None);
            command(&handle);
            let waited = pin!(handle.going_away());
            waited
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        };
        assert!(announced(ConnectionHandle::go_away));
        assert!(!announced(ConnectionHandle::black_hole));
        assert!(!announced(ConnectionHandle::close));
        assert!(!announced(ConnectionHandle::reset));
    }
}
