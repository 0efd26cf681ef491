//! One HTTP request at a time, enough for the endpoints that probes and harnesses ask.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::poll;

/// An answer: the status code and the whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

/// Asks `address` for `path` and reads the answer to its end.
///
/// It speaks HTTP/1.0, which has neither chunks nor connections that stay open.
///
/// # Errors
/// Any error of the connection, and `InvalidData` for something that is not an HTTP answer.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&address, poll::LIMIT)?;
    stream.set_read_timeout(Some(poll::LIMIT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))
}

fn parse(answer: &str) -> Option<Response> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some(Response {
        status: status.parse().ok()?,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_status_and_body() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\nA: b\r\n\r\n{\r\n\r\n}\n");
        assert_eq!(
            answer,
            Some(Response {
                status: 503,
                body: "{\r\n\r\n}\n".to_owned()
            })
        );
        assert_eq!(parse("HTTP/1.1 OK\r\n\r\n"), None);
        assert_eq!(parse("SSH-2.0-x\r\n"), None);
    }
}
