//! Child processes with captured output. Dropping a [`Process`] kills the process.

use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{error, fmt};

use crate::{http, poll};

/// A running child process. Dropping the value kills the process and waits for its end.
///
/// Two threads read the output when it arrives. So the process never blocks on a full pipe, and a wait for
/// output does not poll.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Capture,
    stderr: Capture,
}

/// An output stream of a [`Process`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An unmet expectation about a process, with the whole output of the process.
#[derive(Debug)]
pub struct Failure {
    message: String,
    stdout: String,
    stderr: String,
}

impl Failure {
    /// Returns all output of the process on standard error.
    pub fn stderr(&self) -> &str {
        &self.stderr
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            message,
            stdout,
            stderr,
        } = self;
        write!(
            formatter,
            "{message}\n--- its stdout:\n{stdout}\n--- its stderr:\n{stderr}"
        )
    }
}

impl error::Error for Failure {}

impl Process {
    /// Starts `command` with pipes for its three standard streams.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = Capture::of(child.stdout.take());
        let stderr = Capture::of(child.stderr.take());
        Ok(Self {
            name,
            stdin: child.stdin.take(),
            child,
            stdout,
            stderr,
        })
    }

    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns everything printed on `stream` so far.
    pub fn output(&self, stream: OutputStream) -> String {
        self.capture(stream).text()
    }

    /// Writes `text` to the standard input of the process.
    ///
    /// # Errors
    /// If the input is closed on either side.
    pub fn send(&mut self, text: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(text.as_bytes())?;
        stdin.flush()
    }

    /// Closes the standard input of the process, which then reads an end of file.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until `probe` returns a value for the text printed on `stream` so far.
    ///
    /// # Errors
    /// If the stream ends or [`poll::LIMIT`] passes before that.
    pub fn wait_for_output<T>(
        &self,
        stream: OutputStream,
        probe: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        self.capture(stream)
            .wait(poll::LIMIT, probe)
            .ok_or_else(|| self.failure(&format!("did not print the expected text on {stream:?}")))
    }

    /// Waits until the process has exited and all of its output has been read.
    ///
    /// # Errors
    /// If the process still runs after `limit`.
    pub fn wait_for_exit(&mut self, limit: Duration) -> Result<ExitStatus, Failure> {
        // The ends of both streams come first and wake this thread, so the exit status is rarely polled more
        // than once.
        let closed = self.stdout.wait_closed(limit) && self.stderr.wait_closed(limit);
        let status = if closed {
            poll::until(limit, || self.child.try_wait().transpose())
        } else {
            None
        };
        match status {
            Some(Ok(status)) => Ok(status),
            Some(Err(error)) => Err(self.failure(&format!("has no exit status: {error}"))),
            None => Err(self.failure(&format!("did not exit within {} s", limit.as_secs()))),
        }
    }

    /// Polls `path` at `address` until the response is 200 and `accept` returns true for its body.
    ///
    /// # Errors
    /// If the process exits or [`poll::LIMIT`] passes before that.
    pub fn wait_for_http(
        &mut self,
        address: SocketAddr,
        path: &str,
        accept: impl Fn(&str) -> bool,
    ) -> Result<(), Failure> {
        let ready = poll::until(poll::LIMIT, || {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Some(false);
            }
            match http::get(address, path) {
                Ok(response) if response.status == 200 && accept(&response.body) => Some(true),
                _ => None,
            }
        });
        match ready {
            Some(true) => Ok(()),
            Some(false) => Err(self.failure("exited before it was ready")),
            None => Err(self.failure(&format!(
                "had no accepted response at {address}{path} within {} s",
                poll::LIMIT.as_secs()
            ))),
        }
    }

    /// Kills the process and waits for its end. Its output stays readable.
    pub fn kill(&mut self) {
        self.stdin = None;
        // An error means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns a failure of this process with its whole output.
    pub fn failure(&self, message: &str) -> Failure {
        Failure {
            message: format!("{} {message}", self.name),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }

    fn capture(&self, stream: OutputStream) -> &Capture {
        match stream {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a loopback port that is free at the moment of the call.
///
/// For programs that cannot listen on port 0. If another process takes the port first, the caller tries
/// another port.
///
/// # Errors
/// If no port is available.
pub fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// The output of a stream so far. A separate thread reads the stream.
#[derive(Debug, Clone)]
struct Capture {
    shared: Arc<(Mutex<Captured>, Condvar)>,
}

#[derive(Debug, Default)]
struct Captured {
    bytes: Vec<u8>,
    closed: bool,
}

impl Capture {
    fn of(source: Option<impl Read + Send + 'static>) -> Self {
        let shared = Arc::new((Mutex::new(Captured::default()), Condvar::new()));
        let capture = Self {
            shared: Arc::clone(&shared),
        };
        // The thread is not joined: it ends with the stream, and the stream ends with the process.
        thread::spawn(move || {
            if let Some(mut source) = source {
                let mut buffer = [0; 8192];
                while let Ok(length @ 1..) = source.read(&mut buffer) {
                    capture.update(|captured| captured.bytes.extend_from_slice(&buffer[..length]));
                }
            }
            capture.update(|captured| captured.closed = true);
        });
        Self { shared }
    }

    fn update(&self, change: impl FnOnce(&mut Captured)) {
        let (captured, changed) = &*self.shared;
        change(&mut captured.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    fn text(&self) -> String {
        let captured = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&captured.bytes).into_owned()
    }

    /// Waits until `probe` returns a value for the text so far; returns `None` if the stream ends or
    /// `limit` passes before that.
    fn wait<T>(&self, limit: Duration, mut probe: impl FnMut(&str) -> Option<T>) -> Option<T> {
        self.wait_while(limit, |captured| {
            let found = probe(&String::from_utf8_lossy(&captured.bytes));
            match (found, captured.closed) {
                (None, false) => None,
                (found, _) => Some(found),
            }
        })
        .flatten()
    }

    fn wait_closed(&self, limit: Duration) -> bool {
        self.wait_while(limit, |captured| captured.closed.then_some(()))
            .is_some()
    }

    fn wait_while<T>(
        &self,
        limit: Duration,
        mut check: impl FnMut(&Captured) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        let (captured, changed) = &*self.shared;
        let mut captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = check(&captured) {
                return Some(found);
            }
            let remaining = deadline.checked_duration_since(Instant::now())?;
            (captured, _) = changed
                .wait_timeout(captured, remaining)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Process::spawn(command).unwrap()
    }

    #[test]
    fn both_streams_and_the_exit_code_are_captured() {
        let mut process = shell("echo out; echo err >&2; exit 3");
        let status = process.wait_for_exit(poll::LIMIT).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(process.output(OutputStream::Stdout), "out\n");
        assert_eq!(process.output(OutputStream::Stderr), "err\n");
    }

    #[test]
    fn a_wait_for_output_ends_while_the_process_runs() {
        let mut process = shell("echo one; read line; echo got $line; exec cat");
        let find = |wanted: &'static str| move |text: &str| text.contains(wanted).then_some(());
        process
            .wait_for_output(OutputStream::Stdout, find("one"))
            .unwrap();
        process.send("two\n").unwrap();
        process
            .wait_for_output(OutputStream::Stdout, find("got two"))
            .unwrap();
        process.close_stdin();
        assert!(process.wait_for_exit(poll::LIMIT).unwrap().success());
    }

    #[test]
    fn a_wait_for_output_fails_when_the_process_ends() {
        let process = shell("echo sorry >&2");
        let failure = process
            .wait_for_output(OutputStream::Stdout, |_| None::<()>)
            .unwrap_err();
        assert_eq!(failure.stdout, "");
        let text = failure.to_string();
        assert!(text.contains("did not print the expected text"), "{text}");
    }

    #[test]
    fn dropping_the_value_kills_the_process() {
        let process = shell("exec cat");
        let stdout = process.stdout.clone();
        drop(process);
        assert!(stdout.wait_closed(poll::LIMIT));
    }
}
