//! Responses on the way out: headers and messages as the bytes that go to the connection.
//!
//! Responses that carry key-values hold the engine's records and write them directly into the
//! connection's buffer (`response`, `watch_response`, by means of `codec`); all other responses are
//! generated messages. A large page is written in chunks while the client reads it (`range_body`).

pub(crate) mod codec;
pub(crate) mod range_body;
pub(crate) mod response;
#[cfg(test)]
mod tests;
pub(crate) mod watch_response;
