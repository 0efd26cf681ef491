//! What the tests of the server share: a process to watch, and the plainest of HTTP clients.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use revstore_proto::etcdserverpb::{
    PutRequest, WatchCreateRequest, WatchRequest, WatchResponse, kv_client::KvClient,
    watch_client::WatchClient, watch_request::RequestUnion,
};
use tonic::{Status, Streaming, transport::Channel};

/// After this long something that is waited for will not come. No test waits that long when all is
/// well.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running `revstore`, killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    /// What was logged until now.
    pub(crate) log: Vec<String>,
}

/// Flags that let the system pick all ports.
pub(crate) const ANY_PORT: [&str; 3] = [
    "--listen-client-urls=http://127.0.0.1:0",
    "--advertise-client-urls=http://127.0.0.1:0",
    "--listen-peer-urls=http://127.0.0.1:0",
];

impl Process {
    /// Starts the binary in an empty environment, with standard error captured.
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_revstore")).args(arguments))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = child.stderr.take().expect("standard error is captured");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            lines,
            log: Vec::new(),
        }
    }

    /// Reads the log until a line holds `words`, and returns that line.
    pub(crate) fn wait_for_line(&mut self, words: &str) -> String {
        if let Some(line) = self.log.iter().find(|line| line.contains(words)) {
            return line.clone();
        }
        loop {
            let Ok(line) = self.lines.recv_timeout(DEADLINE) else {
                panic!("no line with {words:?} among {:#?}", self.log);
            };
            self.log.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// The address in the line that says that some traffic is served.
    pub(crate) fn address_of(&mut self, traffic: &str) -> SocketAddr {
        let line = self.wait_for_line(&format!("serving {traffic} traffic"));
        let (_, rest) = line.split_once(r#""address":""#).expect("an address");
        let (address, _) = rest.split_once('"').expect("the end of the address");
        address.parse().expect("a socket address")
    }

    /// Standard output, if the command captures it.
    pub(crate) fn take_stdout(&mut self) -> BufReader<std::process::ChildStdout> {
        BufReader::new(
            self.child
                .stdout
                .take()
                .expect("standard output is captured"),
        )
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .unwrap();
        assert!(sent.success(), "kill -s {name} {id}");
    }

    /// Waits for the end and returns the status and all that was logged.
    pub(crate) fn wait(mut self) -> (ExitStatus, Vec<String>) {
        // The lines end when the process does.
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) => self.log.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end: {:#?}", self.log),
            }
        }
        let status = self.child.wait().unwrap();
        (status, std::mem::take(&mut self.log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer over HTTP/1.1.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl HttpAnswer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        header.map(|(_, value)| value.as_str())
    }

    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("headers and a body");
        let mut lines = head.lines();
        let status = lines.next().expect("a status line");
        Self {
            status: status.split(' ').nth(1).unwrap().parse().unwrap(),
            headers: lines
                .filter_map(|line| line.split_once(": "))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            body: body.to_owned(),
        }
    }
}

/// Sends one request over anything and reads the answer to its end.
pub(crate) fn http_over(mut stream: impl Read + Write, method: &str, path: &str) -> HttpAnswer {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A peer that closes without a TLS farewell has still said all it wanted.
    let _ = stream.read_to_end(&mut answer);
    HttpAnswer::parse(&String::from_utf8(answer).unwrap())
}

pub(crate) fn http(address: SocketAddr, method: &str, path: &str) -> HttpAnswer {
    http_over(TcpStream::connect(address).unwrap(), method, path)
}

pub(crate) fn get(address: SocketAddr, path: &str) -> HttpAnswer {
    http(address, "GET", path)
}

/// Runs async code to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Puts a key over gRPC; returns the revision.
pub(crate) async fn put(channel: Channel, key: &str) -> Result<i64, Status> {
    let put = PutRequest {
        key: key.to_owned().into(),
        value: "value".into(),
        ..PutRequest::default()
    };
    let answer = KvClient::new(channel).put(put).await?.into_inner();
    Ok(answer.header.unwrap().revision)
}

/// A watch that is known to be open.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    pub(crate) responses: Streaming<WatchResponse>,
    /// The other half of the stream, which stays open.
    _requests: tokio::sync::mpsc::Sender<WatchRequest>,
}

pub(crate) async fn watch(channel: Channel, key: &str) -> OpenWatch {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let create = WatchCreateRequest {
        key: key.to_owned().into(),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    sender.send(request).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut responses = WatchClient::new(channel)
        .watch(requests)
        .await
        .unwrap()
        .into_inner();
    assert!(responses.message().await.unwrap().unwrap().created);
    OpenWatch {
        responses,
        _requests: sender,
    }
}

pub(crate) async fn connect(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

pub(crate) fn display(path: &Path) -> String {
    path.display().to_string()
}
