//! A client for single HTTP requests, for the endpoints that probes and test harnesses use.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::poll;

/// A response: the status code and the whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

/// A request. It is sent as HTTP/1.0, so that the response has no chunks and the server closes the
/// connection.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method, such as `GET`.
    pub method: &'a str,
    /// The path with its query.
    pub path: &'a str,
    /// Headers in addition to those of every request.
    pub headers: &'a [(&'a str, &'a str)],
    /// The whole body.
    pub body: &'a str,
}

impl Request<'_> {
    /// Sends the request and reads the response to its end.
    ///
    /// # Errors
    /// Any error of the connection, and `InvalidData` if the response is not HTTP.
    pub fn send(&self, address: SocketAddr) -> io::Result<Response> {
        self.send_for_lines(address, usize::MAX)
    }

    /// Sends the request, reads at most `lines_max` lines of the body of the response, and closes the
    /// connection.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_for_lines(&self, address: SocketAddr, lines_max: usize) -> io::Result<Response> {
        let mut stream = TcpStream::connect_timeout(&address, poll::LIMIT)?;
        stream.set_read_timeout(Some(poll::LIMIT))?;
        stream.write_all(self.text(address).as_bytes())?;
        let mut response = BufReader::new(stream);
        let status = read_head(&mut response)?;
        let mut body = Vec::new();
        for _ in 0..lines_max {
            if response.read_until(b'\n', &mut body)? == 0 {
                break;
            }
        }
        Ok(Response {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    fn text(&self, address: SocketAddr) -> String {
        let Self {
            method,
            path,
            headers,
            body,
        } = self;
        let headers: String = headers
            .iter()
            .flat_map(|(name, value)| [name, ": ", value, "\r\n"])
            .collect();
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
    }
}

/// Gets `path` from `address` and reads the response to its end.
///
/// # Errors
/// As [`Request::send`].
pub fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    let request = Request {
        method: "GET",
        path,
        headers: &[],
        body: "",
    };
    request.send(address)
}

/// The status code and the headers of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The status code, such as 200.
    pub status: u16,
    headers: Vec<String>,
}

impl Head {
    /// Returns the value of the first header with a name, which has no upper case letters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let headers = self.headers.iter().filter_map(|line| line.split_once(": "));
        let mut headers = headers.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        headers.next().map(|(_, value)| value)
    }
}

/// Sends bytes over a connection, and reads the head of the response.
///
/// # Errors
/// Any error of the connection, and `InvalidData` if the response is not HTTP.
pub fn exchange(mut stream: impl Read + Write, request: &[u8]) -> io::Result<Head> {
    stream.write_all(request)?;
    read_whole_head(&mut BufReader::new(stream))
}

/// Reads a response up to its body and returns the status code.
fn read_head(response: &mut impl BufRead) -> io::Result<u16> {
    read_whole_head(response).map(|head| head.status)
}

fn read_whole_head(response: &mut impl BufRead) -> io::Result<Head> {
    let no_http = || io::Error::new(io::ErrorKind::InvalidData, "not an HTTP response");
    let mut line = String::new();
    response.read_line(&mut line)?;
    let status = line.strip_prefix("HTTP/1.").ok_or_else(no_http)?;
    let status = status.split([' ', '\r']).nth(1).ok_or_else(no_http)?;
    let status = status.parse().map_err(|_| no_http())?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        match (response.read_line(&mut line)?, line.as_str()) {
            (0, _) => return Err(no_http()),
            (_, "\r\n") => return Ok(Head { status, headers }),
            (_, header) => headers.push(header.trim_end().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(response: &str) -> Option<u16> {
        read_head(&mut response.as_bytes()).ok()
    }

    #[test]
    fn the_head_ends_before_the_body() {
        let mut response =
            "HTTP/1.0 503 Service Unavailable\r\nA: b\r\n\r\n{\r\n\r\n}\n".as_bytes();
        assert_eq!(read_head(&mut response).unwrap(), 503);
        assert_eq!(response, b"{\r\n\r\n}\n");
    }

    #[test]
    fn other_texts_are_errors() {
        assert_eq!(status("HTTP/1.1 200\r\n\r\n"), Some(200));
        assert_eq!(status("HTTP/1.1 OK\r\n\r\n"), None);
        assert_eq!(status("HTTP/1.1 200 OK\r\nA: b\r\n"), None);
        assert_eq!(status("SSH-2.0-x\r\n"), None);
        assert_eq!(status(""), None);
    }
}
