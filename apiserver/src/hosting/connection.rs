//! Messages over a Unix socket.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The maximum size of a message in bytes: more than that of a command line with its environment in most uses.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A connection of two processes of the same user.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    /// What has arrived of the next messages.
    received: Vec<u8>,
}

impl Connection {
    /// Returns the connection of a stream whose peer is a process of the user of this one.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        if stream.peer_cred()?.uid() != user {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self {
            stream,
            received: Vec::new(),
        })
    }

    pub(super) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        if line.len() >= MESSAGE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        line.push(b'\n');
        self.stream.write_all(&line).await
    }

    /// Returns the next message, or an error at the end of the connection or for another message. Nothing is lost when the
    /// future is dropped.
    pub(super) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.received[searched..].iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.received.drain(..=searched + end).collect();
                return Ok(serde_json::from_slice(&line)?);
            }
            searched = self.received.len();
            if searched >= MESSAGE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
