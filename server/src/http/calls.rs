//! Counters of gRPC calls (HT-10), for the metrics `grpc_server_*` and `etcd_network_client_grpc_*`.
//!
//! A call costs one look-up in a table of fixed size and a few relaxed additions, without a lock or an
//! allocation. Metric names and labels are created for each request of `/metrics`.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use revstore_grpc::{PrefixReader, RpcKind, RpcMethod, has_client_disconnected};
use revstore_host::{metrics::prometheus::Histogram, panics};
use tonic::Status;

use super::extensive_calls::{self, ClientVersions};

/// The names of gRPC's status codes, in the order of their numbers.
pub(crate) const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

const OK: usize = 0;
const CANCELED: usize = 1;
const UNKNOWN: usize = 2;

/// The counters of all methods. Clones share the counters.
#[derive(Clone, Debug)]
pub(crate) struct CallCounters {
    table: Arc<Table>,
}

#[derive(Debug)]
struct Table {
    /// The counters of each method, in the order of [`RpcMethod::all`]. The table never changes, so a
    /// look-up needs no lock.
    methods: Vec<Arc<MethodCounters>>,
    /// Counts calls of unknown methods. Only their bytes appear in a metric.
    unknown: Arc<MethodCounters>,
    /// The versions of clients, with extensive metrics.
    clients: Option<ClientVersions>,
}

/// The counters of one method. All accesses are relaxed: they do not order other memory accesses.
#[derive(Debug)]
pub(crate) struct MethodCounters {
    /// `None` for the counters of unknown methods.
    method: Option<&'static RpcMethod>,
    started: AtomicU64,
    handled: [AtomicU64; CODES.len()],
    received: Traffic,
    sent: Traffic,
    /// The times of calls, with extensive metrics.
    handling: Option<Histogram>,
}

/// The numbers of messages and bytes of one direction.
#[derive(Debug, Default)]
struct Traffic {
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// The values of a method's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) started: u64,
    /// The numbers of completed calls by status code, in the order of [`CODES`].
    pub(crate) handled: [u64; CODES.len()],
    pub(crate) messages_received: u64,
    pub(crate) messages_sent: u64,
}

impl CallCounters {
    /// Returns counters at zero for the methods of all services. If they are `extensive`, they have times and the
    /// versions of clients.
    pub(crate) fn new(extensive: bool) -> Self {
        let counters = |method| Arc::new(MethodCounters::new(method, extensive));
        Self {
            table: Arc::new(Table {
                methods: RpcMethod::all().iter().map(Some).map(counters).collect(),
                unknown: counters(None),
                clients: extensive.then(ClientVersions::default),
            }),
        }
    }

    /// Counts the start of a call of the method with this path and these headers.
    pub(crate) fn start(&self, path: &str, headers: &HeaderMap) -> CountedCall {
        let table = &*self.table;
        let known = RpcMethod::position(path).and_then(|position| table.methods.get(position));
        let method = known.unwrap_or(&table.unknown);
        method.started.fetch_add(1, Relaxed);
        if let (Some(clients), Some(_)) = (&table.clients, method.method) {
            clients.count(headers, method.is_unary());
        }
        CountedCall {
            method: method.clone(),
            start: method.handling.as_ref().map(|_| Instant::now()),
            has_response: false,
        }
    }

    /// Returns the versions of clients; `None` without extensive metrics.
    pub(crate) fn clients(&self) -> Option<&ClientVersions> {
        self.table.clients.as_ref()
    }

    /// Returns all methods with their counters, sorted by path.
    pub(crate) fn methods(&self) -> Vec<(&'static RpcMethod, &MethodCounters)> {
        let methods = self.table.methods.iter();
        let mut rows: Vec<_> = methods
            .filter_map(|counters| Some((counters.method?, &**counters)))
            .collect();
        rows.sort_unstable_by_key(|(method, _)| method.path());
        rows
    }

    /// Returns the values of the counters of a method, by its path.
    pub(crate) fn counts(&self, path: &str) -> Counts {
        let position = RpcMethod::position(path);
        let method = position.and_then(|position| self.table.methods.get(position));
        method.map(|method| method.counts()).unwrap_or_default()
    }

    /// Returns the number of bytes of all messages, received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let methods = self.table.methods.iter().chain([&self.table.unknown]);
        methods.fold((0, 0), |(received, sent), method| {
            (
                received + method.received.bytes.load(Relaxed),
                sent + method.sent.bytes.load(Relaxed),
            )
        })
    }
}

impl MethodCounters {
    fn new(method: Option<&'static RpcMethod>, extensive: bool) -> Self {
        let histogram = |method| extensive_calls::handling(method).ok();
        Self {
            handling: method.filter(|_| extensive).and_then(histogram),
            method,
            started: AtomicU64::new(0),
            handled: Default::default(),
            received: Traffic::default(),
            sent: Traffic::default(),
        }
    }

    fn is_unary(&self) -> bool {
        self.method
            .is_some_and(|method| method.kind() == RpcKind::Unary)
    }

    fn count_handled(&self, code: usize, start: Option<Instant>) {
        self.handled[code].fetch_add(1, Relaxed);
        if let (Some(handling), Some(start)) = (&self.handling, start) {
            handling.observe(start.elapsed().as_secs_f64());
        }
    }

    /// Returns the times of calls, with extensive metrics.
    pub(crate) fn handling(&self) -> Option<&Histogram> {
        self.handling.as_ref()
    }

    fn name(&self) -> &'static str {
        self.method.map_or("unknown method", RpcMethod::path)
    }

    /// Returns the current values.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            started: self.started.load(Relaxed),
            handled: std::array::from_fn(|code| self.handled[code].load(Relaxed)),
            messages_received: self.received.messages.load(Relaxed),
            messages_sent: self.sent.messages.load(Relaxed),
        }
    }
}

/// A call that has started. It ends with the body of its response. A call that is dropped before its response
/// is counted as canceled: the client has closed the stream.
#[derive(Debug)]
pub(crate) struct CountedCall {
    method: Arc<MethodCounters>,
    /// With extensive metrics.
    start: Option<Instant>,
    /// Whether the call is counted by its response.
    has_response: bool,
}

impl CountedCall {
    /// Returns the path of the method, for log lines.
    pub(crate) fn name(&self) -> &'static str {
        self.method.name()
    }

    /// Returns whether the call has one request and one response.
    pub(crate) fn is_unary(&self) -> bool {
        self.method.is_unary()
    }

    /// Returns a request body that counts its messages.
    pub(crate) fn count_request<B>(&self, body: B) -> CountedRequest<B> {
        CountedRequest {
            body,
            method: self.method.clone(),
            messages: PrefixReader::default(),
        }
    }

    /// Returns a response whose body counts its messages, and the status when it ends.
    pub(crate) fn count_response<B>(
        mut self,
        response: http::Response<B>,
    ) -> http::Response<CountedResponse<B>> {
        self.has_response = true;
        // A response without a body has the status in its headers. As in Go's library, any other response of a
        // unary call is a success, also if the client does not read it.
        let succeeded = self.method.is_unary().then_some(OK);
        let code = code(response.headers()).or(succeeded);
        if let Some(code) = code {
            self.method.count_handled(code, self.start);
        }
        response.map(|body| CountedResponse {
            body,
            method: self.method.clone(),
            start: self.start,
            messages: PrefixReader::default(),
            has_ended: code.is_some(),
        })
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        if !self.has_response {
            self.method.count_handled(CANCELED, self.start);
        }
    }
}

/// A request body that counts its messages.
#[derive(Debug)]
pub(crate) struct CountedRequest<B> {
    body: B,
    method: Arc<MethodCounters>,
    messages: PrefixReader,
}

/// A response body that counts its messages, and the status of the call when it ends.
#[derive(Debug)]
pub(crate) struct CountedResponse<B> {
    body: B,
    method: Arc<MethodCounters>,
    /// With extensive metrics.
    start: Option<Instant>,
    messages: PrefixReader,
    /// Whether the status has been counted.
    has_ended: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedRequest<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let messages = count_messages(&mut self.messages, data);
            self.method.received.add(messages, data.len());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedResponse<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let response = &mut *self;
        let poll = || Pin::new(&mut response.body).poll_frame(context);
        let polled = panics::within_request(response.method.name(), poll);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            if let Some(data) = frame.data_ref() {
                let messages = count_messages(&mut self.messages, data);
                self.method.sent.add(messages, data.len());
            } else if let Some(trailers) = frame.trailers_ref()
                && !self.has_ended
            {
                self.has_ended = true;
                let code = code(trailers).unwrap_or(UNKNOWN);
                self.method.count_handled(code, self.start);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for CountedResponse<B> {
    /// Counts a response that is dropped before its end as canceled: the client has closed the stream.
    fn drop(&mut self) {
        if !self.has_ended {
            self.method.count_handled(CANCELED, self.start);
        }
    }
}

impl Traffic {
    fn add(&self, messages: u64, bytes: usize) {
        self.messages.fetch_add(messages, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// Returns the status code in headers or trailers.
fn code(headers: &http::HeaderMap) -> Option<usize> {
    if has_client_disconnected(headers) {
        return Some(CANCELED);
    }
    let code = headers
        .get(Status::GRPC_STATUS)?
        .to_str()
        .ok()?
        .parse()
        .ok();
    Some(code.filter(|code| *code < CODES.len()).unwrap_or(UNKNOWN))
}

/// Returns the number of message prefixes that end in `data`.
fn count_messages(prefixes: &mut PrefixReader, mut data: &[u8]) -> u64 {
    let mut messages = 0;
    while prefixes.next(&mut data).is_some() {
        messages += 1;
    }
    messages
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn ht_10_every_described_method_is_counted_under_its_type() {
        let set = FileDescriptorSet::decode(revstore_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut described = Vec::new();
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    let call_type = match (method.client_streaming(), method.server_streaming()) {
                        (false, false) => "unary",
                        (false, true) => "server_stream",
                        (true, true) => "bidi_stream",
                        (true, false) => panic!("unexpected client stream {}", method.name()),
                    };
                    let path = format!("{}.{}/{}", file.package(), service.name(), method.name());
                    described.push((path, call_type));
                }
            }
        }
        described.sort_unstable();
        let calls = CallCounters::new(false);
        let counted = calls.methods().into_iter().map(|(method, _)| {
            let path = format!("{}/{}", method.service(), method.name());
            (path, method.kind().as_str())
        });
        assert_eq!(counted.collect::<Vec<_>>(), described);
    }

    #[test]
    fn ht_10_calls_that_clients_abandon_are_counted_as_canceled() {
        let (put, watch) = ("/etcdserverpb.KV/Put", "/etcdserverpb.Watch/Watch");
        let calls = CallCounters::new(false);
        let check = |path: &str, code: usize| {
            let counts = calls.counts(path);
            let mut expected = [0; CODES.len()];
            expected[code] = 1;
            assert_eq!((counts.started, counts.handled), (1, expected), "{path}");
        };
        drop(calls.start("/v3lockpb.Lock/Lock", &HeaderMap::new()));
        check("/v3lockpb.Lock/Lock", CANCELED);
        drop(
            calls
                .start(watch, &HeaderMap::new())
                .count_response(http::Response::new(())),
        );
        check(watch, CANCELED);
        // The call was handled, but the client has not read the response.
        drop(
            calls
                .start(put, &HeaderMap::new())
                .count_response(http::Response::new(())),
        );
        check(put, OK);
        let range = "/etcdserverpb.KV/Range";
        let failed = http::Response::builder().header("grpc-status", "11");
        drop(
            calls
                .start(range, &HeaderMap::new())
                .count_response(failed.body(()).unwrap()),
        );
        check(range, 11);
    }
}
