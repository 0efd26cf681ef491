//! A child process whose output is captured and whose end is certain.

use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{error, fmt};

use crate::{http, poll};

/// A running child process. It is killed, and waited for, when this value is dropped.
///
/// Two threads read its output as it comes, so it never blocks on a full pipe; waiting for output
/// wakes up on output and does not poll.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Capture,
    stderr: Capture,
}

/// Which of the two outputs of a [`Process`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A process did not do what was waited for; shows everything that it printed.
#[derive(Debug)]
pub struct Failure {
    what: String,
    stdout: String,
    stderr: String,
}

impl Failure {
    /// Everything that the process had printed on standard error.
    pub fn stderr(&self) -> &str {
        &self.stderr
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            stdout,
            stderr,
        } = self;
        write!(
            formatter,
            "{what}\n--- its stdout:\n{stdout}\n--- its stderr:\n{stderr}"
        )
    }
}

impl error::Error for Failure {}

impl Process {
    /// Starts `command` with all three standard streams piped.
    ///
    /// # Errors
    /// When the program cannot be started.
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

    /// Everything printed on `stream` so far.
    pub fn output(&self, stream: Stream) -> String {
        self.capture(stream).text()
    }

    /// Writes `text` to the process's standard input.
    ///
    /// # Errors
    /// When the input was closed, by us or by the process.
    pub fn send(&mut self, text: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(text.as_bytes())?;
        stdin.flush()
    }

    /// Closes the process's standard input: it reads an end of file.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until `probe`, given everything printed on `stream` so far, finds something.
    ///
    /// # Errors
    /// When the stream ends, or [`poll::LIMIT`] passes, before that.
    pub fn wait_for_output<T>(
        &self,
        stream: Stream,
        probe: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Failure> {
        self.capture(stream)
            .wait(poll::LIMIT, probe)
            .ok_or_else(|| self.failure(&format!("did not print what was expected on {stream:?}")))
    }

    /// Waits until the process has ended by itself and all of its output has been read.
    ///
    /// # Errors
    /// When it still runs after `limit`.
    pub fn wait_for_exit(&mut self, limit: Duration) -> Result<ExitStatus, Failure> {
        // The ends of both streams come first and wake us, so that the look at the process itself
        // seldom has to be repeated.
        let closed = self.stdout.wait_closed(limit) && self.stderr.wait_closed(limit);
        let status = if closed {
            poll::until(limit, || self.child.try_wait().transpose())
        } else {
            None
        };
        match status {
            Some(Ok(status)) => Ok(status),
            Some(Err(error)) => Err(self.failure(&format!("cannot be waited for: {error}"))),
            None => Err(self.failure("did not end")),
        }
    }

    /// Polls `path` at `address` until it answers 200 and `accept` agrees with the body.
    ///
    /// # Errors
    /// When the process ends, or [`poll::LIMIT`] passes, before that.
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
                Ok(answer) if answer.status == 200 && accept(&answer.body) => Some(true),
                _ => None,
            }
        });
        match ready {
            Some(true) => Ok(()),
            Some(false) => Err(self.failure("ended before it was ready")),
            None => Err(self.failure(&format!("did not get ready at {address}{path}"))),
        }
    }

    /// Kills the process and waits for its end; what it printed stays readable.
    pub fn kill(&mut self) {
        self.stdin = None;
        // An error means that it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A failure of this process with everything that it printed.
    pub fn failure(&self, what: &str) -> Failure {
        Failure {
            what: format!("{} {what}", self.name),
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        }
    }

    fn capture(&self, stream: Stream) -> &Capture {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A loopback port that was free a moment ago.
///
/// For programs that cannot be told to take port 0 themselves. Between this call and the
/// program's own, something else may take the port; the caller then tries again with another one.
///
/// # Errors
/// When no port can be had.
pub fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// What a stream has carried so far, filled by a thread of its own.
#[derive(Debug, Clone)]
struct Capture {
    shared: Arc<(Mutex<Carried>, Condvar)>,
}

#[derive(Debug, Default)]
struct Carried {
    bytes: Vec<u8>,
    closed: bool,
}

impl Capture {
    fn of(source: Option<impl Read + Send + 'static>) -> Self {
        let shared = Arc::new((Mutex::new(Carried::default()), Condvar::new()));
        let capture = Self {
            shared: Arc::clone(&shared),
        };
        // Ends with the stream, which ends with the process: nobody has to join it.
        thread::spawn(move || {
            if let Some(mut source) = source {
                let mut buffer = [0; 8192];
                while let Ok(length @ 1..) = source.read(&mut buffer) {
                    capture.update(|carried| carried.bytes.extend_from_slice(&buffer[..length]));
                }
            }
            capture.update(|carried| carried.closed = true);
        });
        Self { shared }
    }

    fn update(&self, change: impl FnOnce(&mut Carried)) {
        let (carried, changed) = &*self.shared;
        change(&mut carried.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    fn text(&self) -> String {
        let carried = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&carried.bytes).into_owned()
    }

    /// Waits for `probe` to find something in the text so far; `None` at the end of either the
    /// stream or `limit`.
    fn wait<T>(&self, limit: Duration, mut probe: impl FnMut(&str) -> Option<T>) -> Option<T> {
        self.wait_while(limit, |carried| {
            let found = probe(&String::from_utf8_lossy(&carried.bytes));
            match (found, carried.closed) {
                (None, false) => None,
                (found, _) => Some(found),
            }
        })
        .flatten()
    }

    fn wait_closed(&self, limit: Duration) -> bool {
        self.wait_while(limit, |carried| carried.closed.then_some(()))
            .is_some()
    }

    fn wait_while<T>(
        &self,
        limit: Duration,
        mut check: impl FnMut(&Carried) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        let (carried, changed) = &*self.shared;
        let mut carried = carried.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = check(&carried) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            (carried, _) = changed
                .wait_timeout(carried, left)
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
    fn captures_both_streams_and_the_exit_code() {
        let mut process = shell("echo out; echo err >&2; exit 3");
        let status = process.wait_for_exit(poll::LIMIT).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(process.output(Stream::Stdout), "out\n");
        assert_eq!(process.output(Stream::Stderr), "err\n");
    }

    #[test]
    fn waits_for_a_line_of_a_process_that_goes_on() {
        let mut process = shell("echo one; read line; echo got $line; exec cat");
        let find = |wanted: &'static str| move |text: &str| text.contains(wanted).then_some(());
        process
            .wait_for_output(Stream::Stdout, find("one"))
            .unwrap();
        process.send("two\n").unwrap();
        process
            .wait_for_output(Stream::Stdout, find("got two"))
            .unwrap();
        process.close_stdin();
        assert!(process.wait_for_exit(poll::LIMIT).unwrap().success());
    }

    #[test]
    fn a_process_that_ends_early_is_a_failure_with_its_output() {
        let process = shell("echo sorry >&2");
        let failure = process
            .wait_for_output(Stream::Stdout, |_| None::<()>)
            .unwrap_err();
        assert_eq!(failure.stdout, "");
        let text = failure.to_string();
        assert!(text.contains("did not print what was expected"), "{text}");
    }

    #[test]
    fn dropping_kills() {
        let process = shell("exec cat");
        let stdout = process.stdout.clone();
        drop(process);
        assert!(stdout.wait_closed(poll::LIMIT));
    }
}
