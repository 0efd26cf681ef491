//! A connection that is kept, over which requests with any bytes are sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The time after which an answer is missing.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A status and a body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection to a server.
pub(crate) struct Connection {
    address: String,
    stream: BufReader<TcpStream>,
    /// What has been read of the body of a watch, and not been returned.
    rest: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(url: &str) -> Self {
        let address = url.trim_start_matches("http://").to_owned();
        let stream = connect(&address);
        Self {
            address,
            stream,
            rest: Vec::new(),
        }
    }

    /// Sends a request with the media types of the body and of the answer, and reads the answer.
    pub(crate) fn send(
        &mut self,
        (method, path): (&str, &str),
        (content_type, accept): (&str, &str),
        body: &[u8],
    ) -> Answer {
        self.write(
            method,
            path,
            &[("Content-Type", content_type), ("Accept", accept)],
            body,
        );
        let (code, fields) = self.head();
        let field = |name: &str| {
            fields
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str())
        };
        let mut body = Vec::new();
        if field("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
        } else if let Some(length) = field("content-length") {
            body.resize(length.parse().expect("a length"), 0);
            self.stream.read_exact(&mut body).expect("the whole body");
        }
        if field("connection") == Some("close") {
            self.stream = connect(&self.address);
        }
        Answer { code, body }
    }

    /// Opens a watch, whose chunks follow.
    pub(crate) fn watch(mut self, path: &str, accept: &str) -> Self {
        self.write("GET", path, &[("Accept", accept)], b"");
        let (code, _) = self.head();
        assert_eq!(code, 200, "{path}");
        self
    }

    /// Returns the next line of the body of a watch.
    pub(crate) fn line_of_watch(&mut self) -> Vec<u8> {
        loop {
            if let Some(at) = self.rest.iter().position(|byte| *byte == b'\n') {
                return self.rest.drain(..=at).collect();
            }
            self.read_watch();
        }
    }

    /// Returns the next bytes of the body of a watch.
    pub(crate) fn bytes_of_watch(&mut self, count: usize) -> Vec<u8> {
        while self.rest.len() < count {
            self.read_watch();
        }
        self.rest.drain(..count).collect()
    }

    fn read_watch(&mut self) {
        let chunk = self.chunk().expect("the watch goes on");
        self.rest.extend(chunk);
    }

    /// Returns the next chunk of a body, or `None` at its end.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = self.line();
        let length = usize::from_str_radix(&length, 16).expect("the length of a chunk");
        let mut chunk = vec![0; length];
        self.stream.read_exact(&mut chunk).expect("the whole chunk");
        self.line();
        (length > 0).then_some(chunk)
    }

    fn write(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) {
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n").into_bytes();
        for (name, value) in fields {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes());
        bytes.extend(body);
        self.stream
            .get_mut()
            .write_all(&bytes)
            .expect("the server reads");
    }

    /// Reads the status and the fields of an answer.
    fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let status = self.line();
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut fields = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else {
                return (code.expect("a status"), fields);
            };
            fields.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .expect("the server answers");
        assert!(
            line.ends_with("\r\n"),
            "the connection ended after {line:?}"
        );
        line.truncate(line.len() - 2);
        line
    }
}

fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    BufReader::new(stream)
}
