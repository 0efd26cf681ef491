//! The errors of calls, in the words of Go's client.

use std::error::Error as StdError;
use std::io;

use http::StatusCode;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum CallError {
    /// There can be no client of the webhook.
    #[error("{0}")]
    Client(String),
    /// The webhook was not reached, or has not answered.
    #[error("Post {url:?}: {reason}")]
    Transport { url: String, reason: String },
    /// The webhook has answered with the status of an error.
    #[error("{message}")]
    Status { code: u16, message: String },
    /// The answer cannot be used.
    #[error("{0}")]
    Answer(String),
}

/// What Go says when a time limit has passed.
pub(crate) const LATE: &str = "context deadline exceeded";

impl CallError {
    /// Returns the code of an error that has one.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(super) fn transport(url: &str, reason: &str) -> Self {
        Self::Transport {
            url: url.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// Returns what is wrong with a media type without parameters.
pub(super) fn media_type_error(text: &str) -> Option<&'static str> {
    let (kind, sub) = text.split_once('/').unwrap_or((text, "x"));
    if kind.is_empty() {
        return Some("mime: no media type");
    }
    let is_token = |text: &str| !text.is_empty() && !text.contains(['/', ' ', '"', '\\']);
    (!is_token(kind) || !is_token(sub)).then_some("mime: unexpected content after media subtype")
}

/// Returns the error of an answer with a status that is no success.
pub(super) fn status_error(status: StatusCode, body: &str) -> CallError {
    let code = status.as_u16();
    let message = match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if body.is_empty() || body == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
                .to_owned()
        }
        403 | 406 | 415 => body.to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later"
            .to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be \
                processing the request"
            .to_owned(),
        500.. => {
            format!("an error on the server ({body:?}) has prevented the request from succeeding")
        }
        _ => format!(
            "the server responded with the status code {code} but did not return more information"
        ),
    };
    CallError::Status { code, message }
}

/// Returns the text of an address that cannot be connected to.
pub(crate) fn dial_error(host: &str, port: u16, error: &io::Error) -> String {
    let address = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("dial tcp {address}: connect: connection refused")
        }
        io::ErrorKind::HostUnreachable => format!("dial tcp {address}: connect: no route to host"),
        io::ErrorKind::NetworkUnreachable => {
            format!("dial tcp {address}: connect: network is unreachable")
        }
        io::ErrorKind::TimedOut => format!("dial tcp {address}: i/o timeout"),
        _ if error.raw_os_error().is_none() => {
            format!("dial tcp: lookup {host}: no such host")
        }
        _ => format!("dial tcp {address}: {error}"),
    }
}

/// Returns the text of the innermost error of a library for which Go has one.
pub(crate) fn transport_error(error: &(dyn StdError + 'static)) -> String {
    let mut texts = vec![error.to_string()];
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(tls) = current.downcast_ref::<rustls::Error>() {
            return tls_text(tls);
        }
        if let Some(connect) = current.downcast_ref::<super::connector::ConnectError>() {
            return match connect {
                super::connector::ConnectError::Dial(text) => text.clone(),
                super::connector::ConnectError::Tls(error) => io_text(error),
            };
        }
        if let Some(io) = current.downcast_ref::<io::Error>() {
            return io_text(io);
        }
        if let Some(hyper) = current.downcast_ref::<hyper::Error>()
            && (hyper.is_incomplete_message() || hyper.is_canceled())
        {
            return "EOF".to_owned();
        }
        if let Some(hyper) = current.downcast_ref::<hyper::Error>()
            && hyper.is_parse()
        {
            return format!("net/http: HTTP/1.x transport connection broken: {hyper}");
        }
        next = current.source();
        texts.extend(next.map(ToString::to_string));
    }
    texts.pop().unwrap_or_default()
}

fn io_text(error: &io::Error) -> String {
    if let Some(tls) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        return tls_text(tls);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "write: broken pipe".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the text of a handshake that failed.
fn tls_text(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(error) = error else {
        return match error {
            rustls::Error::InvalidMessage(_) => {
                "tls: first record does not look like a TLS handshake".to_owned()
            }
            other => format!("tls: {other}"),
        };
    };
    let text = match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "certificate has expired or is not yet valid: current time {} is after {}",
            timestamp(*time),
            timestamp(*not_after)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "certificate has expired or is not yet valid: current time {} is before {}",
            timestamp(*time),
            timestamp(*not_before)
        ),
        CertificateError::Expired | CertificateError::NotValidYet => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => other_name(&expected.to_str(), presented),
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {text}")
}

/// Returns what is said of a certificate for other names.
fn other_name(expected: &str, presented: &[String]) -> String {
    let of = |kind: &str| -> Vec<&str> {
        let names = presented.iter();
        let names = names.filter_map(|name| name.strip_prefix(kind)?.strip_suffix(')'));
        names.map(|name| name.trim_matches('"')).collect()
    };
    if expected.parse::<std::net::IpAddr>().is_ok() {
        let addresses = of("IpAddress(");
        return if addresses.is_empty() {
            format!(
                "cannot validate certificate for {expected} because it doesn't contain any IP SANs"
            )
        } else {
            format!(
                "certificate is valid for {}, not {expected}",
                addresses.join(", ")
            )
        };
    }
    let names = of("DnsName(");
    if names.is_empty() {
        format!("certificate is not valid for any names, but wanted to match {expected}")
    } else {
        format!(
            "certificate is valid for {}, not {expected}",
            names.join(", ")
        )
    }
}

fn timestamp(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_client_go() {
        let text = |code: u16, body: &str| {
            status_error(StatusCode::from_u16(code).unwrap(), body).to_string()
        };
        assert_eq!(
            text(500, "boom\"x"),
            "an error on the server (\"boom\\\"x\") has prevented the request from succeeding"
        );
        assert_eq!(
            text(404, "nothing"),
            "the server could not find the requested resource"
        );
        assert_eq!(
            text(302, ""),
            "the server responded with the status code 302 but did not return more information"
        );
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(
            dial_error("::1", 80, &refused),
            "dial tcp [::1]:80: connect: connection refused"
        );
    }
}
