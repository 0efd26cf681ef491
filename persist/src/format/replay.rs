//! Replaying: records into an engine and its metadata.

use std::mem;

use revstore_engine::{Engine, EngineBuilder, Restore, RestoreError, Revision};

use super::Metadata;
use super::record::{Footer, MetaChange, Record};
use crate::error::Corruption;

/// An engine that is being restored, with its metadata.
#[derive(Debug)]
pub(crate) struct Replay {
    restore: Restore,
    pub(crate) metadata: Metadata,
    /// The bodies of the frames of a revision whose last one was not read yet.
    parts: Vec<Vec<u8>>,
    pub(crate) compacted: Option<Revision>,
    pub(crate) counted: Footer,
}

impl Replay {
    pub(crate) fn new(
        builder: EngineBuilder,
        compacted: Option<Revision>,
    ) -> Result<Self, RestoreError> {
        Ok(Self {
            restore: builder.restore(compacted)?,
            metadata: Metadata::new(),
            parts: Vec::new(),
            compacted,
            counted: Footer::default(),
        })
    }

    pub(crate) fn revision(&self) -> Revision {
        self.restore.current_revision()
    }

    /// Returns whether all frames of the last revision were read.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns whether a record has a lease or a pair that was added: only journals replace them.
    pub(crate) fn has(&self, record: &Record<'_>) -> bool {
        match record {
            Record::LeaseGrant(lease) => self.restore.has_lease(lease.id),
            Record::LeaseLeft(left) => self.restore.has_lease(left.lease.id),
            Record::Meta(changes) => changes.iter().any(|change| {
                let bucket = self.metadata.get(&change.bucket);
                bucket.is_some_and(|pairs| pairs.contains_key(&change.key))
            }),
            _ => false,
        }
    }

    /// Applies the body of a frame. Headers and footers are not part of the state.
    pub(crate) fn apply(&mut self, body: &[u8]) -> Result<(), Corruption> {
        let record = Record::read(body).ok_or(Corruption::Contents)?;
        if let Record::Revision { changes, is_last } = record {
            if !is_last {
                self.parts.push(body.to_vec());
                return Ok(());
            }
            if self.parts.is_empty() {
                return self.add(&changes);
            }
            let parts = mem::take(&mut self.parts);
            let mut all = Vec::new();
            for part in parts.iter().map(|part| Record::read(part)) {
                if let Some(Record::Revision { changes, .. }) = part {
                    all.extend(changes);
                }
            }
            all.extend(changes);
            return self.add(&all);
        }
        if !self.is_whole() {
            return Err(Corruption::Contents);
        }
        match record {
            Record::Batch { .. } => {}
            Record::Base(versions) => {
                for version in &versions {
                    self.restore.base(version)?;
                }
                self.counted.base += versions.len() as u64;
            }
            Record::Compaction(revision) => {
                self.restore.compact(revision)?;
                self.compacted = Some(revision);
            }
            Record::LeaseGrant(lease) => {
                self.restore.grant(lease)?;
                self.counted.leases += 1;
            }
            Record::LeaseLeft(lease) => {
                self.restore.grant_left(lease)?;
                self.counted.leases += 1;
            }
            Record::Skip(revision) => self.restore.skip_to(revision)?,
            Record::LeaseEnd(lease) => self.restore.end_lease(lease),
            Record::Meta(changes) => {
                self.counted.pairs += changes.len() as u64;
                for change in changes {
                    change.apply(&mut self.metadata);
                }
            }
            Record::Header(_) | Record::Footer(_) | Record::Revision { .. } => {
                return Err(Corruption::Contents);
            }
        }
        Ok(())
    }

    /// Drops the frames of a revision that is not complete.
    pub(crate) fn drop_parts(&mut self) {
        self.parts.clear();
    }

    pub(crate) fn finish(self) -> Result<(Engine, Metadata), RestoreError> {
        Ok((self.restore.finish()?, self.metadata))
    }

    fn add(&mut self, changes: &[revstore_engine::Version<'_>]) -> Result<(), Corruption> {
        self.restore.revision(changes)?;
        self.counted.revisions += 1;
        self.counted.changes += changes.len() as u64;
        Ok(())
    }
}

impl MetaChange {
    pub(crate) fn apply(self, metadata: &mut Metadata) {
        let bucket = metadata.entry(self.bucket).or_default();
        match self.value {
            Some(value) => drop(bucket.insert(self.key, value)),
            None => drop(bucket.remove(&self.key)),
        }
    }
}
