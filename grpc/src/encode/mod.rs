//! Encoding of responses: headers and messages are written into the buffer of the connection.
//!
//! | file | contents |
//! |---|---|
//! | `codec.rs` | the trait of encodable messages, their fields, and the codec for tonic |
//! | `response.rs` | response headers, and the responses that contain key-values |
//! | `lease_response.rs` | the responses that contain many leases or keys of a lease, if they are large |
//! | `watch_response.rs` | watch responses, and events that are encoded once for several watchers |
//! | `large_answer.rs` | the body of a large response |
//!
//! Responses with key-values contain the engine's records and write them directly into the buffer
//! of the connection. All other responses are generated messages.
//!
//! A *chunk* is a part of a large response that is encoded when the client has read the previous
//! part. A *fragment* is a part of a watch response that is split because the client requested it.
//! A *frame* is a frame of HTTP/2 or of gRPC, that is, a message with its length prefix.

pub(crate) mod codec;
pub(crate) mod large_answer;
pub(crate) mod lease_response;
pub(crate) mod response;
#[cfg(test)]
mod tests;
pub(crate) mod watch_response;
