//! Reads: ranges at any kept revision, without the sequencer; etcd's mvcc `rangeKeys`.

use std::cmp::{Ordering, Reverse};
use std::ops::ControlFlow;

use crate::engine::History;
use crate::error::ReadError;
use crate::fault::{on_fault, unless_fault};
use crate::history::KeyValue;
use crate::index::Scan;
use crate::key::KeyRange;
use crate::revision::{Position, Revision};
use crate::store::Store;
use crate::sync::epoch::pin;

/// The maximum number of attempts to read the current revision. A compaction during an attempt can
/// make it fail. After the last attempt the read takes a pin.
const ATTEMPTS_MAX: usize = 3;

/// The number of log records whose visit costs about as much as a visit of one key of the range.
const LOG_RECORDS_PER_KEY: usize = 4;

/// The maximum number of log records that a count visits in its first attempt. Further attempts
/// alternate between the keys of the range and the log, with four times as many each time.
const COUNT_RECORDS_FIRST: usize = 1024;

/// A read of a range of keys.
///
/// ```
/// # use revstore_engine::{Engine, KeyRange, Range, SortBy, SortOrder};
/// # let engine = Engine::builder().build();
/// engine.put("b", "1")?;
/// engine.put("a", "2")?;
/// let range = Range::of(KeyRange::all()).sorted(SortBy::Value, SortOrder::Descending).limit(1);
/// let found = engine.range(&range)?;
/// assert_eq!((found.kvs[0].key(), found.more, found.count), (&b"a"[..], true, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Range {
    /// The keys.
    pub keys: KeyRange,
    /// The revision to read at; the current one if `None`.
    pub at: Option<Revision>,
    /// The number of keys to return at most, applied after the filter and the sort; all if `None`.
    pub limit: Option<usize>,
    /// Whether to return only the count. Default: `false`.
    pub count_only: bool,
    /// Whether to apply the limit before the sort: the result is then the first `limit` + 1 keys in
    /// key order, sorted, without the last one. Default: `false`.
    ///
    /// etcd does this for a request with a sort target and no sort order. Has no effect together
    /// with a filter.
    pub limit_first: bool,
    /// The order of the result; ascending by key if `None`.
    pub sort: Option<(SortBy, SortOrder)>,
    /// The keys to leave out of the result, but not out of the count. Default: none.
    pub filter: Filter,
}

/// The property that a result is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// The key.
    Key,
    /// The number of writes since the creation.
    Version,
    /// The create revision.
    CreateRevision,
    /// The mod revision.
    ModRevision,
    /// The value, compared bytewise.
    Value,
}

/// The direction of a sort. Equal keys of a sort are in ascending key order in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// The smallest first.
    Ascending,
    /// The largest first.
    Descending,
}

/// Inclusive bounds on the revisions of the returned keys. Default: no bounds.
///
/// ```
/// # use revstore_engine::{Filter, KeyRange, Range, Revision};
/// let changed_since = Filter::default().min_mod_revision(Revision(40));
/// let range = Range::of(KeyRange::all()).filtered(changed_since);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// The lowest mod revision to return.
    pub min_mod_revision: Option<Revision>,
    /// The highest mod revision to return.
    pub max_mod_revision: Option<Revision>,
    /// The lowest create revision to return.
    pub min_create_revision: Option<Revision>,
    /// The highest create revision to return.
    pub max_create_revision: Option<Revision>,
}

/// The result of a [`Range`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeResult {
    /// The current revision of the store, also if an older one was read.
    pub revision: Revision,
    /// The keys found, at most as many as the limit.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit left out keys.
    pub more: bool,
    /// The number of live keys in the range at the revision read, regardless of limit and filter.
    pub count: usize,
}

impl Range {
    /// Reads the live keys of `keys`, in ascending order, at the current revision.
    pub fn of(keys: KeyRange) -> Self {
        Self {
            keys,
            at: None,
            limit: None,
            count_only: false,
            limit_first: false,
            sort: None,
            filter: Filter::default(),
        }
    }

    /// Reads at `revision` instead of the current one.
    #[must_use]
    pub fn at(mut self, revision: Revision) -> Self {
        self.at = Some(revision);
        self
    }

    /// Returns at most `limit` keys.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns only the count.
    #[must_use]
    pub fn count_only(mut self) -> Self {
        self.count_only = true;
        self
    }

    /// Applies the limit before the sort; see [`Range::limit_first`](#structfield.limit_first).
    #[must_use]
    pub fn limit_first(mut self) -> Self {
        self.limit_first = true;
        self
    }

    /// Sorts the result.
    #[must_use]
    pub fn sorted(mut self, by: SortBy, order: SortOrder) -> Self {
        self.sort = Some((by, order));
        self
    }

    /// Leaves out keys outside the bounds.
    #[must_use]
    pub fn filtered(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }
}

impl Filter {
    /// Leaves out keys with a mod revision below `revision`.
    #[must_use]
    pub fn min_mod_revision(mut self, revision: Revision) -> Self {
        self.min_mod_revision = Some(revision);
        self
    }

    /// Leaves out keys with a mod revision above `revision`.
    #[must_use]
    pub fn max_mod_revision(mut self, revision: Revision) -> Self {
        self.max_mod_revision = Some(revision);
        self
    }

    /// Leaves out keys with a create revision below `revision`.
    #[must_use]
    pub fn min_create_revision(mut self, revision: Revision) -> Self {
        self.min_create_revision = Some(revision);
        self
    }

    /// Leaves out keys with a create revision above `revision`.
    #[must_use]
    pub fn max_create_revision(mut self, revision: Revision) -> Self {
        self.max_create_revision = Some(revision);
        self
    }

    fn passes(&self, kv: &KeyValue) -> bool {
        let (modified, created) = (kv.mod_revision(), kv.create_revision());
        self.min_mod_revision.is_none_or(|min| min <= modified)
            && self.max_mod_revision.is_none_or(|max| modified <= max)
            && self.min_create_revision.is_none_or(|min| min <= created)
            && self.max_create_revision.is_none_or(|max| created <= max)
    }

    fn is_off(&self) -> bool {
        *self == Self::default()
    }
}

impl Store {
    /// Reads a range, without a lock.
    pub(crate) fn range(&self, request: &Range) -> Result<RangeResult, ReadError> {
        self.range_measured(request, |_| 0).map(|(found, _)| found)
    }

    /// Reads a range; also returns the sum of `measure` over the returned versions.
    pub(crate) fn range_measured(
        &self,
        request: &Range,
        measure: impl Fn(&KeyValue) -> usize,
    ) -> Result<(RangeResult, usize), ReadError> {
        if let Some(requested) = request.at {
            let current = self.current.load();
            self.check_readable(requested, current)?;
            let result = self.range_measured_at(request, requested.end(), current, measure);
            // I7: a compaction may have run during the read.
            unless_fault!(self.faults, ReadChecksOnce, self.check_kept(requested)?);
            return Ok(result);
        }
        for _ in 0..ATTEMPTS_MAX {
            let current = self.current.load();
            let result = self.range_measured_at(request, current.end(), current, &measure);
            if !self.compacted.has_dropped(current) {
                return Ok(result);
            }
        }
        // Make the next compaction wait for this read. `measure` may compact, so it runs after the
        // pin is released.
        let result = {
            let (_pin, current) = {
                let _sequencer = self.sequencer.lock();
                let current = self.current.load();
                (self.pins.pin(current.end()), current)
            };
            self.range_at(request, current.end(), current)
        };
        let measured = result.kvs.iter().map(measure).sum();
        Ok((result, measured))
    }

    /// Calls `visit` with the live versions of a range at a revision until it breaks, under the pin of
    /// one step at a time.
    pub(crate) fn visit<B>(
        &self,
        keys: &KeyRange,
        at: Revision,
        mut visit: impl FnMut(&KeyValue) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ReadError> {
        self.check_readable(at, self.current.load())?;
        let mut scan = Scan::of(keys);
        let mut more = !keys.is_empty();
        while more {
            let guard = pin();
            let mut step = Vec::new();
            more = scan.step(&self.index, &guard, |found| {
                step.extend(found.read(at.end()));
                ControlFlow::Continue(())
            });
            // I7: before the visits, so that they miss no version that a compaction has removed.
            self.check_kept(at)?;
            for version in step {
                if let ControlFlow::Break(value) = visit(&version) {
                    return Ok(ControlFlow::Break(value));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns all kept versions up to a revision.
    pub(crate) fn full_history(&self, through: Option<Revision>) -> Result<History, ReadError> {
        // Under the sequencer only to pin: a compaction then waits for the walk.
        let (_pin, revision, compacted) = {
            let _sequencer = self.sequencer.lock();
            let current = self.current.load();
            let revision = through.unwrap_or(current);
            self.check_readable(revision, current)?;
            (
                self.pins.pin(revision.end()),
                revision,
                self.compacted.load(),
            )
        };
        let mut versions = Vec::new();
        self.index.scan(&KeyRange::all(), |found| {
            let mut from = Position::FIRST;
            loop {
                let some = found.entry().versions(from, revision.end(), &pin());
                let Some(last) = some.last() else { break };
                from = last.position().next();
                versions.extend(some);
            }
            ControlFlow::Continue(())
        });
        versions.sort_unstable_by_key(KeyValue::position);
        Ok(History {
            revision,
            compacted,
            versions,
        })
    }

    /// Checks that `requested` is readable while the current revision is `current` (RG-11, RG-12).
    pub(crate) fn check_readable(
        &self,
        requested: Revision,
        current: Revision,
    ) -> Result<(), ReadError> {
        if requested > current {
            return Err(ReadError::Future { requested, current });
        }
        self.check_kept(requested)
    }

    /// Checks that `requested` is not compacted (RG-12).
    pub(crate) fn check_kept(&self, requested: Revision) -> Result<(), ReadError> {
        if self.compacted.has_dropped(requested) {
            let compacted = self.compacted.load().unwrap_or(requested);
            return Err(ReadError::Compacted {
                requested,
                compacted,
            });
        }
        Ok(())
    }

    /// Reads the range at the position `at`. The caller must make sure that a compaction does not
    /// remove the history at that position, or check afterwards.
    pub(crate) fn range_at(
        &self,
        request: &Range,
        at: Position,
        revision: Revision,
    ) -> RangeResult {
        self.range_measured_at(request, at, revision, |_| 0).0
    }

    fn range_measured_at(
        &self,
        request: &Range,
        mut at: Position,
        revision: Revision,
        measure: impl Fn(&KeyValue) -> usize,
    ) -> (RangeResult, usize) {
        if let KeyRange::One(key) = &request.keys {
            let found = self.index.read(key, at);
            let count = usize::from(found.is_some());
            let result = finish(request, found.into_iter().collect(), count, revision);
            let measured = result.kvs.iter().map(measure).sum();
            return (result, measured);
        }
        if request.count_only {
            let count = self.count_at(&request.keys, at);
            let result = RangeResult {
                revision,
                kvs: Vec::new(),
                more: false,
                count,
            };
            return (result, 0);
        }
        let in_key_order = matches!(
            request.sort,
            None | Some((SortBy::Key, SortOrder::Ascending))
        );
        let unfiltered = request.filter.is_off();
        let enough = match request.limit {
            Some(limit) if in_key_order || (request.limit_first && unfiltered) => limit,
            _ => usize::MAX,
        };
        let mut kvs = Vec::new();
        let mut measured = 0;
        let mut stopped = false;
        let mut scan = Scan::of(&request.keys);
        while !request.keys.is_empty() {
            let step_start = kvs.len();
            on_fault!(self.faults, ReadAtEachStep, at = self.current.load().end());
            let more = scan.step(&self.index, &pin(), |found| {
                let Some(kv) = found.read(at) else {
                    return ControlFlow::Continue(());
                };
                if !unfiltered && !request.filter.passes(&kv) {
                    return ControlFlow::Continue(());
                }
                // One key more than `enough` shows that there are more.
                stopped = kvs.len() == enough;
                kvs.push(kv.clone());
                if stopped {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            // I8: `measure` is code of the caller, so it runs after the pin of the step has ended.
            // The versions of one step are still in the processor's cache.
            let step_end = kvs.len() - usize::from(stopped);
            measured += kvs[step_start..step_end]
                .iter()
                .map(&measure)
                .sum::<usize>();
            if !more {
                break;
            }
        }
        let count = if stopped || !unfiltered {
            self.count_at(&request.keys, at)
        } else {
            kvs.len()
        };
        let found = kvs.len() - usize::from(stopped);
        let result = finish(request, kvs, count, revision);
        if result.kvs.len() < found {
            // `finish` has left out versions that are part of the sum.
            measured = result.kvs.iter().map(measure).sum();
        }
        (result, measured)
    }

    /// Returns the number of live keys in the range at `at`: either the count of the index,
    /// corrected by the records of the log after `at`, or the result of a walk over the range.
    /// Which of the two is cheaper is not known in advance, so both are tried in turn with growing
    /// limits. The cost is a small multiple of the cheaper one.
    fn count_at(&self, keys: &KeyRange, at: Position) -> usize {
        if keys.is_empty() {
            return 0;
        }
        let counted = self.index.count(keys);
        if counted.through <= at {
            return counted.live;
        }
        let mut records_max = COUNT_RECORDS_FIRST;
        loop {
            if let Some(change) = self.live_keys_change(keys, at, counted.through, records_max) {
                return counted.live.saturating_add_signed(-change);
            }
            if let Some(count) = self.live_keys_at(keys, at, records_max / LOG_RECORDS_PER_KEY) {
                return count;
            }
            records_max = records_max.saturating_mul(4);
        }
    }

    /// Returns the number of live keys in the range at `at`, or `None` if the range has more than
    /// `keys_max` keys.
    fn live_keys_at(&self, keys: &KeyRange, at: Position, keys_max: usize) -> Option<usize> {
        let mut count = 0;
        let mut left = Some(keys_max);
        self.index.scan(keys, |found| {
            left = left.and_then(|left| left.checked_sub(1));
            if left.is_none() {
                return ControlFlow::Break(());
            }
            count += usize::from(found.read(at).is_some());
            ControlFlow::Continue(())
        });
        left.map(|_| count)
    }

    /// Returns the number of live keys in the range at `to` minus that at `from`, or `None` if more
    /// than `records_max` records lie between the two.
    fn live_keys_change(
        &self,
        keys: &KeyRange,
        from: Position,
        to: Position,
        records_max: usize,
    ) -> Option<isize> {
        let mut change = 0;
        let mut left = records_max;
        let stopped = self.log.visit(from.next(), to, |record| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            if keys.contains(record.key()) {
                if record.is_tombstone() {
                    change -= 1;
                } else if record.version() == 1 {
                    change += 1;
                }
            }
            ControlFlow::Continue(())
        });
        stopped.is_none().then_some(change)
    }
}

/// Filters, sorts and limits the versions found.
fn finish(
    request: &Range,
    mut kvs: Vec<KeyValue>,
    count: usize,
    revision: Revision,
) -> RangeResult {
    if request.count_only {
        return RangeResult {
            revision,
            kvs: Vec::new(),
            more: false,
            count,
        };
    }
    if !request.filter.is_off() {
        kvs.retain(|kv| request.filter.passes(kv));
    }
    if let Some((by, order)) = request.sort {
        sort(&mut kvs, by, order);
    }
    let limit = request.limit.unwrap_or(usize::MAX);
    let more = kvs.len() > limit;
    kvs.truncate(limit);
    RangeResult {
        revision,
        kvs,
        more,
        count,
    }
}

/// Sorts versions that are in key order. Ties stay in key order (RG-43), so all sorts are stable.
fn sort(kvs: &mut [KeyValue], by: SortBy, order: SortOrder) {
    fn by_key_of<K: Ord>(kvs: &mut [KeyValue], order: SortOrder, key_of: impl Fn(&KeyValue) -> K) {
        match order {
            SortOrder::Ascending => kvs.sort_by_key(|kv| key_of(kv)),
            SortOrder::Descending => kvs.sort_by_key(|kv| Reverse(key_of(kv))),
        }
    }
    fn directed(order: SortOrder, ascending: Ordering) -> Ordering {
        match order {
            SortOrder::Ascending => ascending,
            SortOrder::Descending => ascending.reverse(),
        }
    }
    match by {
        SortBy::Key => match order {
            SortOrder::Ascending => {}
            SortOrder::Descending => kvs.reverse(),
        },
        SortBy::Version => by_key_of(kvs, order, KeyValue::version),
        SortBy::CreateRevision => by_key_of(kvs, order, KeyValue::create_revision),
        SortBy::ModRevision => by_key_of(kvs, order, KeyValue::mod_revision),
        SortBy::Value => kvs.sort_by(|a, b| directed(order, a.value().cmp(b.value()))),
    }
}
