//! Builds the transaction of a compare-and-swap: it writes a value only if the key has not changed
//! since a revision, and reads the current value otherwise.
//!
//! ```sh
//! cargo run -p revstore-proto --example compare_and_swap
//! ```

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use bytes::Bytes;
use prost::Message;
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest};

/// Returns a transaction that puts `value` if the last change of `key` was at `mod_revision`. For a
/// key that does not exist yet, that is 0.
fn compare_and_swap(key: &Bytes, value: Bytes, mod_revision: i64) -> TxnRequest {
    let unchanged = Compare {
        key: key.clone(),
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        target_union: Some(TargetUnion::ModRevision(mod_revision)),
        ..Compare::default()
    };
    let put = PutRequest {
        key: key.clone(),
        value,
        ..PutRequest::default()
    };
    let read = RangeRequest {
        key: key.clone(),
        ..RangeRequest::default()
    };
    let op = |request| RequestOp {
        request: Some(request),
    };
    TxnRequest {
        compare: vec![unchanged],
        success: vec![op(Request::RequestPut(put))],
        failure: vec![op(Request::RequestRange(read))],
    }
}

fn main() {
    let request = compare_and_swap(&"color".into(), "green".into(), 7);
    println!("{} bytes: {request:?}", request.encoded_len());
}
