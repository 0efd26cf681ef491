//! Requests as texts for the log, in the form of etcd: values are replaced by their sizes.

use std::fmt::Write as _;

use bytes::Bytes;
use revstore_engine::{Compare, CompareTarget, KeyRange, Op, Put, Txn};
use revstore_proto::etcdserverpb::compare::{CompareResult, CompareTarget as Target, TargetUnion};
use revstore_proto::etcdserverpb::range_request::{SortOrder, SortTarget};
use revstore_proto::etcdserverpb::request_op::Request;
use revstore_proto::etcdserverpb::{
    Compare as WireCompare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

/// The length of a text after which the rest of a request is left out. A request may have a million bytes.
const TEXT_BYTES_MAX: usize = 16 * 1024;

pub(crate) fn of_range(request: &RangeRequest) -> String {
    let mut text = Text::default();
    text.range(request);
    text.0
}

pub(crate) fn of_put(request: &PutRequest) -> String {
    let mut text = Text::default();
    text.put(request);
    text.0
}

pub(crate) fn of_delete_range(request: &DeleteRangeRequest) -> String {
    let mut text = Text::default();
    text.delete_range(request);
    text.0
}

pub(crate) fn of_txn(request: &TxnRequest) -> String {
    let mut text = Text::default();
    text.txn(request);
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn range(&mut self, request: &RangeRequest) {
        self.bytes("key", &request.key);
        self.bytes("range_end", &request.range_end);
        self.number("limit", request.limit);
        self.number("revision", request.revision);
        if request.sort_order != 0 {
            let name = SortOrder::try_from(request.sort_order);
            self.name("sort_order", name.map_or("", |it| it.as_str_name()));
        }
        if request.sort_target != 0 {
            let name = SortTarget::try_from(request.sort_target);
            self.name("sort_target", name.map_or("", |it| it.as_str_name()));
        }
        self.flag("serializable", request.serializable);
        self.flag("keys_only", request.keys_only);
        self.flag("count_only", request.count_only);
        self.number("min_mod_revision", request.min_mod_revision);
        self.number("max_mod_revision", request.max_mod_revision);
        self.number("min_create_revision", request.min_create_revision);
        self.number("max_create_revision", request.max_create_revision);
    }

    fn put(&mut self, request: &PutRequest) {
        self.bytes("key", &request.key);
        self.size("value_size", &request.value);
        self.number("lease", request.lease);
        self.flag("prev_kv", request.prev_kv);
        self.flag("ignore_value", request.ignore_value);
        self.flag("ignore_lease", request.ignore_lease);
    }

    fn delete_range(&mut self, request: &DeleteRangeRequest) {
        self.bytes("key", &request.key);
        self.bytes("range_end", &request.range_end);
        self.flag("prev_kv", request.prev_kv);
    }

    fn txn(&mut self, request: &TxnRequest) {
        self.list("compare", &request.compare, Self::compare);
        self.0.push(' ');
        self.list("success", &request.success, Self::op);
        self.0.push(' ');
        self.list("failure", &request.failure, Self::op);
    }

    fn compare(&mut self, compare: &WireCompare) {
        if compare.result != 0 {
            let name = CompareResult::try_from(compare.result);
            self.name("result", name.map_or("", |it| it.as_str_name()));
        }
        if compare.target != 0 {
            let name = Target::try_from(compare.target);
            self.name("target", name.map_or("", |it| it.as_str_name()));
        }
        self.bytes("key", &compare.key);
        match &compare.target_union {
            Some(TargetUnion::Version(version)) => self.operand("version", *version),
            Some(TargetUnion::CreateRevision(it)) => self.operand("create_revision", *it),
            Some(TargetUnion::ModRevision(it)) => self.operand("mod_revision", *it),
            Some(TargetUnion::Value(value)) => self.size("value_size", value),
            Some(TargetUnion::Lease(lease)) => self.operand("lease", *lease),
            None => {}
        }
        self.bytes("range_end", &compare.range_end);
    }

    fn op(&mut self, op: &RequestOp) {
        match &op.request {
            Some(Request::RequestRange(request)) => {
                self.nested("request_range", |text| text.range(request));
                self.0.push(' ');
            }
            Some(Request::RequestPut(request)) => {
                self.nested("request_put", |text| text.put(request));
            }
            Some(Request::RequestDeleteRange(request)) => {
                self.nested("request_delete_range", |text| text.delete_range(request));
                self.0.push(' ');
            }
            Some(Request::RequestTxn(request)) => {
                self.nested("request_txn", |text| text.txn(request));
            }
            None => {}
        }
    }

    fn list<T>(&mut self, name: &str, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.nested(name, |text| {
            for (index, item) in items.iter().enumerate() {
                if text.is_full() {
                    return;
                }
                if index > 0 {
                    text.0.push(' ');
                }
                write(text, item);
            }
        });
    }

    fn nested(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.add(format_args!("{name}:<"));
        write(self);
        self.0.push('>');
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.add(format_args!("{name}:\""));
        for &byte in bytes {
            match byte {
                _ if self.is_full() => {
                    self.0.push_str("...");
                    break;
                }
                b'\n' => self.0.push_str("\\n"),
                b'\r' => self.0.push_str("\\r"),
                b'\t' => self.0.push_str("\\t"),
                b'"' | b'\\' => {
                    self.0.push('\\');
                    self.0.push(byte.into());
                }
                b' '..=b'~' => self.0.push(byte.into()),
                _ => self.add(format_args!("\\{byte:03o}")),
            }
        }
        self.0.push_str("\" ");
    }

    fn size(&mut self, name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.add(format_args!("{name}:{} ", value.len()));
        }
    }

    fn number(&mut self, name: &str, number: i64) {
        if number != 0 {
            self.operand(name, number);
        }
    }

    fn operand(&mut self, name: &str, number: i64) {
        self.add(format_args!("{name}:{number} "));
    }

    fn flag(&mut self, name: &str, flag: bool) {
        if flag {
            self.name(name, "true");
        }
    }

    fn name(&mut self, name: &str, value: &str) {
        self.add(format_args!("{name}:{value} "));
    }

    fn add(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(text);
    }

    fn is_full(&self) -> bool {
        self.0.len() >= TEXT_BYTES_MAX
    }
}

/// Puts the keys and values, which the conversion took, back into a put.
pub(crate) fn restore_put(request: &mut PutRequest, put: &Put) {
    request.key = put.key.clone();
    if let Some(value) = &put.value {
        request.value = value.clone();
    }
}

/// Like [`restore_put`], for the key and the range end of a request.
pub(crate) fn restore_keys(key: &mut Bytes, range_end: &mut Bytes, keys: &KeyRange) {
    match keys {
        KeyRange::One(start) | KeyRange::From(start) => *key = start.clone(),
        KeyRange::Within { start, end } => {
            *key = start.clone();
            *range_end = end.clone();
        }
    }
}

/// Like [`restore_put`], for a transaction.
pub(crate) fn restore_txn(request: &mut TxnRequest, txn: &Txn) {
    for (wire, compare) in request.compare.iter_mut().zip(&txn.compares) {
        restore_compare(wire, compare);
    }
    for (wire, ops) in [
        (&mut request.success, &txn.success),
        (&mut request.failure, &txn.failure),
    ] {
        let requests = wire.iter_mut().filter_map(|op| op.request.as_mut());
        for (request, op) in requests.zip(ops) {
            match (request, op) {
                (Request::RequestRange(request), Op::Range(range)) => {
                    restore_keys(&mut request.key, &mut request.range_end, &range.keys);
                }
                (Request::RequestPut(request), Op::Put(put)) => restore_put(request, put),
                (Request::RequestDeleteRange(request), Op::Delete(keys)) => {
                    restore_keys(&mut request.key, &mut request.range_end, keys);
                }
                (Request::RequestTxn(request), Op::Txn(txn)) => restore_txn(request, txn),
                _ => {}
            }
        }
    }
}

fn restore_compare(wire: &mut WireCompare, compare: &Compare) {
    restore_keys(&mut wire.key, &mut wire.range_end, &compare.keys);
    wire.target_union = match &compare.target {
        CompareTarget::Version(version) => Some(TargetUnion::Version(*version)),
        CompareTarget::CreateRevision(it) => Some(TargetUnion::CreateRevision(*it)),
        CompareTarget::ModRevision(it) => Some(TargetUnion::ModRevision(*it)),
        CompareTarget::Value(value) => Some(TargetUnion::Value(value.clone())),
        CompareTarget::Lease(lease) => Some(TargetUnion::Lease(*lease)),
        CompareTarget::Nothing => None,
    };
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::request::txn::convert_txn;

    fn op(request: Request) -> RequestOp {
        RequestOp {
            request: Some(request),
        }
    }

    fn txn() -> TxnRequest {
        let put = PutRequest {
            key: "secretkey".into(),
            value: "secretvalue".into(),
            ..PutRequest::default()
        };
        let range = RangeRequest {
            key: "a".into(),
            ..RangeRequest::default()
        };
        let delete = DeleteRangeRequest {
            key: "a".into(),
            range_end: "b".into(),
            ..DeleteRangeRequest::default()
        };
        TxnRequest {
            compare: vec![WireCompare {
                target: Target::Value.into(),
                key: "a".into(),
                target_union: Some(TargetUnion::Value("b".into())),
                ..WireCompare::default()
            }],
            success: vec![
                op(Request::RequestPut(put)),
                op(Request::RequestRange(range)),
            ],
            failure: vec![op(Request::RequestDeleteRange(delete))],
        }
    }

    /// The texts are those of etcd 3.5.16.
    #[test]
    fn requests_have_the_texts_of_etcd_without_values() {
        assert_eq!(
            of_txn(&txn()),
            "compare:<target:VALUE key:\"a\" value_size:1 > success:<request_put:<key:\"secretkey\" \
             value_size:11 > request_range:<key:\"a\" > > failure:<request_delete_range:<key:\"a\" \
             range_end:\"b\" > >"
        );
        let range = RangeRequest {
            key: Bytes::from_static(b"\0\xff\"\n"),
            range_end: Bytes::from_static(b"\0"),
            limit: 5,
            sort_order: SortOrder::Descend.into(),
            keys_only: true,
            ..RangeRequest::default()
        };
        assert_eq!(
            of_range(&range),
            "key:\"\\000\\377\\\"\\n\" range_end:\"\\000\" limit:5 sort_order:DESCEND keys_only:true "
        );
    }

    #[test]
    fn a_converted_transaction_is_restored() {
        let mut nested = txn();
        nested.success.push(op(Request::RequestTxn(txn())));
        let mut converted = nested.clone();
        let txn = convert_txn(&mut converted, false);
        assert!(converted.encoded_len() < nested.encoded_len());
        restore_txn(&mut converted, &txn);
        assert_eq!(converted, nested);
    }

    #[test]
    fn a_long_request_is_cut() {
        let put = PutRequest {
            key: vec![0; 1 << 20].into(),
            ..PutRequest::default()
        };
        let put = op(Request::RequestPut(put));
        let request = TxnRequest {
            success: vec![put; 1_000],
            ..TxnRequest::default()
        };
        let text = of_txn(&request);
        assert!(text.len() < TEXT_BYTES_MAX + 100, "{}", text.len());
    }
}
