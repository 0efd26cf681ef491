//! Scripts: what is done to a node, made from bytes.
//!
//! The same bytes make the same script, and fewer bytes a shorter one, so that a fuzzer can learn and
//! a failure can be made small. Messages are made from their descriptors: a method or a field that is
//! added to the `.proto` files is called and filled without a word here.

use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::Unstructured;
use bytes::{BufMut, Bytes, BytesMut};
use prost_reflect::prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ServiceDescriptor, Value,
};

/// Steps in one script.
const STEPS_MAX: usize = 40;

/// How deep messages hold each other: a transaction in one in one, and what it does.
const DEPTH_MAX: usize = 8;

/// Keys, range ends, names of locks and elections, values.
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

/// Users, roles, passwords, versions.
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

/// Numbers at which something might break.
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

/// What a script is played against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Limits so low that scripts run into them.
    pub(crate) small_limits: bool,
    /// Users, roles, and that they matter.
    pub(crate) auth: bool,
    /// Keys, leases and a compaction.
    pub(crate) history: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Call(Call),
    /// More of the request of an open call.
    Say {
        call: usize,
        data: Vec<Bytes>,
    },
    /// The end of the request of an open call.
    HalfClose {
        call: usize,
    },
    /// The client goes away.
    HangUp {
        call: usize,
    },
    /// The answers of all open calls are read as far as they go.
    Listen,
    Advance(Duration),
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: MethodDescriptor,
    /// The body, as it comes off the connection.
    pub(crate) data: Vec<Bytes>,
    /// Whether the body is what a correct client could have sent.
    pub(crate) intact: bool,
    /// Whether the client leaves its side open.
    pub(crate) stays_open: bool,
    /// Who it says that it is: one of those who have logged in.
    pub(crate) sender: Option<usize>,
}

/// A script that is still being made.
pub(crate) struct Script<'a> {
    choices: Unstructured<'a>,
    left: usize,
}

/// All methods of all services.
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

/// The method of that name; a service's if several have one.
pub(crate) fn method(service: &str, name: &str) -> &'static MethodDescriptor {
    let mut methods = methods().iter();
    methods
        .find(|method| method.parent_service().name() == service && method.name() == name)
        .unwrap()
}

/// One message as it goes over the wire.
pub(crate) fn frame(message: &[u8]) -> Bytes {
    framed(0, u32::try_from(message.len()).unwrap(), message)
}

fn framed(flag: u8, length: u32, message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(flag);
    frame.put_u32(length);
    frame.put_slice(message);
    frame.freeze()
}

impl<'a> Script<'a> {
    /// The script that some bytes make.
    pub(crate) fn of(bytes: &'a [u8]) -> (Setup, Self) {
        let mut script = Self {
            choices: Unstructured::new(bytes),
            left: STEPS_MAX,
        };
        let setup = Setup {
            small_limits: script.once_in(4),
            auth: script.once_in(4),
            history: script.once_in(2),
        };
        (setup, script)
    }

    /// A number below `bound`; 0 when the bytes have run out.
    fn below(&mut self, bound: usize) -> usize {
        self.choices.int_in_range(0..=bound - 1).unwrap_or(0)
    }

    /// Not when the bytes have run out.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn raw(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1).min(self.choices.len());
        self.choices.bytes(count).unwrap_or_default().to_vec()
    }

    fn call(&mut self) -> Call {
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
        } else if self.once_in(24) {
            self.one_of(&[0, 2])
        } else {
            1
        };
        let (data, whole) = self.messages(method, count);
        Call {
            method: method.clone(),
            data,
            intact: whole && (streams || count == 1),
            stays_open: streams && !self.once_in(4),
            sender: (!self.once_in(6)).then(|| self.below(3)),
        }
    }

    /// Messages as they come off the connection, and whether all are whole.
    fn messages(&mut self, method: &MethodDescriptor, count: usize) -> (Vec<Bytes>, bool) {
        let mut data = Vec::new();
        let mut whole = true;
        for _ in 0..count {
            let mut message = self.message(&method.input(), DEPTH_MAX).encode_to_vec();
            if self.once_in(16) {
                whole = false;
                message = self.raw(64);
            } else if self.once_in(12) {
                whole = false;
                self.spoil(&mut message);
            }
            let length = u32::try_from(message.len()).unwrap();
            if self.once_in(24) {
                whole = false;
                let flag = self.one_of(&[0, 1, 2, 255]);
                let length = self.one_of(&[
                    0,
                    1,
                    length.saturating_sub(1),
                    length + 1,
                    1 << 20,
                    u32::MAX,
                ]);
                data.push(framed(flag, length, &message));
            } else {
                data.push(frame(&message));
            }
            if self.once_in(6)
                && let Some(last) = data.last_mut()
            {
                let end = last.split_off(self.below(last.len() + 1));
                data.push(end);
            }
        }
        (data, whole)
    }

    /// What bad memory or a bad client makes of a message.
    fn spoil(&mut self, message: &mut Vec<u8>) {
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
            // Most numbers and flags make a request do less, and all of them together nothing.
            let often = matches!(field.kind(), Kind::Bytes | Kind::String | Kind::Message(_));
            let left_out = self.below(if often { 4 } else { 2 }) == 0;
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
            let count = if self.once_in(40) { 150 } else { self.below(4) };
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
            Kind::Bool => Value::Bool(self.once_in(2)),
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

    /// Mostly one that leases, revisions, versions, watches and limits of a short script have.
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
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.choices.is_empty() {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let call = self.below(4);
        Some(match self.below(16) {
            15 => Step::HangUp { call },
            14 => Step::HalfClose { call },
            13 => Step::Listen,
            12 => Step::Advance(Duration::from_secs(
                self.one_of(&[1, 2, 5, 61, 3600, 90_000]),
            )),
            10 | 11 => {
                let count = self.below(4);
                let (service, name) =
                    self.one_of(&[("Watch", "Watch"), ("Lease", "LeaseKeepAlive")]);
                let (data, _) = self.messages(method(service, name), count);
                Step::Say { call, data }
            }
            _ => Step::Call(self.call()),
        })
    }
}
