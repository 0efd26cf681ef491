//! The gate of a listener: which connections it serves, and commands to the open ones.

use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::{
    io::{self, AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
    sync::{Semaphore, watch},
};

use crate::net::{
    connection::ConnectionError,
    transport::{Duplex, Transport},
};

/// The maximum number of black holes of the process, each of which is an open socket. Further ones are closed at once.
pub const BLACK_HOLES_MAX: usize = 1_024;

/// The maximum number of bytes that a black hole over a stream in memory takes from the client, as the buffers of a socket
/// do.
const IGNORED_BYTES_MAX: u64 = 64 * 1024;

static BLACK_HOLES: Semaphore = Semaphore::const_new(BLACK_HOLES_MAX);

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
    hole: Arc<Mutex<Hole>>,
}

/// The end of a black hole. A leaf lock guards it, held to set or take it.
#[derive(Default)]
struct Hole(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl fmt::Debug for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hole")
    }
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
            hole: Arc::default(),
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

    /// Stops reading and writing, and ends the requests in flight. The connection stays open until `end` completes, the client
    /// closes it, the next command, or the shutdown of the listener.
    ///
    /// A process has at most [`BLACK_HOLES_MAX`]: further connections are closed at once.
    pub fn black_hole(&self, end: impl Future<Output = ()> + Send + 'static) {
        // The first one counts.
        self.hole.lock().0.get_or_insert_with(|| Box::pin(end));
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

/// What stays open of a connection whose future is dropped.
#[derive(Debug)]
pub(crate) enum Remains {
    /// A second handle of its socket.
    Tcp(std::net::TcpStream),
    /// A second handle of its socket.
    Unix(std::os::unix::net::UnixStream),
    /// The stream in memory.
    Stream(Arc<Mutex<Slot>>),
    /// There was no free descriptor for a second handle: a reset only closes the connection, and so does a black hole.
    None,
}

/// A place for a stream that is dropped.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Whether the stream is kept.
    keeps: bool,
    stream: Option<Box<dyn Duplex>>,
}

/// A stream in memory that goes to its slot when it is dropped.
#[derive(Debug)]
struct Kept {
    /// `None` only while it is dropped.
    stream: Option<Box<dyn Duplex>>,
    /// A leaf lock, held for a look or a change.
    slot: Arc<Mutex<Slot>>,
}

impl Remains {
    /// Duplicates the descriptor of a socket.
    pub(crate) fn of_tcp(socket: &TcpStream) -> Self {
        let duplicate = SockRef::from(socket).try_clone();
        duplicate.map_or(Self::None, |socket| Self::Tcp(socket.into()))
    }

    /// Duplicates the descriptor of a socket.
    pub(crate) fn of_unix(socket: &UnixStream) -> Self {
        let duplicate = SockRef::from(socket).try_clone();
        duplicate.map_or(Self::None, |socket| Self::Unix(socket.into()))
    }

    /// Returns what stays of a stream in memory, and the transport of the connection over it.
    pub(crate) fn of_stream(stream: impl Duplex + 'static) -> (Self, Transport) {
        let slot: Arc<Mutex<Slot>> = Arc::default();
        let kept = Kept {
            stream: Some(Box::new(stream)),
            slot: slot.clone(),
        };
        (Self::Stream(slot), Transport::Boxed(Box::new(kept)))
    }

    /// Makes the close of a TCP socket a reset.
    pub(crate) fn reset_on_close(&self) {
        if let Self::Tcp(socket) = self {
            // An error means that the socket is closed already.
            let _ = SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO));
        }
    }

    /// Waits until the client has closed a connection that is not served any more.
    async fn closed_by_client(&self) {
        match self {
            Self::Tcp(socket) => {
                let Ok(socket) = socket.try_clone().and_then(TcpStream::from_std) else {
                    return;
                };
                while let Ok(ready) = socket.ready(Interest::READABLE).await
                    && !ready.is_read_closed()
                {
                    forget_data(|empty| socket.try_io(Interest::READABLE, empty));
                }
            }
            Self::Unix(socket) => {
                let Ok(socket) = socket.try_clone().and_then(UnixStream::from_std) else {
                    return;
                };
                while let Ok(ready) = socket.ready(Interest::READABLE).await
                    && !ready.is_read_closed()
                {
                    forget_data(|empty| socket.try_io(Interest::READABLE, empty));
                }
            }
            Self::Stream(slot) => {
                let stream = slot.lock().stream.take();
                let Some(mut stream) = stream else { return };
                let mut ignored = (&mut stream).take(IGNORED_BYTES_MAX);
                let count = io::copy(&mut ignored, &mut io::sink()).await;
                if count.is_ok_and(|count| count == IGNORED_BYTES_MAX) {
                    // A client that goes on waits.
                    std::future::pending::<()>().await;
                }
            }
            Self::None => {}
        }
    }
}

/// Forgets that data of the client can be read, without a read: the arrival of more is reported again, and so is the end.
fn forget_data(try_io: impl FnOnce(fn() -> io::Result<()>) -> io::Result<()>) {
    // Always this error.
    let _ = try_io(|| Err(io::ErrorKind::WouldBlock.into()));
}

impl Kept {
    fn stream(&mut self) -> Pin<&mut Box<dyn Duplex>> {
        Pin::new(self.stream.as_mut().expect("a stream until it is dropped"))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut slot = self.slot.lock();
        if slot.keeps {
            slot.stream = self.stream.take();
        }
    }
}

impl AsyncRead for Kept {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for Kept {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream().poll_write(context, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream
            .as_ref()
            .is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_shutdown(context)
    }
}

/// Runs a connection until its end or a command. `shutdown` ends a black hole.
pub(crate) async fn run_gated(
    connection: impl Future<Output = Result<(), ConnectionError>>,
    handle: ConnectionHandle,
    remains: Remains,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ConnectionError> {
    let mut connection = Box::pin(connection);
    let command = tokio::select! {
        biased;
        command = handle.wait(Command::BlackHole) => command,
        served = &mut connection => {
            // The command may have come after the first branch was polled, and have ended the connection.
            if handle.command() == Command::Reset {
                remains.reset_on_close();
            }
            return served;
        }
    };
    let permit = (command == Command::BlackHole).then(|| BLACK_HOLES.try_acquire());
    let is_hole = matches!(permit, Some(Ok(_)));
    if let Remains::Stream(slot) = &remains {
        slot.lock().keeps = is_hole;
    }
    if is_hole {
        // The requests and streams end. Nobody reads or writes any more.
        drop(connection);
        let end = handle.hole.lock().0.take();
        let end = async {
            match end {
                Some(end) => end.await,
                None => std::future::pending().await,
            }
        };
        let command = tokio::select! {
            command = handle.wait(Command::Close) => command,
            () = end => Command::Close,
            () = remains.closed_by_client() => Command::Close,
            () = shutdown => Command::Close,
        };
        if command == Command::Reset {
            remains.reset_on_close();
        }
        return Ok(());
    }
    if command == Command::Reset {
        remains.reset_on_close();
    }
    // The socket of the connection is closed before its duplicate, whose close is the last one.
    drop(connection);
    drop(remains);
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
        assert!(!announced(
            |handle| handle.black_hole(std::future::pending())
        ));
        assert!(!announced(ConnectionHandle::close));
        assert!(!announced(ConnectionHandle::reset));
    }
}
