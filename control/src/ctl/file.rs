//! Files that are sent and received.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use serde_json::json;

use super::arguments::Call;
use super::client::Client;

/// The number of bytes that are read at a time.
const READ_BYTES: usize = 256 * 1024;

/// Returns whether a path stands for standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The bytes of a file or of standard input, as the body of a request. Reading blocks: the program does nothing else.
#[derive(Debug)]
pub(super) struct FileBody {
    from: Source,
    /// Of a regular file: the bytes that are left.
    left: Option<u64>,
}

#[derive(Debug)]
enum Source {
    File(File),
    Input,
}

impl FileBody {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        if is_standard(path) {
            return Ok(Self {
                from: Source::Input,
                left: None,
            });
        }
        let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(format!("cannot read {}: it is a directory", path.display()));
        }
        Ok(Self {
            left: metadata.is_file().then_some(metadata.len()),
            from: Source::File(file),
        })
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let body = &mut *self;
        let size = body.left.map_or(READ_BYTES, |left| {
            READ_BYTES.min(usize::try_from(left).unwrap_or(READ_BYTES))
        });
        if size == 0 {
            return Poll::Ready(None);
        }
        let mut buffer = vec![0; size];
        let read = match &mut body.from {
            Source::File(file) => file.read(&mut buffer),
            Source::Input => io::stdin().lock().read(&mut buffer),
        };
        Poll::Ready(match read {
            Ok(0) if body.left.is_some() => {
                Some(Err(io::Error::other("the file has become shorter")))
            }
            Ok(0) => None,
            Ok(read) => {
                buffer.truncate(read);
                if let Some(left) = &mut body.left {
                    *left -= read as u64;
                }
                Some(Ok(Frame::data(buffer.into())))
            }
            Err(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Receives a file. Returns the line to print about it, in JSON; none if it went to standard output.
pub(super) async fn save(
    client: &Client,
    call: &Call,
    path: &Path,
) -> Result<Option<Vec<u8>>, String> {
    if is_standard(path) {
        let mut out = Counted::new(io::stdout().lock());
        return match client.download(call.method, &call.body, &mut out).await {
            Ok(_) => Ok(None),
            // As after `| head`.
            Err(_) if out.is_closed => Ok(None),
            Err(error) => Err(error),
        };
    }
    let target = Target::of(path)?;
    let received = target.receive(client, call).await;
    let (headers, bytes) = target.finish(received)?;
    let number = |name: &str| -> Option<i64> { text(&headers, name)?.parse().ok() };
    let line = json!({
        "file": path.display().to_string(),
        "bytes": bytes,
        "revision": number("revstore-revision"),
        "time": text(&headers, "revstore-time"),
    });
    Ok(Some(line.to_string().into_bytes()))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Where a file is written: beside its place, which it takes when it is whole. A path that is no regular file, such as a
/// pipe, is written directly.
#[derive(Debug)]
struct Target<'a> {
    path: &'a Path,
    partial: Option<PathBuf>,
}

impl<'a> Target<'a> {
    fn of(path: &'a Path) -> Result<Self, String> {
        let is_replaced = fs::metadata(path).map_or(true, |metadata| metadata.is_file());
        let name = path.file_name();
        let name = name.ok_or_else(|| format!("{} is no file", path.display()))?;
        let mut partial = name.to_owned();
        partial.push(format!(".{}.partial", process::id()));
        Ok(Self {
            path,
            partial: is_replaced.then(|| path.with_file_name(partial)),
        })
    }

    /// Returns the headers of the response and the number of bytes.
    async fn receive(&self, client: &Client, call: &Call) -> Result<(HeaderMap, u64), String> {
        let path = self.partial.as_deref().unwrap_or(self.path);
        let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
        let file = File::create(path).map_err(failed)?;
        let mut out = Counted::new(BufWriter::new(file));
        let headers = client.download(call.method, &call.body, &mut out).await?;
        out.flush().map_err(failed)?;
        Ok((headers, out.bytes))
    }

    fn finish<T>(&self, received: Result<T, String>) -> Result<T, String> {
        let Some(partial) = &self.partial else {
            return received;
        };
        let moved = received.and_then(|received| {
            let moved = fs::rename(partial, self.path);
            moved.map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
            Ok(received)
        });
        if moved.is_err() {
            // It may not exist.
            let _ = fs::remove_file(partial);
        }
        moved
    }
}

/// An output with the number of its bytes.
#[derive(Debug)]
struct Counted<W> {
    to: W,
    bytes: u64,
    /// Whether nobody reads it.
    is_closed: bool,
}

impl<W> Counted<W> {
    fn new(to: W) -> Self {
        Self {
            to,
            bytes: 0,
            is_closed: false,
        }
    }
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes);
        match &written {
            Ok(written) => self.bytes += *written as u64,
            Err(error) => self.is_closed |= error.kind() == io::ErrorKind::BrokenPipe,
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
