//! Stores in files: dumps as streams of chunks, and files that are received in chunks.

use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::mpsc;
use tonic::Status;

use super::answers::text;
use crate::control::{Control, Point};
use crate::error::ControlError;
use crate::proto;
use crate::store::{DumpForm, StoreFile};

/// The number of bytes of a chunk.
const CHUNK_BYTES: usize = 128 * 1024;

/// The number of chunks that are made before the client has read them.
const CHUNKS_READY: usize = 4;

/// The time in which the next chunk of a file must arrive.
const CHUNK_TIME: Duration = Duration::from_secs(10);

/// The chunks of a dump, which are made while the client reads them.
pub(super) type Chunks = BoxStream<'static, Result<proto::StoreDumpChunk, Status>>;

/// Writes a dump.
pub(super) async fn dump(
    control: &Control,
    request: proto::StoreDumpRequest,
) -> Result<Chunks, Status> {
    let form = if request.binary {
        DumpForm::Binary
    } else {
        DumpForm::Text
    };
    let copied = {
        let control = control.clone();
        tokio::task::spawn_blocking(move || control.open_dump()).await
    };
    let dump = copied.map_err(|_panicked| failed())??;
    let (sender, receiver) = mpsc::channel(CHUNKS_READY);
    let point = dump.point;
    let control = control.clone();
    // Ends when the dump is written, or when the client has gone: then the receiver is dropped.
    let writing = tokio::task::spawn_blocking(move || {
        let mut writer = ChunkWriter {
            point,
            buffer: BytesMut::new(),
            sender,
        };
        control.write_dump(&dump, form, &mut writer)
    });
    let chunks = stream::unfold(Some((receiver, writing)), |open| async {
        let (mut receiver, writing) = open?;
        if let Some(chunk) = receiver.recv().await {
            return Some((Ok(chunk), Some((receiver, writing))));
        }
        // Without this, a dump that is not whole would end as one that is.
        let status = match writing.await {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => ControlError::Output(error.to_string()).into(),
            Err(_panicked) => failed(),
        };
        Some((Err(status), None))
    });
    Ok(chunks.boxed())
}

fn failed() -> Status {
    Status::internal("control has failed")
}

/// An output that is a stream of chunks. Blocks while the client has [`CHUNKS_READY`] to read.
#[derive(Debug)]
struct ChunkWriter {
    point: Point,
    buffer: BytesMut,
    sender: mpsc::Sender<proto::StoreDumpChunk>,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK_BYTES - self.buffer.len();
        let taken = &bytes[..bytes.len().min(room)];
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = proto::StoreDumpChunk {
            revision: self.point.revision.0,
            time: text(self.point.time),
            data: self.buffer.split().freeze(),
        };
        let sent = self.sender.blocking_send(chunk);
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone"))
    }
}

/// The reason why a file was not loaded.
#[derive(Debug)]
pub(super) enum LoadError {
    Refused(ControlError),
    /// The file did not arrive.
    Lost(Status),
}

impl From<ControlError> for LoadError {
    fn from(error: ControlError) -> Self {
        Self::Refused(error)
    }
}

impl From<LoadError> for Status {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Refused(error) => error.into(),
            LoadError::Lost(status) => status,
        }
    }
}

/// Receives a file, of this length if it is known, and replaces the store by it.
pub(super) async fn load(
    control: &Control,
    file: StoreFile,
    length: u64,
    chunks: impl Stream<Item = Result<Bytes, Status>>,
) -> Result<proto::StoreResponse, LoadError> {
    let mut upload = control.upload(length)?;
    let mut chunks = pin!(chunks);
    loop {
        match tokio::time::timeout(CHUNK_TIME, chunks.next()).await {
            Ok(Some(Ok(chunk))) => upload.add(&chunk)?,
            Ok(Some(Err(status))) => return Err(LoadError::Lost(status)),
            Ok(None) => break,
            Err(_elapsed) => {
                let status = Status::deadline_exceeded("the file did not arrive in time");
                return Err(LoadError::Lost(status));
            }
        }
    }
    let control = control.clone();
    let loading = tokio::task::spawn_blocking(move || control.load_file(upload.bytes(), file));
    let Point { revision, time } =
        (loading.await).map_err(|_panicked| LoadError::Lost(failed()))??;
    Ok(proto::StoreResponse {
        revision: revision.0,
        time: text(time),
    })
}
