//! The log lines about slow and failed requests of the KV service, with etcd's texts.
//!
//! All functions are for the few requests that are logged. They put the keys, which the conversion has taken, back
//! into the request.

use prost::Message;
use revstore_engine::{KeyRange, Put, Range, Txn};
use revstore_proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest};
use tonic::Response;

use crate::encode::codec::Encode;
use crate::encode::response::{DeleteRangeResponse, PutResponse, ResponseOp, TxnResponse};
use crate::node::Node;
use crate::node::slow::{Applied, Notes, RequestStats};
use crate::request::text;
use crate::status::EtcdError;

/// The prefix of lines about transactions that only read.
pub(crate) const READ_ONLY_TXN: &str = "read-only txn ";

/// The prefix of lines about ranges.
const READ_ONLY_RANGE: &str = "read-only range ";

/// The number of responses of a transaction in a log line. A transaction may have thousands.
const LOGGED_RESPONSES_MAX: usize = 128;

/// Adds the statistics to a response.
#[inline]
pub(crate) fn with_stats<T>(
    mut response: Response<T>,
    stats: Option<Box<RequestStats>>,
) -> Response<T> {
    if let Some(stats) = stats {
        response.extensions_mut().insert(*stats);
    }
    response
}

#[cold]
pub(crate) fn put(
    node: &Node,
    notes: Notes,
    mut request: PutRequest,
    put: &Put,
    response: &Result<PutResponse, EtcdError>,
) -> Option<Box<RequestStats>> {
    text::restore_put(&mut request, put);
    let content = text::of_put(&request);
    log_write(node, notes, &format!("put:<{content}>"), response);
    notes.stats(|| RequestStats {
        request_count: 1,
        request_bytes: request.encoded_len(),
        response_count: 0,
        response_bytes: size(response),
        content,
    })
}

#[cold]
pub(crate) fn delete_range(
    node: &Node,
    notes: Notes,
    mut request: DeleteRangeRequest,
    keys: &KeyRange,
    response: &Result<DeleteRangeResponse, EtcdError>,
) -> Option<Box<RequestStats>> {
    text::restore_keys(&mut request.key, &mut request.range_end, keys);
    let content = text::of_delete_range(&request);
    log_write(node, notes, &format!("delete_range:<{content}>"), response);
    notes.stats(|| RequestStats {
        request_count: 0,
        request_bytes: request.encoded_len(),
        response_count: response.as_ref().map_or(0, |response| response.deleted),
        response_bytes: size(response),
        content,
    })
}

/// `size` is the number of keys in the range, the number of keys in the response, and the size of the response.
#[cold]
pub(crate) fn range(
    node: &Node,
    notes: Notes,
    request: &RangeRequest,
    range: &Range,
    (count, keys, bytes): (i64, usize, usize),
) -> Option<Box<RequestStats>> {
    let request = restored(request, range);
    let content = text::of_range(&request);
    let applied = Applied {
        prefix: READ_ONLY_RANGE,
        request: &content,
        response: &format!("range_response_count:{keys} size:{bytes}"),
        error: None,
    };
    node.slow.log(notes, &applied);
    notes.stats(|| RequestStats {
        request_count: 0,
        request_bytes: request.encoded_len(),
        response_count: count,
        response_bytes: bytes,
        content,
    })
}

#[cold]
pub(crate) fn failed_range(
    node: &Node,
    notes: Notes,
    request: &RangeRequest,
    range: &Range,
    error: EtcdError,
) {
    let applied = Applied {
        prefix: READ_ONLY_RANGE,
        request: &text::of_range(&restored(request, range)),
        response: "",
        error: Some(error),
    };
    node.slow.log(notes, &applied);
}

fn restored(request: &RangeRequest, range: &Range) -> RangeRequest {
    let mut request = request.clone();
    text::restore_keys(&mut request.key, &mut request.range_end, &range.keys);
    request
}

#[cold]
pub(crate) fn txn(
    node: &Node,
    notes: Notes,
    prefix: &'static str,
    mut request: TxnRequest,
    txn: &Txn,
    response: &Result<TxnResponse, EtcdError>,
) -> Option<Box<RequestStats>> {
    text::restore_txn(&mut request, txn);
    let content = text::of_txn(&request);
    if prefix.is_empty() {
        log_write(node, notes, &format!("txn:<{content}>"), response);
    } else {
        let applied = Applied {
            prefix,
            request: &content,
            response: &response.as_ref().map_or_else(|_| String::new(), read_only),
            error: response.as_ref().err().copied(),
        };
        node.slow.log(notes, &applied);
    }
    let Ok(response) = response else { return None };
    notes.stats(|| {
        let executed = if response.succeeded {
            &request.success
        } else {
            &request.failure
        };
        RequestStats {
            request_count: i64::try_from(executed.len()).unwrap_or(i64::MAX),
            request_bytes: executed.iter().map(Message::encoded_len).sum(),
            response_count: 0,
            response_bytes: response.encoded_len(),
            content,
        }
    })
}

/// Returns the text of the response of a transaction that only reads.
fn read_only(response: &TxnResponse) -> String {
    let responses = response.responses.iter().take(LOGGED_RESPONSES_MAX);
    let counts = responses.filter_map(|response| match &**response {
        ResponseOp::Range(range) => Some(format!("range_response_count:{}", range.kvs.len())),
        _ => None,
    });
    format!(
        "responses:<{}> size:{}",
        counts.collect::<Vec<_>>().join(" "),
        response.encoded_len()
    )
}

/// Logs a write. There is no header of Raft.
fn log_write<R: Encode>(node: &Node, notes: Notes, content: &str, response: &Result<R, EtcdError>) {
    let size = response
        .as_ref()
        .map(|response| format!("size:{}", response.encoded_len()));
    let applied = Applied {
        prefix: "",
        request: &format!("header:<> {content}"),
        response: size.as_deref().unwrap_or_default(),
        error: response.as_ref().err().copied(),
    };
    node.slow.log(notes, &applied);
}

fn size<R: Encode>(response: &Result<R, EtcdError>) -> usize {
    response.as_ref().map_or(0, Encode::encoded_len)
}
