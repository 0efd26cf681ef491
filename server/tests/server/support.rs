//! Helpers of the server tests: a server process and a minimal HTTP client.

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

/// The time limit of a wait, after which the test fails.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A running `revstore` process. Dropping the value kills it.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    lines: Receiver<String>,
    /// The log lines read so far.
    pub(crate) log: Vec<String>,
}

/// Flags of a server for which the system chooses all ports.
pub(crate) const ANY_PORT: [&str; 3] = [
    "--listen-client-urls=http://127.0.0.1:0",
    "--advertise-client-urls=http://127.0.0.1:0",
    "--listen-peer-urls=http://127.0.0.1:0",
];

/// Flags of such a server that serves clients over TLS, with a certificate that it creates.
pub(crate) const AUTO_TLS: [&str; 4] = [
    "--listen-client-urls=https://127.0.0.1:0",
    "--advertise-client-urls=https://127.0.0.1:0",
    "--listen-peer-urls=http://127.0.0.1:0",
    "--auto-tls",
];

impl ServerProcess {
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

    /// Waits for a log line that contains `text` and returns the first one.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        if let Some(line) = self.log.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        loop {
            let Ok(line) = self.lines.recv_timeout(WAIT_TIMEOUT) else {
                panic!("expected a line with {text:?}, got {:#?}", self.log);
            };
            self.log.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for the next log line.
    pub(crate) fn next_line(&mut self) {
        let line = self.lines.recv_timeout(WAIT_TIMEOUT);
        self.log.push(line.expect("a line"));
    }

    /// Returns the address in the log line of the listener for `traffic`.
    pub(crate) fn address_of(&mut self, traffic: &str) -> SocketAddr {
        let line = self.wait_for_line(&format!("serving {traffic} traffic"));
        let (_, rest) = line.split_once(r#""address":""#).expect("an address");
        let (address, _) = rest.split_once('"').expect("the end of the address");
        address.parse().expect("a socket address")
    }

    /// Returns standard output, which the command must capture.
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

    /// Sends the signal with the given name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let status = Command::new("kill")
            .args(["-s", name, &id])
            .status()
            .unwrap();
        assert!(status.success(), "kill -s {name} {id}");
    }

    /// Waits for the end of the process. Returns its status and the whole log.
    pub(crate) fn wait(mut self) -> (ExitStatus, Vec<String>) {
        // The channel closes when the process ends.
        loop {
            match self.lines.recv_timeout(WAIT_TIMEOUT) {
                Ok(line) => self.log.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!(
                        "the process did not end within {WAIT_TIMEOUT:?}: {:#?}",
                        self.log
                    )
                }
            }
        }
        let status = self.child.wait().unwrap();
        (status, std::mem::take(&mut self.log))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both calls fail if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP/1.1 response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl HttpResponse {
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

/// Sends one request over a connection and reads the whole response.
pub(crate) fn http_over(stream: impl Read + Write, method: &str, path: &str) -> HttpResponse {
    try_http_over(stream, method, path).expect("a response")
}

/// Like [`http_over`]; returns `None` if the connection is closed without a response.
pub(crate) fn try_http_over(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
) -> Option<HttpResponse> {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut response = Vec::new();
    // Ignores the error of a peer that closes the connection without a TLS `close_notify`.
    let _ = stream.read_to_end(&mut response);
    let response = String::from_utf8(response).unwrap();
    (!response.is_empty()).then(|| HttpResponse::parse(&response))
}

pub(crate) fn http(address: SocketAddr, method: &str, path: &str) -> HttpResponse {
    http_over(TcpStream::connect(address).unwrap(), method, path)
}

pub(crate) fn get(address: SocketAddr, path: &str) -> HttpResponse {
    http(address, "GET", path)
}

/// Runs a future to completion.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Puts a key over gRPC and returns the revision.
pub(crate) async fn put(channel: Channel, key: &str) -> Result<i64, Status> {
    let put = PutRequest {
        key: key.to_owned().into(),
        value: "value".into(),
        ..PutRequest::default()
    };
    let response = KvClient::new(channel).put(put).await?.into_inner();
    Ok(response.header.unwrap().revision)
}

/// A watch whose creation was confirmed.
#[derive(Debug)]
pub(crate) struct ConfirmedWatch {
    pub(crate) responses: Streaming<WatchResponse>,
    /// Keeps the request stream open.
    _requests: tokio::sync::mpsc::Sender<WatchRequest>,
}

pub(crate) async fn watch(channel: Channel, key: &str) -> ConfirmedWatch {
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
    ConfirmedWatch {
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
