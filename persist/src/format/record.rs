//! Records: what the bodies of frames contain. Numbers are little-endian.

use std::time::Duration;

use revstore_engine::{LeaseGrant, LeaseId, LeaseLeft, Position, Revision, Version};

use super::frame::FRAME_HEADER_BYTES;

/// The number of bytes after which the parts of a revision, or of a base state, are continued in another
/// frame.
pub(crate) const PART_BYTES: usize = 256 * 1024;
/// The length of a frame that begins a batch.
pub(crate) const BATCH_FRAME_BYTES: usize = FRAME_HEADER_BYTES + 9;

const HEADER: u8 = 1;
const BATCH: u8 = 2;
const BASE: u8 = 3;
const REVISION: u8 = 4;
const COMPACTION: u8 = 5;
const LEASE_GRANT: u8 = 6;
const LEASE_END: u8 = 7;
const META: u8 = 8;
const FOOTER: u8 = 9;
const SKIP: u8 = 10;
const LEASE_LEFT: u8 = 11;

const TOMBSTONE: u8 = 1;
const LEASED: u8 = 2;
const CREATED: u8 = 4;

/// Represents a store that was never compacted.
const NEVER: i64 = -1;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FileKind {
    Snapshot = 1,
    Journal = 2,
}

/// The first record of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) version: u16,
    pub(crate) sequence: u64,
    /// Of a snapshot.
    pub(crate) compacted: Option<Revision>,
    /// The revision of a snapshot; the last one before a journal.
    pub(crate) revision: Revision,
}

/// The last record of a snapshot: how many parts the file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) base: u64,
    pub(crate) revisions: u64,
    pub(crate) changes: u64,
    pub(crate) leases: u64,
    pub(crate) pairs: u64,
}

/// The change of one pair of the metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetaChange {
    pub(crate) bucket: String,
    pub(crate) key: Vec<u8>,
    /// `None` if the pair is deleted.
    pub(crate) value: Option<Vec<u8>>,
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Header(Header),
    /// Begins what one step of the journal has written. All bytes before the offset were synced by then.
    Batch {
        synced: u64,
    },
    Base(Vec<Version<'a>>),
    /// Changes of a revision. More follow in the next frame, unless these are the last.
    Revision {
        changes: Vec<Version<'a>>,
        is_last: bool,
    },
    Compaction(Revision),
    LeaseGrant(LeaseGrant),
    LeaseEnd(LeaseId),
    Meta(Vec<MetaChange>),
    Footer(Footer),
    /// The current revision, without changes: the next one has a gap before it.
    Skip(Revision),
    /// A lease that does not have its full time to live.
    LeaseLeft(LeaseLeft),
}

impl Record<'_> {
    /// Encodes a record; base states and revisions have functions of their own.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Header(header) => {
                to.extend([HEADER, header.kind]);
                to.extend(header.version.to_le_bytes());
                to.extend(header.sequence.to_le_bytes());
                to.extend(header.compacted.map_or(NEVER, |it| it.0).to_le_bytes());
                to.extend(header.revision.0.to_le_bytes());
            }
            Self::Batch { synced } => {
                to.push(BATCH);
                to.extend(synced.to_le_bytes());
            }
            Self::Base(versions) => write_base(versions, to),
            Self::Revision { changes, is_last } => write_revision(changes, *is_last, to),
            Self::Compaction(revision) => {
                to.push(COMPACTION);
                to.extend(revision.0.to_le_bytes());
            }
            Self::LeaseGrant(lease) => {
                to.push(LEASE_GRANT);
                to.extend(lease.id.get().to_le_bytes());
                let ttl = u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX);
                to.extend(ttl.to_le_bytes());
            }
            Self::Skip(revision) => {
                to.push(SKIP);
                to.extend(revision.0.to_le_bytes());
            }
            Self::LeaseLeft(LeaseLeft { lease, remaining }) => {
                to.push(LEASE_LEFT);
                to.extend(lease.id.get().to_le_bytes());
                for time in [lease.ttl, *remaining] {
                    let nanos = u32::to_le_bytes(time.subsec_nanos());
                    to.extend(time.as_secs().to_le_bytes());
                    to.extend(nanos);
                }
            }
            Self::LeaseEnd(id) => {
                to.push(LEASE_END);
                to.extend(id.get().to_le_bytes());
            }
            Self::Meta(changes) => {
                to.push(META);
                for change in changes {
                    to.push(u8::from(change.value.is_some()));
                    write_bytes(change.bucket.as_bytes(), to);
                    write_bytes(&change.key, to);
                    if let Some(value) = &change.value {
                        write_bytes(value, to);
                    }
                }
            }
            Self::Footer(footer) => {
                to.push(FOOTER);
                let Footer {
                    base,
                    revisions,
                    changes,
                    leases,
                    pairs,
                } = footer;
                for count in [base, revisions, changes, leases, pairs] {
                    to.extend(count.to_le_bytes());
                }
            }
        }
    }
}

impl<'a> Record<'a> {
    /// Decodes the body of a frame; `None` if it is none of a record.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let record = match fields.u8()? {
            HEADER => Self::Header(Header {
                kind: fields.u8()?,
                version: u16::from_le_bytes(fields.array()?),
                sequence: fields.u64()?,
                compacted: match fields.i64()? {
                    NEVER => None,
                    compacted => Some(Revision(compacted)),
                },
                revision: Revision(fields.i64()?),
            }),
            BATCH => Self::Batch {
                synced: fields.u64()?,
            },
            BASE => {
                let mut versions = Vec::new();
                while !fields.0.is_empty() {
                    let position = fields.position()?;
                    versions.push(fields.version(position)?);
                }
                Self::Base(versions)
            }
            REVISION => {
                let mut position = fields.position()?;
                let is_last = match fields.u8()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                let mut changes = Vec::with_capacity(1);
                while !fields.0.is_empty() {
                    changes.push(fields.version(position)?);
                    position.sub = position.sub.checked_add(1)?;
                }
                Self::Revision { changes, is_last }
            }
            COMPACTION => Self::Compaction(Revision(fields.i64()?)),
            LEASE_GRANT => Self::LeaseGrant(LeaseGrant {
                id: LeaseId::new(fields.i64()?)?,
                ttl: Duration::from_millis(fields.u64()?),
            }),
            SKIP => Self::Skip(Revision(fields.i64()?)),
            LEASE_LEFT => Self::LeaseLeft(LeaseLeft {
                lease: LeaseGrant {
                    id: LeaseId::new(fields.i64()?)?,
                    ttl: fields.duration()?,
                },
                remaining: fields.duration()?,
            }),
            LEASE_END => Self::LeaseEnd(LeaseId::new(fields.i64()?)?),
            META => {
                let mut changes = Vec::new();
                while !fields.0.is_empty() {
                    let has_value = fields.u8()? == 1;
                    changes.push(MetaChange {
                        bucket: String::from_utf8(fields.bytes()?.to_vec()).ok()?,
                        key: fields.bytes()?.to_vec(),
                        value: if has_value {
                            Some(fields.bytes()?.to_vec())
                        } else {
                            None
                        },
                    });
                }
                Self::Meta(changes)
            }
            FOOTER => Self::Footer(Footer {
                base: fields.u64()?,
                revisions: fields.u64()?,
                changes: fields.u64()?,
                leases: fields.u64()?,
                pairs: fields.u64()?,
            }),
            _ => return None,
        };
        fields.0.is_empty().then_some(record)
    }
}

/// Encodes versions of a base state.
pub(crate) fn write_base(versions: &[Version<'_>], to: &mut Vec<u8>) {
    to.push(BASE);
    for version in versions {
        write_position(version.position, to);
        write_version(version, to);
    }
}

/// Encodes consecutive changes of one revision; there must be at least one.
pub(crate) fn write_revision(changes: &[Version<'_>], is_last: bool, to: &mut Vec<u8>) {
    to.push(REVISION);
    let first = changes.first().expect("a revision has changes");
    write_position(first.position, to);
    to.push(u8::from(is_last));
    for change in changes {
        write_version(change, to);
    }
}

/// Returns the offset that a frame at the beginning of some bytes states as synced, if it is one that
/// begins a batch.
pub(crate) fn batch_offset(bytes: &[u8]) -> Option<u64> {
    let frame = bytes.get(..BATCH_FRAME_BYTES)?;
    let (header, body) = frame.split_at(FRAME_HEADER_BYTES);
    let len = u32::try_from(body.len()).ok()?;
    let is_batch = header[..4] == len.to_le_bytes() && body[0] == BATCH;
    if !is_batch || header[4..] != crc32c::crc32c(body).to_le_bytes() {
        return None;
    }
    match Record::read(body)? {
        Record::Batch { synced } => Some(synced),
        _ => None,
    }
}

fn write_position(position: Position, to: &mut Vec<u8>) {
    to.extend(position.revision.0.to_le_bytes());
    to.extend(position.sub.to_le_bytes());
}

fn write_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    let len = u32::try_from(bytes.len()).expect("the engine bounds keys and values");
    to.extend(len.to_le_bytes());
    to.extend(bytes);
}

fn write_version(version: &Version<'_>, to: &mut Vec<u8>) {
    let Version {
        key,
        value,
        position,
        create_revision,
        version,
        lease,
    } = *version;
    let Some(value) = value else {
        to.push(TOMBSTONE);
        write_bytes(key, to);
        return;
    };
    let is_created = (create_revision, version) == (position.revision, 1);
    let mut flags = 0;
    if lease.is_some() {
        flags |= LEASED;
    }
    if is_created {
        flags |= CREATED;
    }
    to.push(flags);
    write_bytes(key, to);
    if !is_created {
        to.extend(create_revision.0.to_le_bytes());
        to.extend(version.to_le_bytes());
    }
    if let Some(lease) = lease {
        to.extend(lease.get().to_le_bytes());
    }
    write_bytes(value, to);
}

/// Reads fields one after the other; `None` at the end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn duration(&mut self) -> Option<Duration> {
        let (seconds, nanos) = (self.u64()?, u32::from_le_bytes(self.array()?));
        (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    fn position(&mut self) -> Option<Position> {
        Some(Position {
            revision: Revision(self.i64()?),
            sub: u32::from_le_bytes(self.array()?),
        })
    }

    fn version(&mut self, position: Position) -> Option<Version<'a>> {
        let flags = self.u8()?;
        let key = self.bytes()?;
        if flags == TOMBSTONE {
            return Some(Version {
                key,
                value: None,
                position,
                create_revision: Revision(0),
                version: 0,
                lease: None,
            });
        }
        if flags & !(LEASED | CREATED) != 0 {
            return None;
        }
        let (create_revision, version) = match flags & CREATED {
            0 => (Revision(self.i64()?), self.i64()?),
            _ => (position.revision, 1),
        };
        let lease = match flags & LEASED {
            0 => None,
            _ => Some(LeaseId::new(self.i64()?)?),
        };
        let value = Some(self.bytes()?);
        Some(Version {
            key,
            value,
            position,
            create_revision,
            version,
            lease,
        })
    }
}
