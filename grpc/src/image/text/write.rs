//! Writes a dump as text.

use std::io::{self, Write};

use revstore_engine::{KeyValue, Revision};

use super::FORMAT_VERSION;
use super::line::{Blob, Line, Put, Time};
use super::state;
use crate::image::Image;

/// Lines on their way into an output, with their checksum.
struct Lines<'a> {
    to: &'a mut dyn Write,
    buffer: Vec<u8>,
    count: u64,
    crc32c: u32,
}

impl Lines<'_> {
    fn write(&mut self, line: &Line) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)?;
        self.buffer.push(b'\n');
        self.to.write_all(&self.buffer)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &self.buffer);
        self.count += 1;
        // A single large value does not keep its memory.
        self.buffer.shrink_to(1 << 20);
        Ok(())
    }
}

/// Writes a dump.
pub(crate) fn write(image: &Image, to: &mut dyn Write) -> io::Result<()> {
    let dump = image.engine.dump();
    let mut lines = Lines {
        to,
        buffer: Vec::new(),
        count: 0,
        crc32c: 0,
    };
    lines.write(&Line::Dump {
        version: FORMAT_VERSION,
        revision: dump.revision().0,
        compacted: dump.compacted().map(|revision| revision.0),
    })?;
    for kv in dump.base() {
        lines.write(&Line::Base(put(&kv)))?;
    }
    let mut current = dump.compacted().unwrap_or(Revision(1)).max(Revision(1));
    for kv in dump.history() {
        jump(&mut lines, current, kv.mod_revision().previous())?;
        current = kv.mod_revision();
        lines.write(&event(&kv))?;
    }
    jump(&mut lines, current, dump.revision())?;
    for left in dump.leases() {
        let (lease, remaining) = (left.lease, left.remaining);
        lines.write(&Line::Lease {
            id: lease.id.get(),
            ttl: Time(lease.ttl),
            left: (remaining != lease.ttl).then_some(Time(remaining)),
        })?;
    }
    for line in state::lines(image.state.metadata()) {
        lines.write(&line)?;
    }
    let (count, crc32c) = (lines.count, lines.crc32c);
    lines.write(&Line::End {
        lines: Some(count),
        crc32c: Some(format!("{crc32c:08x}")),
    })?;
    lines.to.flush()
}

/// Writes that the store has skipped revisions, if it has.
fn jump(lines: &mut Lines<'_>, current: Revision, to: Revision) -> io::Result<()> {
    if to > current {
        lines.write(&Line::Jump { to: to.0 })?;
    }
    Ok(())
}

fn event(kv: &KeyValue) -> Line {
    if !kv.is_tombstone() {
        return Line::Put(put(kv));
    }
    Line::Delete {
        key: Blob(kv.key().to_vec()),
        rev: kv.mod_revision().0,
        sub: kv.position().sub,
    }
}

fn put(kv: &KeyValue) -> Put {
    let (rev, created) = (kv.mod_revision().0, kv.create_revision().0);
    Put {
        key: Blob(kv.key().to_vec()),
        value: Blob(kv.value().to_vec()),
        rev,
        sub: kv.position().sub,
        created: (created != rev).then_some(created),
        version: (kv.version() != 1).then_some(kv.version()),
        lease: kv.lease().map(revstore_engine::LeaseId::get),
    }
}
