//! Responses on the way out: messages and headers as the bytes that go to the connection.
//!
//! Responses that carry key-values hold the engine's records and write them directly into the
//! connection's buffer (`wire`, through `codec`); all other responses are generated messages.
//! `fields` and `header` write the parts that they share.

pub(crate) mod codec;
pub(crate) mod fields;
pub(crate) mod header;
pub(crate) mod range_body;
pub(crate) mod raw;
pub(crate) mod wire;
