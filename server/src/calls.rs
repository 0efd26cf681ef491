//! Counters of gRPC calls (HT-10): what `grpc_server_*` and `etcd_network_client_grpc_*` report.
//!
//! On the way of a request stand one look into a table of fixed size and a handful of relaxed
//! additions, no lock and no allocation. Names and labels are put together when somebody asks.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

/// How many messages a call may have in each direction, in the words of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallType {
    Unary,
    ServerStream,
    BidiStream,
}

impl CallType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::ServerStream => "server_stream",
            Self::BidiStream => "bidi_stream",
        }
    }
}

/// The names of gRPC's status codes, by their numbers.
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

const CANCELED: usize = 1;
const UNKNOWN: usize = 2;

/// All counters. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    table: Arc<Table>,
}

#[derive(Debug)]
struct Table {
    /// By path. Never changes, so that looking needs no lock.
    methods: HashMap<String, Arc<Method>>,
    /// Counts what no service has; only its bytes go into a metric.
    unknown: Arc<Method>,
}

/// Counters of one method. All are relaxed: mere counts, which order nothing.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) service: &'static str,
    pub(crate) name: &'static str,
    pub(crate) call_type: CallType,
    started: AtomicU64,
    handled: [AtomicU64; CODES.len()],
    received: Traffic,
    sent: Traffic,
}

/// What went in one direction.
#[derive(Debug, Default)]
struct Traffic {
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// What was counted for a method until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) started: u64,
    /// By code, as in [`CODES`].
    pub(crate) handled: [u64; CODES.len()],
    pub(crate) messages_received: u64,
    pub(crate) messages_sent: u64,
}

impl Calls {
    pub(crate) fn new() -> Self {
        let rows = SERVICES.iter().flat_map(|(service, methods)| {
            methods.iter().map(move |&(name, call_type)| {
                let method = Method::new(service, name, call_type);
                (format!("/{service}/{name}"), Arc::new(method))
            })
        });
        Self {
            table: Arc::new(Table {
                methods: rows.collect(),
                unknown: Arc::new(Method::new("", "", CallType::Unary)),
            }),
        }
    }

    /// Counts the start of a call to a path.
    pub(crate) fn start(&self, path: &str) -> Call {
        let table = &*self.table;
        let method = table.methods.get(path).unwrap_or(&table.unknown);
        method.started.fetch_add(1, Relaxed);
        Call(method.clone())
    }

    /// All methods, sorted by path.
    pub(crate) fn methods(&self) -> Vec<&Method> {
        let mut rows: Vec<_> = self.table.methods.iter().collect();
        rows.sort_unstable_by_key(|(path, _)| *path);
        rows.into_iter().map(|(_, method)| &**method).collect()
    }

    /// How often a method ended well.
    pub(crate) fn succeeded(&self, path: &str) -> u64 {
        let method = self.table.methods.get(path);
        method.map_or(0, |method| method.counts().handled[0])
    }

    /// The bytes of all messages received and sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let methods = self.table.methods.values().chain([&self.table.unknown]);
        methods.fold((0, 0), |(received, sent), method| {
            (
                received + method.received.bytes.load(Relaxed),
                sent + method.sent.bytes.load(Relaxed),
            )
        })
    }
}

impl Method {
    fn new(service: &'static str, name: &'static str, call_type: CallType) -> Self {
        Self {
            service,
            name,
            call_type,
            started: AtomicU64::new(0),
            handled: Default::default(),
            received: Traffic::default(),
            sent: Traffic::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            started: self.started.load(Relaxed),
            handled: std::array::from_fn(|code| self.handled[code].load(Relaxed)),
            messages_received: self.received.messages.load(Relaxed),
            messages_sent: self.sent.messages.load(Relaxed),
        }
    }
}

/// A call that has started. It ends with the [`Sent`] body of its answer.
#[derive(Debug)]
pub(crate) struct Call(Arc<Method>);

impl Call {
    /// Counts what comes in.
    pub(crate) fn receive<B>(&self, body: B) -> Received<B> {
        Received {
            body,
            method: self.0.clone(),
            prefixes: Prefixes::default(),
        }
    }

    /// Counts what goes out, and at its end how the call ended.
    pub(crate) fn send<B>(self, answer: http::Response<B>) -> http::Response<Sent<B>> {
        // An answer without a body has the status among its headers.
        let code = code(answer.headers());
        if let Some(code) = code {
            self.0.handled[code].fetch_add(1, Relaxed);
        }
        answer.map(|body| Sent {
            body,
            method: self.0,
            prefixes: Prefixes::default(),
            is_over: code.is_some(),
        })
    }
}

/// A request body that counts what passes.
#[derive(Debug)]
pub(crate) struct Received<B> {
    body: B,
    method: Arc<Method>,
    prefixes: Prefixes,
}

/// An answer's body that counts what passes, and the call when it is over.
#[derive(Debug)]
pub(crate) struct Sent<B> {
    body: B,
    method: Arc<Method>,
    prefixes: Prefixes,
    is_over: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Received<B> {
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
            let messages = self.prefixes.count(data);
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

impl<B: Body<Data = Bytes> + Unpin> Body for Sent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            if let Some(data) = frame.data_ref() {
                let messages = self.prefixes.count(data);
                self.method.sent.add(messages, data.len());
            } else if let Some(trailers) = frame.trailers_ref()
                && !self.is_over
            {
                self.is_over = true;
                self.method.handled[code(trailers).unwrap_or(UNKNOWN)].fetch_add(1, Relaxed);
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

impl<B> Drop for Sent<B> {
    /// An answer that is dropped before its end was wanted no more.
    fn drop(&mut self) {
        if !self.is_over {
            self.method.handled[CANCELED].fetch_add(1, Relaxed);
        }
    }
}

impl Traffic {
    fn add(&self, messages: u64, bytes: usize) {
        self.messages.fetch_add(messages, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// The number of the status that headers or trailers tell.
fn code(headers: &http::HeaderMap) -> Option<usize> {
    let code = headers
        .get(Status::GRPC_STATUS)?
        .to_str()
        .ok()?
        .parse()
        .ok();
    Some(code.filter(|code| *code < CODES.len()).unwrap_or(UNKNOWN))
}

/// One byte says whether a message is compressed, four how long it is.
const PREFIX_BYTES: usize = 5;

/// The position in a sequence of messages.
#[derive(Debug, Default)]
struct Prefixes {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that are known.
    known: usize,
    /// Bytes of the present message that are still to come.
    left: usize,
}

impl Prefixes {
    /// Moves on over some bytes; says how many messages begin in them.
    fn count(&mut self, mut data: &[u8]) -> u64 {
        let mut begun = 0;
        loop {
            let skipped = self.left.min(data.len());
            self.left -= skipped;
            data = &data[skipped..];
            if data.is_empty() {
                return begun;
            }
            let taken = (PREFIX_BYTES - self.known).min(data.len());
            self.prefix[self.known..][..taken].copy_from_slice(&data[..taken]);
            self.known += taken;
            data = &data[taken..];
            if self.known == PREFIX_BYTES {
                let [_compressed, length @ ..] = self.prefix;
                self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.known = 0;
                begun += 1;
            }
        }
    }
}

type Rows = &'static [(&'static str, CallType)];

/// Every method that etcd counts.
const SERVICES: &[(&str, Rows)] = {
    use CallType::{BidiStream, ServerStream, Unary};
    &[
        (
            "etcdserverpb.KV",
            &[
                ("Range", Unary),
                ("RangeStream", ServerStream),
                ("Put", Unary),
                ("DeleteRange", Unary),
                ("Txn", Unary),
                ("Compact", Unary),
            ],
        ),
        ("etcdserverpb.Watch", &[("Watch", BidiStream)]),
        (
            "etcdserverpb.Lease",
            &[
                ("LeaseGrant", Unary),
                ("LeaseRevoke", Unary),
                ("LeaseKeepAlive", BidiStream),
                ("LeaseTimeToLive", Unary),
                ("LeaseLeases", Unary),
            ],
        ),
        (
            "etcdserverpb.Cluster",
            &[
                ("MemberAdd", Unary),
                ("MemberRemove", Unary),
                ("MemberUpdate", Unary),
                ("MemberList", Unary),
                ("MemberPromote", Unary),
            ],
        ),
        (
            "etcdserverpb.Maintenance",
            &[
                ("Alarm", Unary),
                ("Status", Unary),
                ("Defragment", Unary),
                ("Hash", Unary),
                ("HashKV", Unary),
                ("Snapshot", ServerStream),
                ("MoveLeader", Unary),
                ("Downgrade", Unary),
            ],
        ),
        (
            "etcdserverpb.Auth",
            &[
                ("AuthEnable", Unary),
                ("AuthDisable", Unary),
                ("AuthStatus", Unary),
                ("Authenticate", Unary),
                ("UserAdd", Unary),
                ("UserGet", Unary),
                ("UserList", Unary),
                ("UserDelete", Unary),
                ("UserChangePassword", Unary),
                ("UserGrantRole", Unary),
                ("UserRevokeRole", Unary),
                ("RoleAdd", Unary),
                ("RoleGet", Unary),
                ("RoleList", Unary),
                ("RoleDelete", Unary),
                ("RoleGrantPermission", Unary),
                ("RoleRevokePermission", Unary),
            ],
        ),
        ("v3lockpb.Lock", &[("Lock", Unary), ("Unlock", Unary)]),
        (
            "v3electionpb.Election",
            &[
                ("Campaign", Unary),
                ("Proclaim", Unary),
                ("Leader", Unary),
                ("Observe", ServerStream),
                ("Resign", Unary),
            ],
        ),
        (
            "grpc.health.v1.Health",
            &[("Check", Unary), ("Watch", ServerStream)],
        ),
    ]
};

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
                        (true, false) => panic!("no such method yet"),
                    };
                    let path = format!("{}.{}/{}", file.package(), service.name(), method.name());
                    described.push((path, call_type));
                }
            }
        }
        described.sort_unstable();
        let calls = Calls::new();
        let counted = calls.methods().into_iter().map(|method| {
            let path = format!("{}/{}", method.service, method.name);
            (path, method.call_type.as_str())
        });
        assert_eq!(counted.collect::<Vec<_>>(), described);
    }

    fn check_prefixes(data: &[u8], expected: u64) {
        assert_eq!(
            Prefixes::default().count(data),
            expected,
            "{data:?} at once"
        );
        let mut prefixes = Prefixes::default();
        let begun = data.iter().map(|byte| prefixes.count(&[*byte]));
        assert_eq!(begun.sum::<u64>(), expected, "{data:?} byte by byte");
    }

    #[test]
    fn messages_are_counted_by_their_prefixes() {
        check_prefixes(b"", 0);
        check_prefixes(b"\0\0\0\0", 0);
        check_prefixes(b"\0\0\0\0\0", 1);
        check_prefixes(b"\0\0\0\0\x02ab\0\0\0\0\0\x01\0\0\0\x01", 3);
        check_prefixes(b"\0\xff\xff\xff\xffabc", 1);
    }
}
