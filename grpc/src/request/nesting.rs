//! Transactions nested in transactions: their maximum depth, and decoding at any depth without recursion.

use bytes::{Buf, Bytes};
use prost::encoding::{
    DecodeContext, WireType, check_wire_type, decode_key, decode_varint, skip_field,
};
use prost::{DecodeError, Message};
use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::{Compare, RequestOp, TxnRequest};

/// The maximum number of transactions that are nested in one another, without the outermost one. It is what
/// the default limit on operations allows (TXN-2), and applies at every limit: the functions that handle a
/// transaction are recursive, and must not overflow the stack of a thread of 2 MiB.
pub(crate) const NESTING_MAX: usize = 128;

/// The field of a nested transaction in `RequestOp`, and of its response in `ResponseOp`.
const NESTED_FIELD: u32 = 4;

/// A transaction cannot be decoded.
#[derive(Debug)]
pub(crate) enum TxnDecodeError {
    /// The bytes are not a transaction.
    Malformed(DecodeError),
    /// There are more than [`NESTING_MAX`] levels.
    TooDeep,
}

impl From<DecodeError> for TxnDecodeError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

/// Decodes a transaction. prost decodes all transactions but those of more than 49 levels, because it limits
/// the depth of messages.
pub(crate) fn decode_txn(message: &Bytes) -> Result<TxnRequest, TxnDecodeError> {
    match TxnRequest::decode(message.clone()) {
        Ok(txn) => Ok(txn),
        Err(_) => decode_nested(message.clone()),
    }
}

/// A transaction that is being decoded.
struct Frame {
    txn: TxnRequest,
    /// The rest of its bytes.
    rest: Bytes,
    /// Whether it is in the branch `failure` of the transaction around it.
    in_failure: bool,
}

impl Frame {
    fn new(message: Bytes, in_failure: bool) -> Self {
        Self {
            txn: TxnRequest::default(),
            rest: message,
            in_failure,
        }
    }

    fn push(&mut self, op: RequestOp, in_failure: bool) {
        if in_failure {
            self.txn.failure.push(op);
        } else {
            self.txn.success.push(op);
        }
    }
}

/// Decodes a transaction with a list of the transactions around the current one instead of recursion.
fn decode_nested(message: Bytes) -> Result<TxnRequest, TxnDecodeError> {
    let mut frame = Frame::new(message, false);
    let mut around = Vec::new();
    loop {
        if !frame.rest.has_remaining() {
            let Some(mut parent): Option<Frame> = around.pop() else {
                return Ok(frame.txn);
            };
            let op = RequestOp {
                request: Some(Request::RequestTxn(frame.txn)),
            };
            parent.push(op, frame.in_failure);
            frame = parent;
            continue;
        }
        let (field, wire_type) = decode_key(&mut frame.rest)?;
        match field {
            1 => {
                let compare = take_message(wire_type, &mut frame.rest)?;
                frame.txn.compare.push(Compare::decode(compare)?);
            }
            2 | 3 => {
                let (op, in_failure) = (take_message(wire_type, &mut frame.rest)?, field == 3);
                match nested_txn(&op)? {
                    Some(_) if around.len() == NESTING_MAX => return Err(TxnDecodeError::TooDeep),
                    Some(txn) => {
                        around.push(frame);
                        frame = Frame::new(txn, in_failure);
                    }
                    None => frame.push(RequestOp::decode(op)?, in_failure),
                }
            }
            _ => skip_field(wire_type, field, &mut frame.rest, DecodeContext::default())?,
        }
    }
}

/// Returns the nested transaction, or its response, in an encoded `RequestOp` or `ResponseOp`. `None` if it
/// contains another operation.
pub(crate) fn nested_txn(op: &Bytes) -> Result<Option<Bytes>, DecodeError> {
    let (mut rest, mut nested) = (op.clone(), None);
    while rest.has_remaining() {
        let (field, wire_type) = decode_key(&mut rest)?;
        if field == NESTED_FIELD {
            nested = Some(take_message(wire_type, &mut rest)?);
            continue;
        }
        if field < NESTED_FIELD {
            // Of several operations, the last one counts.
            nested = None;
        }
        skip_field(wire_type, field, &mut rest, DecodeContext::default())?;
    }
    Ok(nested)
}

/// Takes a message without its length from the start of `rest`.
pub(crate) fn take_message(wire_type: WireType, rest: &mut Bytes) -> Result<Bytes, DecodeError> {
    check_wire_type(WireType::LengthDelimited, wire_type)?;
    let mut after = rest.clone();
    let len = decode_varint(&mut after)?;
    // Fails if the message is longer than `rest`.
    skip_field(wire_type, NESTED_FIELD, rest, DecodeContext::default())?;
    after.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    Ok(after)
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use prost::encoding::{encode_key, encode_varint};
    use revstore_proto::etcdserverpb::{PutRequest, RangeRequest};

    use super::*;

    fn delimited(field: u32, message: &[u8]) -> BytesMut {
        let mut bytes = BytesMut::new();
        encode_key(field, WireType::LengthDelimited, &mut bytes);
        encode_varint(message.len() as u64, &mut bytes);
        bytes.put_slice(message);
        bytes
    }

    /// Returns a transaction in `levels` others, alternately in both branches.
    fn nest(mut txn: BytesMut, levels: usize) -> Bytes {
        for level in 0..levels {
            let branch = if level.is_multiple_of(2) { 2 } else { 3 };
            txn = delimited(branch, &delimited(4, &txn));
        }
        txn.freeze()
    }

    fn innermost() -> TxnRequest {
        let put = Request::RequestPut(PutRequest {
            key: "k".into(),
            ..PutRequest::default()
        });
        let range = Request::RequestRange(RangeRequest::default());
        TxnRequest {
            compare: vec![Compare::default()],
            success: vec![
                RequestOp { request: Some(put) },
                RequestOp { request: None },
            ],
            failure: vec![RequestOp {
                request: Some(range),
            }],
        }
    }

    #[test]
    fn nested_transactions_are_decoded_as_by_prost() {
        let encoded = || BytesMut::from(&*innermost().encode_to_vec());
        for levels in [0, 1, 2, 30, 48] {
            let mut message = BytesMut::from(&*nest(encoded(), levels));
            // An unknown field.
            message.put_slice(&delimited(9, b"other"));
            let message = message.freeze();
            let decoded = decode_nested(message.clone()).unwrap();
            assert_eq!(decoded, TxnRequest::decode(message.clone()).unwrap());
            assert_eq!(decode_txn(&message).unwrap(), decoded);
        }
    }

    #[test]
    fn txn_2_transactions_nest_128_levels() {
        let mut txn = decode_txn(&nest(BytesMut::new(), NESTING_MAX)).unwrap();
        let mut levels = 0;
        while let Some(op) = txn.success.pop().or_else(|| txn.failure.pop()) {
            let Some(Request::RequestTxn(inner)) = op.request else {
                panic!("expected a transaction, got {op:?}");
            };
            (txn, levels) = (inner, levels + 1);
        }
        assert_eq!(levels, NESTING_MAX);
        for levels in [NESTING_MAX + 1, 10_000] {
            let error = decode_txn(&nest(BytesMut::new(), levels)).unwrap_err();
            assert!(matches!(error, TxnDecodeError::TooDeep), "{error:?}");
        }
    }

    #[test]
    fn the_last_operation_of_several_counts() {
        let both = |first: &[u8], second: &[u8]| [first, second].concat();
        let (put, txn) = (delimited(2, b""), delimited(4, b""));
        let check = |op: Vec<u8>, expected: &RequestOp| {
            let decoded = decode_nested(delimited(2, &op).freeze()).unwrap();
            assert_eq!(decoded.success, std::slice::from_ref(expected));
            assert_eq!(RequestOp::decode(&*op).unwrap(), *expected);
        };
        let op = |request| RequestOp {
            request: Some(request),
        };
        let nested = op(Request::RequestTxn(TxnRequest::default()));
        let plain = op(Request::RequestPut(PutRequest::default()));
        check(both(&put, &txn), &nested);
        check(both(&txn, &put), &plain);
        check(both(&txn, &delimited(9, b"")), &nested);
    }

    #[test]
    fn malformed_transactions_are_rejected_at_every_level() {
        for levels in [0, 1, 60, NESTING_MAX] {
            for damage in [
                // A field that ends early, a compare with another wire type, an unknown wire type, nested
                // groups that do not end.
                &b"\x12\xff"[..],
                b"\x08\x01",
                b"\x0f",
                &[0x3b; 300],
                b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            ] {
                let message = nest(BytesMut::from(damage), levels);
                let error = decode_txn(&message).unwrap_err();
                assert!(matches!(error, TxnDecodeError::Malformed(_)), "{error:?}");
            }
        }
    }
}
