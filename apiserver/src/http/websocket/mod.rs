//! Watches over `WebSocket`s (RFC 6455), which browsers and some client libraries ask for: the opening handshake, and
//! bearer tokens in it.

mod connection;
mod frame;

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::header::{
    AUTHORIZATION, CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use ring::digest;

pub(crate) use connection::Messages;
pub(crate) use frame::Opcode;

use crate::http::{Answer, Body, Exchange};

/// The text behind the client's key in the hash that proves the protocol (RFC 6455, 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The version of the protocol.
const VERSION: &str = "13";

/// The beginning of the name of a subprotocol that contains a bearer token, for browsers, which cannot set headers.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Returns whether the headers of a request ask for a WebSocket.
pub(crate) fn is_asked_for(headers: &HeaderMap) -> bool {
    let is_websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    headers.get(UPGRADE).is_some_and(is_websocket)
        && words(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

/// Answers a request for a WebSocket that sends messages for the given time at most. Returns the messages if the request
/// is not one.
pub(crate) fn open<M: Messages + 'static>(
    exchange: &Exchange,
    opcode: Opcode,
    messages: M,
    time_limit: Duration,
) -> Result<Answer, M> {
    if exchange.method != Method::GET || !is_asked_for(&exchange.headers) {
        return Err(messages);
    }
    // HTTP/2 and HTTP/1.0 have no upgrades.
    let Some(offer) = exchange.upgrade.clone() else {
        return Err(messages);
    };
    Ok(match handshake(exchange) {
        Ok(answer) => {
            offer.accept(move |stream, drain| {
                connection::run(stream, drain, opcode, messages, time_limit)
            });
            answer
        }
        Err(answer) => answer,
    })
}

/// Checks the opening handshake. Its errors have no statuses as their bodies, as in kube-apiserver.
fn handshake(exchange: &Exchange) -> Result<Answer, Answer> {
    let plain = |status: StatusCode, text: &'static str| Answer {
        status,
        headers: Vec::new(),
        body: Body::from(text),
    };
    let key = exchange.header(SEC_WEBSOCKET_KEY.as_str());
    if key.is_empty() {
        return Err(plain(
            StatusCode::BAD_REQUEST,
            "mismatch challenge/response",
        ));
    }
    if exchange.header(SEC_WEBSOCKET_VERSION.as_str()) != VERSION {
        let answer = plain(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        let version = HeaderValue::from_static(VERSION);
        return Err(answer.header(SEC_WEBSOCKET_VERSION, version));
    }
    if !is_origin(exchange.header(ORIGIN.as_str())) {
        return Err(plain(StatusCode::FORBIDDEN, ""));
    }
    let mut protocols = words(&exchange.headers, &SEC_WEBSOCKET_PROTOCOL);
    let protocol = protocols.next();
    if protocols.next().is_some() {
        // The server does not know one that it would prefer.
        return Err(plain(StatusCode::BAD_REQUEST, ""));
    }
    let proof = digest::digest(
        &digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{KEY_SUFFIX}").as_bytes(),
    );
    let mut headers = vec![
        (UPGRADE, HeaderValue::from_static("websocket")),
        (CONNECTION, HeaderValue::from_static("Upgrade")),
    ];
    let accept = HeaderValue::from_str(&BASE64_STANDARD.encode(proof));
    headers.extend(accept.ok().map(|accept| (SEC_WEBSOCKET_ACCEPT, accept)));
    let protocol = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok());
    headers.extend(protocol.map(|protocol| (SEC_WEBSOCKET_PROTOCOL, protocol)));
    Ok(Answer {
        status: StatusCode::SWITCHING_PROTOCOLS,
        headers,
        body: Body::empty(),
    })
}

/// Moves the bearer token of a WebSocket from the subprotocols to the header `Authorization`, unless there is one.
///
/// # Errors
/// The token is not one, there are several, or no other subprotocol.
pub(crate) fn move_token(headers: &mut HeaderMap) -> Result<(), InvalidToken> {
    if headers.contains_key(AUTHORIZATION) || !is_asked_for(headers) {
        return Ok(());
    }
    let (mut token, mut others) = (None, Vec::new());
    for word in words(headers, &SEC_WEBSOCKET_PROTOCOL) {
        match word.strip_prefix(TOKEN_PROTOCOL) {
            Some(encoded) if token.is_none() => token = Some(encoded),
            Some(_) => return Err(InvalidToken),
            None => others.push(word),
        }
    }
    let Some(token) = token else {
        return Ok(());
    };
    if others.is_empty() {
        return Err(InvalidToken);
    }
    let token = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
    let token = token.and_then(|token| String::from_utf8(token).ok());
    let token = token.ok_or(InvalidToken)?;
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| InvalidToken);
    let (token, others) = (
        value(&format!("Bearer {token}"))?,
        value(&others.join(","))?,
    );
    headers.insert(AUTHORIZATION, token);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    Ok(())
}

/// The token of a WebSocket is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidToken;

/// Returns the words of a header that are separated by commas.
fn words<'a>(headers: &'a HeaderMap, name: &'a http::HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|word| !word.is_empty())
}

/// Returns whether a text is an origin: a URL with a scheme, or a path. kube-apiserver refuses other ones, and requests
/// without one.
fn is_origin(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|char| char.is_ascii_alphanumeric() || "+-.".contains(char))
    };
    let has_scheme = text
        .split_once("://")
        .is_some_and(|(scheme, _)| is_scheme(scheme));
    (has_scheme || text.starts_with('/')) && !text.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_websocket_is_asked_for_by_two_headers() {
        for (connection, upgrade, expected) in [
            ("Upgrade", "websocket", true),
            ("keep-alive, UPGRADE", "WebSocket", true),
            ("keep-alive", "websocket", false),
            ("Upgrade", "h2c", false),
        ] {
            let headers = headers(&[("connection", connection), ("upgrade", upgrade)]);
            assert_eq!(is_asked_for(&headers), expected, "{connection}, {upgrade}");
        }
    }

    #[test]
    fn tokens_are_taken_from_the_subprotocols() {
        let token = |text: &str| format!("{TOKEN_PROTOCOL}{text}");
        for (protocols, expected) in [
            ("a, b".to_owned(), Ok(("", "a, b"))),
            (
                format!("{}, a, b", token("dGVzdHRva2Vu")),
                Ok(("Bearer testtoken", "a,b")),
            ),
            (token("dGVzdHRva2Vu"), Err(InvalidToken)),
            (
                format!("{}, {}, a", token("YQ"), token("YQ")),
                Err(InvalidToken),
            ),
            (format!("{}, a", token("!")), Err(InvalidToken)),
            (format!("{}, a", token("_w")), Err(InvalidToken)),
        ] {
            let mut headers = headers(&[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", &protocols),
            ]);
            let moved = move_token(&mut headers);
            let text = |name| headers.get(name).map_or("", |it| it.to_str().unwrap());
            let moved = moved.map(|()| (text(AUTHORIZATION), text(SEC_WEBSOCKET_PROTOCOL)));
            assert_eq!(moved, expected, "{protocols}");
        }
    }

    #[test]
    fn origins_are_urls() {
        for (text, expected) in [
            ("http://127.0.0.1", true),
            ("chrome-extension://abc", true),
            ("/path", true),
            ("", false),
            ("null", false),
            ("::", false),
            ("://x", false),
        ] {
            assert_eq!(is_origin(text), expected, "{text}");
        }
    }
}
