//! Snapshot files: a whole store at one revision. This is the format of all dumps.

use std::io::{self, Read};

use revstore_engine::{Dump, EngineBuilder, KeyValue, LeaseLeft, Revision, Version};

use crate::disk::{DiskFile, write_all};
use crate::error::Corruption;
use crate::format::{
    FORMAT_VERSION, FileKind, Footer, FrameReader, FrameWriter, Header, MAGIC, MetaChange,
    Metadata, PART_BYTES, Record, Replay, write_base, write_revision,
};

/// The number of bytes that are encoded before they are written.
const BUFFER_BYTES: usize = 1024 * 1024;

/// Frames on their way into a file.
#[derive(Debug)]
pub(crate) struct FileWriter<'a> {
    file: &'a mut dyn DiskFile,
    frames: FrameWriter,
    /// The number of bytes handed to the file.
    pub(crate) written: u64,
}

impl<'a> FileWriter<'a> {
    pub(crate) fn new(file: &'a mut dyn DiskFile) -> Self {
        Self {
            file,
            frames: FrameWriter::default(),
            written: 0,
        }
    }

    /// Begins a new file.
    pub(crate) fn begin(&mut self, header: Header) -> io::Result<()> {
        self.frames.bytes.extend(MAGIC);
        self.record(&Record::Header(header))
    }

    pub(crate) fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.frame(|body| record.write(body))
    }

    /// Writes versions of a base state. Returns their number.
    pub(crate) fn base(&mut self, versions: impl Iterator<Item = KeyValue>) -> io::Result<u64> {
        let (mut part, mut bytes, mut count) = (Vec::new(), 0, 0);
        for kv in versions {
            bytes += kv.size_bytes();
            count += 1;
            part.push(kv);
            if bytes >= PART_BYTES as u64 {
                self.base_part(&mut part)?;
                bytes = 0;
            }
        }
        self.base_part(&mut part)?;
        Ok(count)
    }

    fn base_part(&mut self, part: &mut Vec<KeyValue>) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let versions: Vec<_> = part.iter().map(Version::from).collect();
        self.frame(|body| write_base(&versions, body))?;
        drop(versions);
        part.clear();
        Ok(())
    }

    /// Writes the changes of whole revisions, in parts of a bounded size. Returns the numbers of
    /// revisions and of changes. The revisions that a store has skipped follow `current`.
    pub(crate) fn revisions(
        &mut self,
        current: Revision,
        changes: impl Iterator<Item = KeyValue>,
    ) -> io::Result<(u64, u64)> {
        let (mut part, mut bytes): (Vec<KeyValue>, _) = (Vec::new(), 0);
        let mut counts = (0, 0);
        let mut current = current;
        for kv in changes {
            if kv.mod_revision() > current.next() {
                let is_whole = !part.is_empty();
                self.revision_part(&mut part, true)?;
                counts.0 += u64::from(is_whole);
                bytes = 0;
                self.record(&Record::Skip(kv.mod_revision().previous()))?;
            }
            current = kv.mod_revision();
            if let Some(last) = part.last() {
                let ends_revision = last.mod_revision() != kv.mod_revision();
                if ends_revision || bytes >= PART_BYTES as u64 {
                    self.revision_part(&mut part, ends_revision)?;
                    counts.0 += u64::from(ends_revision);
                    bytes = 0;
                }
            }
            bytes += kv.size_bytes();
            counts.1 += 1;
            part.push(kv);
        }
        counts.0 += u64::from(!part.is_empty());
        self.revision_part(&mut part, true)?;
        Ok(counts)
    }

    fn revision_part(&mut self, part: &mut Vec<KeyValue>, is_last: bool) -> io::Result<()> {
        if let [only] = &part[..] {
            let change = [Version::from(only)];
            self.frame(|body| write_revision(&change, is_last, body))?;
        } else if !part.is_empty() {
            let changes: Vec<_> = part.iter().map(Version::from).collect();
            self.frame(|body| write_revision(&changes, is_last, body))?;
        }
        part.clear();
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        write_all(self.file, &self.frames.bytes)?;
        self.written += self.frames.bytes.len() as u64;
        self.frames.bytes.clear();
        Ok(())
    }

    fn frame(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.frames.frame(write);
        if self.frames.bytes.len() < BUFFER_BYTES {
            return Ok(());
        }
        self.flush()?;
        // A single large frame does not keep its memory.
        self.frames.bytes.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }
}

/// Writes a snapshot and syncs it.
pub(crate) fn write(
    file: &mut dyn DiskFile,
    sequence: u64,
    dump: &Dump,
    leases: impl ExactSizeIterator<Item = LeaseLeft>,
    metadata: &Metadata,
) -> io::Result<u64> {
    let mut writer = FileWriter::new(file);
    let lease_count = leases.len() as u64;
    writer.begin(Header {
        kind: FileKind::Snapshot as u8,
        version: FORMAT_VERSION,
        sequence,
        compacted: dump.compacted(),
        revision: dump.revision(),
    })?;
    let base = writer.base(dump.base())?;
    let start = dump.compacted().unwrap_or(Revision(1)).max(Revision(1));
    let (mut last, history) = (start, dump.history());
    let history = history.inspect(|kv| last = kv.mod_revision());
    let (revisions, changes) = writer.revisions(start, history)?;
    if dump.revision() > last {
        writer.record(&Record::Skip(dump.revision()))?;
    }
    for left in leases {
        let is_exact = left.lease.ttl.subsec_nanos() % 1_000_000 == 0;
        if is_exact && left == LeaseLeft::full(left.lease) {
            writer.record(&Record::LeaseGrant(left.lease))?;
        } else {
            writer.record(&Record::LeaseLeft(left))?;
        }
    }
    let mut pairs = 0;
    for (bucket, contents) in metadata {
        for (key, value) in contents {
            let change = MetaChange {
                bucket: bucket.clone(),
                key: key.clone(),
                value: Some(value.clone()),
            };
            writer.record(&Record::Meta(vec![change]))?;
            pairs += 1;
        }
    }
    writer.record(&Record::Footer(Footer {
        base,
        revisions,
        changes,
        leases: lease_count,
        pairs,
    }))?;
    writer.flush()?;
    let written = writer.written;
    file.sync()?;
    Ok(written)
}

/// An error of reading a file, with its offset.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io(io::Error),
    Corrupt { offset: u64, reason: Corruption },
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a snapshot. Returns the offset of its last frame, too.
pub(crate) fn read(
    reader: impl Read,
    len: u64,
    sequence: Option<u64>,
    builder: EngineBuilder,
) -> Result<(Replay, u64), ReadError> {
    let corrupt = |offset, reason| ReadError::Corrupt { offset, reason };
    let mut frames = FrameReader::new(reader, len)?.ok_or(corrupt(0, Corruption::Magic))?;
    let mut body = Vec::new();
    let offset = frames.offset();
    if !frames.read(&mut body)? {
        return Err(corrupt(offset, Corruption::Checksum));
    }
    let header =
        header_of(&body, FileKind::Snapshot, sequence).map_err(|reason| corrupt(offset, reason))?;
    let mut replay =
        Replay::new(builder, header.compacted).map_err(|error| corrupt(offset, error.into()))?;
    loop {
        let offset = frames.offset();
        if frames.is_at_end() {
            return Err(corrupt(offset, Corruption::Incomplete));
        }
        if !frames.read(&mut body)? {
            return Err(corrupt(offset, Corruption::Checksum));
        }
        match Record::read(&body) {
            Some(Record::Footer(footer)) => {
                let pairs = replay.metadata.values().map(|pairs| pairs.len() as u64);
                let is_complete = footer == replay.counted
                    && footer.pairs == pairs.sum::<u64>()
                    && replay.is_whole()
                    && replay.revision() == header.revision
                    && frames.is_at_end();
                return if is_complete {
                    Ok((replay, offset))
                } else {
                    Err(corrupt(offset, Corruption::Incomplete))
                };
            }
            Some(record) if replay.has(&record) => {
                return Err(corrupt(offset, Corruption::Repeated));
            }
            _ => {}
        }
        replay
            .apply(&body)
            .map_err(|reason| corrupt(offset, reason))?;
    }
}

/// Decodes the header of a file, and checks that it belongs to this kind and number, if there is one.
pub(crate) fn header_of(
    body: &[u8],
    kind: FileKind,
    sequence: impl Into<Option<u64>>,
) -> Result<Header, Corruption> {
    let Some(Record::Header(header)) = Record::read(body) else {
        return Err(Corruption::Contents);
    };
    if header.version != FORMAT_VERSION {
        return Err(Corruption::Version(header.version));
    }
    let sequence = sequence.into().unwrap_or(header.sequence);
    if header.kind != kind as u8 || header.sequence != sequence {
        return Err(Corruption::Contents);
    }
    Ok(header)
}
