//! Decodes a message without copying its keys and values: they share the buffer of the message.
//!
//! ```sh
//! cargo run -p revstore-proto --example zero_copy
//! ```

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use bytes::Bytes;
use prost::Message;
use revstore_proto::etcdserverpb::PutRequest;

fn main() -> Result<(), prost::DecodeError> {
    let sent = PutRequest {
        key: "color".into(),
        value: "blue".into(),
        ..PutRequest::default()
    };
    let buffer = Bytes::from(sent.encode_to_vec());

    let received = PutRequest::decode(buffer.clone())?;
    let shares_buffer = buffer.as_ptr_range().contains(&received.value.as_ptr());
    println!("{:?}, in the buffer: {shares_buffer}", received.value);
    Ok(())
}
