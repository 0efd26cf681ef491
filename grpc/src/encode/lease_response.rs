//! Lease responses that may be large. The worker that makes them encodes them, too: the copied keys take
//! more memory than their encoding.

use std::mem;

use prost::Message;
use prost::encoding::{bytes, message};
use revstore_proto::etcdserverpb::{LeaseLeasesResponse, LeaseTimeToLiveResponse};

use super::large_answer::{InParts, Parts};

impl InParts for LeaseTimeToLiveResponse {
    fn add_to(mut self, parts: &mut Parts) {
        let keys = mem::take(&mut self.keys);
        encode_head(&self, parts);
        for key in keys {
            bytes::encode(5, &key, parts.divided_fields());
        }
    }

    fn placeholder(&self) -> Self {
        Self::default()
    }
}

impl InParts for LeaseLeasesResponse {
    fn add_to(mut self, parts: &mut Parts) {
        let leases = mem::take(&mut self.leases);
        encode_head(&self, parts);
        for lease in leases {
            message::encode(2, &lease, parts.divided_fields());
        }
    }

    fn placeholder(&self) -> Self {
        Self::default()
    }
}

/// Adds the fields of a message before its list.
fn encode_head(message: &impl Message, parts: &mut Parts) {
    let fields = parts.fields();
    fields.reserve(message.encoded_len());
    // A buffer that grows has room for every message.
    let _ = message.encode(fields);
}
