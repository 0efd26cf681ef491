//! Scripts: sequences of steps against a node, decoded from bytes.
//!
//! The same bytes give the same script, and fewer bytes give a shorter script. So a fuzzer can use
//! coverage, and a failing input can be shrunk. Messages are generated from their descriptors: a
//! method or field that is added to the `.proto` files is used without a change in this file.

use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::Unstructured;
use bytes::{BufMut, Bytes, BytesMut};
use prost_reflect::prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ServiceDescriptor, Value,
};

/// The maximum number of steps in one script.
const STEPS_MAX: usize = 40;

/// The maximum depth of nested messages. It allows an operation in three nested transactions.
const DEPTH_MAX: usize = 8;

/// Values of `bytes` fields: keys, range ends, names of locks and elections, values.
const BYTES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"",
    b"\0",
    b"a\0",
    b"a/",
    b"a/1",
    b"a/2",
    b"b/1",
    b"d",
    b"\xff",
    b"\xff\xff",
    b"\x00\x00",
];

/// Values of `string` fields: users, roles, passwords, versions, URLs.
const STRINGS: &[&str] = &[
    "root",
    "u",
    "r",
    "p",
    "",
    "3.5.0",
    "3.4",
    "http://a:1",
    "\u{10ffff}",
];

/// Numbers at the limits of their types and units.
const NUMBERS: &[i64] = &[
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
    -1,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    1 << 53,
    9_000_000_000,
];

/// The state of the node before the first step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The limits are so low that scripts reach them.
    pub(crate) small_limits: bool,
    /// Auth is enabled, with users and roles.
    pub(crate) auth: bool,
    /// The store has keys, leases and a compacted revision.
    pub(crate) history: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ScriptStep {
    Call(ScriptCall),
    /// Sends more request data on an open call.
    Send {
        call: usize,
        data: Vec<Bytes>,
    },
    /// Half-closes an open call.
    HalfClose {
        call: usize,
    },
    /// Cancels an open call, as when the client disconnects.
    Cancel {
        call: usize,
    },
    /// Reads the ready parts of the responses to all open calls.
    PollOpen,
    /// Advances the clock.
    Advance(Duration),
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    pub(crate) method: MethodDescriptor,
    /// The request body, divided into the pieces that are received.
    pub(crate) data: Vec<Bytes>,
    /// Whether a correct client could have sent this body.
    pub(crate) well_formed: bool,
    /// Whether the client does not half-close the call after `data`.
    pub(crate) stays_open: bool,
    /// The token of the call, as an index into the tokens issued so far.
    pub(crate) token: Option<usize>,
}

/// An iterator over the steps of a script.
pub(crate) struct Script<'a> {
    /// The undecoded rest of the bytes.
    choices: Unstructured<'a>,
    steps_left: usize,
}

/// Returns all methods of all services.
pub(crate) fn methods() -> &'static [MethodDescriptor] {
    static METHODS: LazyLock<Vec<MethodDescriptor>> = LazyLock::new(|| {
        let pool = DescriptorPool::decode(revstore_proto::FILE_DESCRIPTOR_SET).unwrap();
        let services: Vec<_> = pool.services().collect();
        services
            .iter()
            .flat_map(ServiceDescriptor::methods)
            .collect()
    });
    &METHODS
}

/// Returns the method `name` of `service`.
pub(crate) fn method(service: &str, name: &str) -> &'static MethodDescriptor {
    let mut methods = methods().iter();
    methods
        .find(|method| method.parent_service().name() == service && method.name() == name)
        .unwrap()
}

/// Encodes an uncompressed message as a gRPC frame.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    frame_with(0, u32::try_from(message.len()).unwrap(), message)
}

/// Encodes a gRPC frame with a prefix that may not match the message.
fn frame_with(flag: u8, length: u32, message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(flag);
    frame.put_u32(length);
    frame.put_slice(message);
    frame.freeze()
}

impl<'a> Script<'a> {
    /// Decodes the setup. The steps are decoded by [`Iterator::next`].
    pub(crate) fn decode(bytes: &'a [u8]) -> (Setup, Self) {
        let mut script = Self {
            choices: Unstructured::new(bytes),
            steps_left: STEPS_MAX,
        };
        let setup = Setup {
            small_limits: script.one_in(4),
            auth: script.one_in(4),
            history: script.one_in(2),
        };
        (setup, script)
    }

    /// Returns a number below `bound`; 0 after the last byte.
    fn below(&mut self, bound: usize) -> usize {
        self.choices.int_in_range(0..=bound - 1).unwrap_or(0)
    }

    /// Returns `true` in one of `times` cases; `false` after the last byte.
    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns up to `max` arbitrary bytes.
    fn raw(&mut self, max: usize) -> Vec<u8> {
        let count = self.below(max + 1).min(self.choices.len());
        self.choices.bytes(count).unwrap_or_default().to_vec()
    }

    fn call(&mut self) -> ScriptCall {
        let all = methods();
        let method = match self.below(8) {
            0 => method("KV", self.one_of(&["Put", "Txn"])),
            1 => method("KV", self.one_of(&["Range", "DeleteRange", "Txn"])),
            2 => method("Watch", "Watch"),
            3 => method(
                "Lease",
                self.one_of(&["LeaseGrant", "LeaseRevoke", "LeaseKeepAlive"]),
            ),
            _ => &all[self.below(all.len())],
        };
        let streams = method.is_client_streaming();
        let count = if streams {
            self.below(5)
        } else if self.one_in(24) {
            self.one_of(&[0, 2])
        } else {
            1
        };
        let (data, well_formed) = self.messages(method, count);
        ScriptCall {
            method: method.clone(),
            data,
            well_formed: well_formed && (streams || count == 1),
            stays_open: streams && !self.one_in(4),
            token: (!self.one_in(6)).then(|| self.below(3)),
        }
    }

    /// Returns `count` messages as received data, and whether all of them are well-formed.
    fn messages(&mut self, method: &MethodDescriptor, count: usize) -> (Vec<Bytes>, bool) {
        let mut data = Vec::new();
        let mut well_formed = true;
        for _ in 0..count {
            let mut message = self.message(&method.input(), DEPTH_MAX).encode_to_vec();
            if self.one_in(16) {
                well_formed = false;
                message = self.raw(64);
            } else if self.one_in(12) {
                well_formed = false;
                self.corrupt(&mut message);
            }
            let length = u32::try_from(message.len()).unwrap();
            if self.one_in(24) {
                well_formed = false;
                let flag = self.one_of(&[0, 1, 2, 255]);
                let length = self.one_of(&[
                    0,
                    1,
                    length.saturating_sub(1),
                    length + 1,
                    1 << 20,
                    u32::MAX,
                ]);
                data.push(frame_with(flag, length, &message));
            } else {
                data.push(frame(&message));
            }
            if self.one_in(6)
                && let Some(last) = data.last_mut()
            {
                let end = last.split_off(self.below(last.len() + 1));
                data.push(end);
            }
        }
        (data, well_formed)
    }

    /// Truncates the message, inserts bytes or flips bits.
    fn corrupt(&mut self, message: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(message.len() + 1);
            match self.below(3) {
                0 => message.truncate(at),
                1 => message.insert(at, self.one_of(&[0, 1, 0x7f, 0x80, 0xff])),
                _ => {
                    let change = self.one_of(&[1, 2, 4, 8, 0x10, 0x80, 0xff]);
                    if let Some(byte) = message.get_mut(at) {
                        *byte ^= change;
                    }
                }
            }
        }
    }

    fn message(&mut self, kind: &MessageDescriptor, depth: usize) -> DynamicMessage {
        let mut message = DynamicMessage::new(kind.clone());
        for field in kind.fields() {
            // Most numbers and flags restrict a request. A request with all of them set has no
            // effect.
            let usually_set = matches!(field.kind(), Kind::Bytes | Kind::String | Kind::Message(_));
            let left_out = self.below(if usually_set { 4 } else { 2 }) == 0;
            if field.containing_oneof().is_none() && !left_out {
                self.fill(&mut message, &field, depth);
            }
        }
        for choice in kind.oneofs() {
            let fields: Vec<_> = choice.fields().collect();
            if self.below(12) > 0 {
                let field = &fields[self.below(fields.len())];
                self.fill(&mut message, field, depth);
            }
        }
        message
    }

    fn fill(&mut self, message: &mut DynamicMessage, field: &FieldDescriptor, depth: usize) {
        let value = if field.is_list() {
            let count = if self.one_in(40) { 150 } else { self.below(4) };
            (0..count)
                .map(|_| self.value(field, depth))
                .collect::<Option<_>>()
                .map(Value::List)
        } else {
            self.value(field, depth)
        };
        if let Some(value) = value {
            message.set_field(field, value);
        }
    }

    fn value(&mut self, field: &FieldDescriptor, depth: usize) -> Option<Value> {
        Some(match field.kind() {
            Kind::Bool => Value::Bool(self.one_in(2)),
            Kind::Int64 => Value::I64(self.number()),
            Kind::Uint64 => Value::U64(self.number().cast_unsigned()),
            Kind::Uint32 => Value::U32(u32::try_from(self.number()).unwrap_or(u32::MAX)),
            Kind::Int32 => Value::I32(i32::try_from(self.number()).unwrap_or(i32::MIN)),
            Kind::Enum(kind) => {
                let known = kind.values().len();
                Value::EnumNumber(match self.below(12) {
                    11 => self.one_of(&[-1, 99, i32::MAX, i32::MIN]),
                    _ => kind.values().nth(self.below(known))?.number(),
                })
            }
            Kind::Bytes => Value::Bytes(self.bytes().into()),
            Kind::String => Value::String(match self.below(10) {
                9 => String::from_utf8_lossy(&self.raw(16)).into_owned(),
                _ => self.one_of(STRINGS).to_owned(),
            }),
            Kind::Message(kind) if depth > 0 => Value::Message(self.message(&kind, depth - 1)),
            _ => return None,
        })
    }

    /// Returns a number, in most cases from the range of the lease ids, revisions, versions, watch
    /// ids and limits of a short script.
    fn number(&mut self) -> i64 {
        match self.below(8) {
            7 => self.one_of(NUMBERS),
            6 => self.choices.arbitrary().unwrap_or(0),
            3..6 => self.small(40),
            _ => self.small(5),
        }
    }

    fn small(&mut self, bound: usize) -> i64 {
        i64::try_from(self.below(bound)).unwrap()
    }

    fn bytes(&mut self) -> Vec<u8> {
        match self.below(16) {
            15 => vec![b'x'; self.one_of(&[1000, 5000])],
            13 | 14 => self.raw(24),
            _ => self.one_of(BYTES).to_vec(),
        }
    }
}

impl Iterator for Script<'_> {
    type Item = ScriptStep;

    fn next(&mut self) -> Option<ScriptStep> {
        if self.choices.is_empty() {
            return None;
        }
        self.steps_left = self.steps_left.checked_sub(1)?;
        let call = self.below(4);
        Some(match self.below(16) {
            15 => ScriptStep::Cancel { call },
            14 => ScriptStep::HalfClose { call },
            13 => ScriptStep::PollOpen,
            12 => ScriptStep::Advance(Duration::from_secs(
                self.one_of(&[1, 2, 5, 61, 3600, 90_000]),
            )),
            10 | 11 => {
                let count = self.below(4);
                let (service, name) =
                    self.one_of(&[("Watch", "Watch"), ("Lease", "LeaseKeepAlive")]);
                let (data, _) = self.messages(method(service, name), count);
                ScriptStep::Send { call, data }
            }
            _ => ScriptStep::Call(self.call()),
        })
    }
}
