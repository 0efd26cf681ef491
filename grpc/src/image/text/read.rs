//! Reads a dump as text.

use std::io::{BufRead, BufReader, Read};

use revstore_engine::{
    EngineBuilder, LeaseGrant, LeaseId, LeaseLeft, Position, Restore, Revision, Version,
};
use revstore_persist::Metadata;

use super::FORMAT_VERSION;
use super::line::{Line, Put};
use super::state;
use crate::image::Image;
use crate::image::error::{Damage, Found};
use crate::image::pairs::check_pair;
use crate::node::state::NodeState;

/// The largest length of a line: room for the largest key and value in base64.
const LINE_BYTES_MAX: u64 = 3 << 30;

/// The number of bytes that are read at a time.
const READ_BYTES: usize = 256 * 1024;

const TWICE: &str = "there is such a line already";

/// Reads a dump.
pub(crate) fn read(from: impl Read, builder: EngineBuilder) -> Result<Image, Found> {
    let mut lines = Lines {
        from: BufReader::with_capacity(READ_BYTES, from),
        buffer: Vec::new(),
        number: 0,
        crc32c: 0,
    };
    let Some(Line::Dump {
        version,
        revision,
        compacted,
    }) = lines.next()?
    else {
        return Err(lines.damaged(text("this is no dump of revstore")));
    };
    if version != FORMAT_VERSION {
        let version = format!("{version} of the format");
        return Err(lines.damaged(Damage::Version(version)));
    }
    let restore = builder.restore(compacted.map(Revision));
    let mut reading = Reading {
        restore: restore.map_err(|error| lines.damaged(error.into()))?,
        state: Metadata::new(),
    };
    loop {
        let before = lines.crc32c;
        let count = lines.number;
        let Some(line) = lines.next()? else {
            return Err(lines.damaged(Damage::Incomplete("the last line is missing")));
        };
        if let Line::End {
            lines: stated,
            crc32c,
        } = line
        {
            if reading.restore.current_revision() != Revision(revision) {
                let reason = "it does not end at the revision in its first line";
                return Err(lines.damaged(Damage::Incomplete(reason)));
            }
            if stated.is_some_and(|stated| stated != count) {
                let reason = "the number of lines is not the one in the last line";
                return Err(lines.damaged(Damage::Incomplete(reason)));
            }
            if crc32c.is_some_and(|stated| stated != format!("{before:08x}")) {
                let reason =
                    "the checksum is not that of the last line, which has none in an edited dump";
                return Err(lines.damaged(Damage::Incomplete(reason)));
            }
            if lines.next()?.is_some() {
                return Err(lines.damaged(text("there is a line after the last one")));
            }
            break;
        }
        reading.add(line).map_err(|damage| lines.damaged(damage))?;
    }
    let engine = reading.restore.finish();
    Ok(Image {
        engine: engine.map_err(|error| lines.damaged(error.into()))?,
        state: NodeState::of_metadata(reading.state),
    })
}

fn text(reason: impl Into<String>) -> Damage {
    Damage::Text(reason.into())
}

/// The lines of an input, with their checksum.
struct Lines<R> {
    from: BufReader<R>,
    buffer: Vec<u8>,
    /// The number of the current line, from 1.
    number: u64,
    crc32c: u32,
}

impl<R: Read> Lines<R> {
    /// Returns the next line that is not blank; `None` at the end.
    fn next(&mut self) -> Result<Option<Line>, Found> {
        loop {
            self.buffer.clear();
            self.buffer.shrink_to(1 << 20);
            let mut limited = self.from.by_ref().take(LINE_BYTES_MAX);
            if limited.read_until(b'\n', &mut self.buffer)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.crc32c = crc32c::crc32c_append(self.crc32c, &self.buffer);
            if self.buffer.len() as u64 == LINE_BYTES_MAX {
                return Err(self.damaged(text("the line is too long")));
            }
            if self.buffer.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line = serde_json::from_slice(&self.buffer);
            return line.map(Some).map_err(|error| {
                // There is one line, so only the column is of interest.
                self.damaged(text(
                    error.to_string().replace(" at line 1 column", " at column"),
                ))
            });
        }
    }

    fn damaged(&self, damage: Damage) -> Found {
        Found::Line(self.number.max(1), damage)
    }
}

/// An engine that is being read.
#[derive(Debug)]
struct Reading {
    restore: Restore,
    state: Metadata,
}

/// A version of a live key.
#[derive(Debug)]
struct Live {
    key: Vec<u8>,
    value: Vec<u8>,
    position: Position,
    create_revision: Revision,
    version: i64,
    lease: Option<LeaseId>,
}

impl Live {
    fn of(put: Put) -> Result<Self, Damage> {
        let lease = put.lease.map(lease_id).transpose()?;
        Ok(Self {
            key: put.key.0,
            value: put.value.0,
            position: position(put.rev, put.sub),
            create_revision: Revision(put.created.unwrap_or(put.rev)),
            version: put.version.unwrap_or(1),
            lease,
        })
    }

    fn version(&self) -> Version<'_> {
        Version {
            key: &self.key,
            value: Some(&self.value),
            position: self.position,
            create_revision: self.create_revision,
            version: self.version,
            lease: self.lease,
        }
    }
}

fn position(revision: i64, sub: u32) -> Position {
    let revision = Revision(revision);
    Position { revision, sub }
}

fn lease_id(id: i64) -> Result<LeaseId, Damage> {
    LeaseId::new(id).ok_or_else(|| text("a lease has the id 0"))
}

impl Reading {
    fn add(&mut self, line: Line) -> Result<(), Damage> {
        match line {
            Line::Dump { .. } | Line::End { .. } => {
                return Err(text("there is a first line among the others"));
            }
            Line::Base(put) => self.restore.base(&Live::of(put)?.version())?,
            Line::Put(put) => self.restore.change(&Live::of(put)?.version())?,
            Line::Delete { key, rev, sub } => self.restore.change(&Version {
                key: &key.0,
                value: None,
                position: position(rev, sub),
                create_revision: Revision(0),
                version: 0,
                lease: None,
            })?,
            Line::Jump { to } => self.restore.skip_to(Revision(to))?,
            Line::Lease { id, ttl, left } => {
                let lease = LeaseGrant {
                    id: lease_id(id)?,
                    ttl: ttl.0,
                };
                let remaining = left.unwrap_or(ttl).0;
                if self.restore.has_lease(lease.id) {
                    return Err(text(TWICE));
                }
                self.restore.grant_left(LeaseLeft { lease, remaining })?;
            }
            line @ (Line::Auth { .. }
            | Line::Role { .. }
            | Line::User { .. }
            | Line::Alarm { .. }
            | Line::Raft { .. }
            | Line::Pair { .. }) => {
                for (bucket, key, value) in state::entries(&line).map_err(Damage::Text)? {
                    check_pair(&bucket, &key, &value)?;
                    let pairs = self.state.entry(bucket).or_default();
                    if pairs.insert(key, value).is_some() {
                        return Err(text(TWICE));
                    }
                }
            }
        }
        Ok(())
    }
}
