//! The server of the tests: it writes scripted answers in random pieces.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use revstore_reflector::kube::{KubeListWatch, KubeListWatchBuilder};

/// What the server does after the bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum After {
    /// Waits for the next request on the connection.
    Request,
    /// Closes the connection.
    Close,
    /// Waits until the client closes it.
    Hang,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) after: After,
}

/// Returns an answer with a known length.
pub(crate) fn whole(status: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    Answer {
        bytes: text.into_bytes(),
        after: After::Request,
    }
}

pub(crate) fn list(revision: i64, token: &str, items: &[&str]) -> Answer {
    let body = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{revision}","continue":"{token}"}},"items":[{}]}}"#,
        items.join(",")
    );
    whole("200 OK", "Content-Type: application/json\r\n", &body)
}

/// Returns a chunked answer, one chunk for each part, and its end if the server closes it properly.
pub(crate) fn watch(parts: &[&str], after: After) -> Answer {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for part in parts {
        bytes.extend_from_slice(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes());
    }
    if after == After::Request {
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
    Answer { bytes, after }
}

pub(crate) fn pod(name: &str, revision: i64) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}","resourceVersion":"{revision}","labels":{{"app":"w}}{{b"}}}},"spec":{{"args":["\"","\\"]}}}}"#
    )
}

pub(crate) fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

pub(crate) fn bookmark(revision: i64, annotations: &str) -> String {
    event(
        "BOOKMARK",
        &format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{revision}"{annotations}}}}}"#
        ),
    )
}

/// A server that answers the requests in the order of its script.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) script: Arc<Mutex<VecDeque<Answer>>>,
    /// The heads of the received requests, and `accepted` and `closed` for connections.
    pub(crate) log: Receiver<String>,
}

impl Server {
    pub(crate) fn new(seed: u64, answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(answers.into_iter().collect()));
        let (sender, log) = channel();
        let answers = script.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (answers, sender) = (answers.clone(), sender.clone());
                std::thread::spawn(move || serve(&connection, &answers, &sender, seed));
            }
        });
        Self {
            address,
            script,
            log,
        }
    }

    pub(crate) fn then(&self, answers: impl IntoIterator<Item = Answer>) {
        self.script.lock().unwrap().extend(answers);
    }

    pub(crate) fn builder(&self) -> KubeListWatchBuilder {
        KubeListWatch::builder(format!("http://{}", self.address), "/api/v1/pods")
            .runtime(runtime().clone())
    }

    /// Returns the targets of the requests until now.
    pub(crate) fn targets(&self) -> Vec<String> {
        let heads = self.log.try_iter().filter(|line| line.starts_with("GET "));
        let target = |head: String| head.split(' ').nth(1).unwrap().to_owned();
        heads.map(target).collect()
    }

    /// Waits for a line of the log that begins with a text.
    pub(crate) fn wait_for(&self, beginning: &str) -> String {
        let line = self.log.iter().find(|line| line.starts_with(beginning));
        line.unwrap()
    }
}

pub(crate) fn serve(
    mut connection: &TcpStream,
    answers: &Mutex<VecDeque<Answer>>,
    log: &Sender<String>,
    seed: u64,
) {
    let mut random = Rng::with_seed(seed);
    connection.set_nodelay(true).unwrap();
    let _ = log.send("accepted".into());
    loop {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(connection.read(&mut byte), Ok(1)) {
                let _ = log.send("closed".into());
                return;
            }
            head.push(byte[0]);
        }
        let _ = log.send(String::from_utf8(head).unwrap());
        let Some(answer) = answers.lock().unwrap().pop_front() else {
            // As a server that never answers.
            let _ = connection.read(&mut byte);
            let _ = log.send("closed".into());
            return;
        };
        let mut rest = &answer.bytes[..];
        while !rest.is_empty() {
            let part = if rest.len() > 100_000 {
                rest.len()
            } else {
                random.usize(1..=40)
            };
            let (part, next) = rest.split_at(part.min(rest.len()));
            if connection.write_all(part).is_err() {
                let _ = log.send("closed".into());
                return;
            }
            rest = next;
        }
        match answer.after {
            After::Request => {}
            After::Close => {
                let _ = connection.shutdown(Shutdown::Both);
                return;
            }
            After::Hang => {
                let _ = connection.read(&mut byte);
                let _ = log.send("closed".into());
                return;
            }
        }
    }
}

/// The runtime of all tests. The tests themselves run outside of it.
pub(crate) fn runtime() -> &'static tokio::runtime::Handle {
    static RUNTIME: std::sync::LazyLock<tokio::runtime::Runtime> = std::sync::LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    });
    RUNTIME.handle()
}

/// Returns the JSON of a failure.
pub(crate) fn status(code: u16, rest: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","code":{code},{rest}}}"#
    )
}
