//! A process of the binary under another name.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The time limit of a wait, after which the test fails.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A running process. It ends with its standard input, so when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    _stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    /// The lines of standard error that were read.
    said: Vec<String>,
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

impl Process {
    /// Starts the binary under a name, in a directory, with these environment variables only.
    pub(crate) fn start(
        name: &str,
        directory: &Path,
        variables: &[(&str, &str)],
        arguments: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_revstore-apiserver"));
        command.arg0(name).current_dir(directory).env_clear();
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        arguments(&mut command);
        let mut child = command.spawn().expect("the binary starts");
        Self {
            // A wait would close it.
            _stdin: child.stdin.take(),
            stdout: lines(child.stdout.take().expect("it is captured")),
            stderr: lines(child.stderr.take().expect("it is captured")),
            child,
            said: Vec::new(),
        }
    }

    /// Waits for the next line of standard output.
    pub(crate) fn ready(&mut self) -> String {
        self.stdout.recv_timeout(WAIT_LIMIT).unwrap_or_else(|_| {
            self.said.extend(self.stderr.try_iter());
            panic!("no line of standard output: {:?}", self.said)
        })
    }

    /// Waits for a line of standard error with this text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        while !self.said.iter().any(|line| line.contains(text)) {
            let line = self.stderr.recv_timeout(WAIT_LIMIT);
            let line = line.unwrap_or_else(|_| panic!("no '{text}' in {:?}", self.said));
            self.said.push(line);
        }
    }

    /// Ends the process, and returns whether it had written a line with this text to standard error.
    pub(crate) fn had_said(&mut self, text: &str) -> bool {
        self.terminate();
        self.said.extend(self.stderr.iter());
        self.said.iter().any(|line| line.contains(text))
    }

    /// Sends SIGTERM, and waits for the end.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process has an id"), Signal::TERM).expect("it runs");
        self.ended()
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.ended();
    }

    /// Waits for the end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.child.wait().expect("it ends")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
