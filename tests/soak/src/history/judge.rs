//! The judge: compares what all clients saw with one order of revisions, that of the *witness*.
//!
//! The witness is a watch of all keys from the first revision on. Its events number all writes, so a
//! history is linearizable exactly if, in the order of revisions,
//! - each answer agrees with the state at its revision;
//! - each acknowledged write is one of the events, and no refused one is;
//! - an operation that starts after another one has ended has no lower revision, and a higher one if it
//!   writes.
//!
//! So the check takes time proportional to the history, and no search. Other watches must deliver exactly
//! the witness's events that they match.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use crate::history::{Answer, Event, Key, Keys, Operation, Seen, Tick, WriteId};

/// The number of changes that are kept to compare with. A read or a watch of older ones is not judged.
const CHANGES_MAX: usize = 400_000;

/// The number of violations that are kept; further ones are only counted.
const VIOLATIONS_MAX: usize = 20;

/// The history of a store as its clients saw it.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// All events up to this revision are known.
    revision: i64,
    /// The revision of the last change that is not kept.
    forgotten: i64,
    changes: VecDeque<Event>,
    versions: HashMap<Key, VecDeque<Version>>,
    /// Writes that were sent, by their ids.
    sent: HashMap<WriteId, Sent>,
    /// Deletions of each key: events, and those that requests explain.
    deletions: HashMap<Key, Deletions>,
    /// The highest revision up to which a compaction was sent.
    compacted: i64,
    /// Operations that are not judged yet, by their ends.
    unjudged: BinaryHeap<Reverse<ByEnd>>,
    /// The highest revision of all judged operations that ended at or before a tick.
    ended: VecDeque<(Tick, i64)>,
    watches: BTreeMap<u64, Watch>,
    next_watch: u64,
    /// The number of answered operations.
    pub(crate) operations: u64,
    /// The number of compared events of watches.
    pub(crate) delivered: u64,
    pub(crate) violations: Violations,
}

/// What is wrong.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    pub(crate) count: u64,
    pub(crate) first: Vec<String>,
}

impl Violations {
    pub(crate) fn add(&mut self, violation: String) {
        self.count += 1;
        if self.first.len() < VIOLATIONS_MAX {
            self.first.push(violation);
        }
    }

    pub(crate) fn append(&mut self, later: Self) {
        self.count += later.count;
        self.first.extend(later.first);
        self.first.truncate(VIOLATIONS_MAX);
    }
}

#[derive(Clone, Copy, Debug)]
struct Version {
    created: i64,
    modified: i64,
    /// The version of the key, 0 for a deletion.
    number: i64,
    value: Option<WriteId>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    key: Key,
    start: Tick,
    revision: Option<i64>,
    is_refused: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Deletions {
    events: u64,
    acknowledged: u64,
    unknown: u64,
}

#[derive(Debug)]
struct ByEnd(Operation);

impl PartialEq for ByEnd {
    fn eq(&self, other: &Self) -> bool {
        self.0.end == other.0.end
    }
}

impl Eq for ByEnd {}

impl PartialOrd for ByEnd {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByEnd {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.end.cmp(&other.0.end)
    }
}

/// What a watch asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    pub(crate) keys: Keys,
    pub(crate) puts: bool,
    pub(crate) deletes: bool,
    /// Whether events contain the replaced values.
    pub(crate) replaced: bool,
}

impl Selection {
    fn matches(self, event: &Event) -> bool {
        let selected = if event.is_delete {
            self.deletes
        } else {
            self.puts
        };
        selected && self.keys.contain(event.kv.key)
    }
}

#[derive(Debug)]
struct Watch {
    selection: Selection,
    /// All events before this revision were delivered.
    next: i64,
    /// Deliveries that are not compared yet: events, and the revision up to which they are complete.
    deliveries: VecDeque<(Vec<Event>, i64)>,
    has_ended: bool,
}

impl Judge {
    /// Creates a judge of a store whose revision is `revision`.
    pub(crate) fn new(revision: i64) -> Self {
        Self {
            revision,
            forgotten: revision,
            ..Self::default()
        }
    }

    /// Returns the revision up to which the witness has delivered.
    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    /// Notes that a write is about to be sent.
    pub(crate) fn send(&mut self, id: WriteId, key: Key, start: Tick) {
        let sent = Sent {
            key,
            start,
            revision: None,
            is_refused: false,
        };
        self.sent.insert(id, sent);
    }

    /// Notes that a write was refused: it must never be seen.
    pub(crate) fn refuse(&mut self, id: WriteId) {
        if let Some(sent) = self.sent.get_mut(&id) {
            sent.is_refused = true;
            if let Some(revision) = sent.revision {
                let violation = format!("write {id:x} was refused, but is revision {revision}");
                self.violations.add(violation);
            }
        }
    }

    /// Notes that a deletion may or may not have taken place.
    pub(crate) fn doubt_deletion(&mut self, key: Key) {
        self.deletions.entry(key).or_default().unknown += 1;
    }

    /// Notes that a compaction at `revision` is about to be sent.
    pub(crate) fn compact(&mut self, revision: i64) {
        self.compacted = self.compacted.max(revision);
    }

    /// Returns whether a read or a watch at `revision` may fail, because it may be compacted.
    pub(crate) fn may_be_compacted(&self, revision: i64) -> bool {
        revision <= self.compacted
    }

    /// Takes the events that the witness has received, which are complete up to `revision`.
    pub(crate) fn witness(&mut self, events: Vec<Event>, revision: i64, tick: Tick) {
        for event in events {
            if event.kv.modified <= self.revision {
                let violation = format!("{event:?} after revision {}", self.revision);
                self.violations.add(violation);
                continue;
            }
            self.change(event, tick);
        }
        self.revision = self.revision.max(revision);
        self.unjudged.push(Reverse(ByEnd(Operation {
            start: tick,
            end: tick,
            revision: self.revision,
            answer: Answer::Observed,
        })));
        while self.changes.len() > CHANGES_MAX {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.forgotten = oldest.kv.modified;
            let versions = self.versions.entry(oldest.kv.key).or_default();
            // The version that the oldest kept read may see stays.
            while versions.len() > 1 && versions[1].modified <= self.forgotten {
                let gone = versions.pop_front();
                if let Some(id) = gone.and_then(|it| it.value) {
                    self.sent.remove(&id);
                }
            }
        }
    }

    fn change(&mut self, event: Event, tick: Tick) {
        let kv = event.kv;
        let versions = self.versions.entry(kv.key).or_default();
        let last = versions.back().copied().filter(|last| last.number > 0);
        let expected = Version {
            created: last.map_or(kv.modified, |last| last.created),
            modified: kv.modified,
            number: last.map_or(1, |last| last.number + 1),
            value: kv.value,
        };
        if event.is_delete {
            if last.is_none() {
                let violation = format!("a deletion of a key that does not exist: {event:?}");
                self.violations.add(violation);
            }
            self.deletions.entry(kv.key).or_default().events += 1;
            versions.push_back(Version {
                created: 0,
                number: 0,
                value: None,
                ..expected
            });
        } else {
            if (kv.created, kv.version) != (expected.created, expected.number) {
                let violation = format!("{event:?} where {expected:?} is due");
                self.violations.add(violation);
            }
            versions.push_back(expected);
            self.appear(&event, tick);
        }
        let replaced = last.and_then(|last| last.value);
        self.changes.push_back(Event { replaced, ..event });
    }

    /// A put has appeared: it must have been sent, once, and not after something later was seen.
    fn appear(&mut self, event: &Event, tick: Tick) {
        let sent = event.kv.value.and_then(|id| self.sent.get_mut(&id));
        match sent {
            Some(sent)
                if sent.key == event.kv.key && sent.revision.is_none() && !sent.is_refused =>
            {
                sent.revision = Some(event.kv.modified);
                let operation = Operation {
                    start: sent.start,
                    end: tick,
                    revision: event.kv.modified,
                    answer: Answer::Put(event.kv.key, event.kv.value.unwrap_or_default()),
                };
                self.unjudged.push(Reverse(ByEnd(operation)));
            }
            other => {
                let violation = format!("{event:?} is not what a client sent: {other:?}");
                self.violations.add(violation);
            }
        }
    }

    /// Takes an answered request.
    pub(crate) fn answer(&mut self, operation: Operation) {
        self.operations += 1;
        if let Answer::Delete(key, true) = operation.answer {
            self.deletions.entry(key).or_default().acknowledged += 1;
        }
        self.unjudged.push(Reverse(ByEnd(operation)));
    }

    /// Judges the operations that ended before `tick`. All of these must have been added.
    pub(crate) fn settle(&mut self, tick: Tick) {
        while let Some(Reverse(ByEnd(operation))) = self.unjudged.peek() {
            if operation.end >= tick || operation.revision > self.revision {
                break;
            }
            if let Some(Reverse(ByEnd(operation))) = self.unjudged.pop() {
                self.judge(&operation);
            }
        }
        self.compare_watches();
    }

    fn judge(&mut self, operation: &Operation) {
        let Operation {
            start,
            end,
            revision,
            ref answer,
        } = *operation;
        let before = self.ended.partition_point(|&(tick, _)| tick < start);
        let lower_bound = before.checked_sub(1).map_or(0, |index| self.ended[index].1);
        let is_write = matches!(
            answer,
            Answer::Put(..) | Answer::Swapped(..) | Answer::Delete(_, true)
        );
        let is_late = revision < lower_bound || is_write && revision == lower_bound;
        // The witness may be behind what others have seen.
        if is_late && !matches!(answer, Answer::Observed) {
            let violation =
                format!("{operation:?} started after revision {lower_bound} had been seen");
            self.violations.add(violation);
        }
        let highest = self.ended.back().map_or(0, |&(_, revision)| revision);
        self.ended.push_back((end, revision.max(highest)));
        if self.ended.len() > CHANGES_MAX {
            self.ended.pop_front();
        }
        if revision > self.forgotten && !self.agrees(revision, answer) {
            self.violations
                .add(format!("the history contradicts {operation:?}"));
        }
    }

    fn agrees(&self, revision: i64, answer: &Answer) -> bool {
        match *answer {
            Answer::Observed => true,
            Answer::Put(key, id) => self.is_written(key, id, revision),
            Answer::Delete(key, existed) => match self.at(key, revision) {
                Some(version) if existed => version.number == 0 && version.modified == revision,
                version => !existed && version.is_none_or(|it| it.number == 0),
            },
            Answer::Read(keys, at, ref seen) => {
                let at = at.unwrap_or(revision);
                at <= self.forgotten || *seen == self.read(keys, at)
            }
            Answer::Swapped(ref writes, expected) => {
                let before = writes.first().and_then(|&(key, _)| {
                    let before = self.at(key, revision - 1)?;
                    (before.number > 0).then_some(before.modified)
                });
                before.unwrap_or(0) == expected
                    && writes
                        .iter()
                        .all(|&(key, id)| self.is_written(key, id, revision))
            }
            Answer::NotSwapped(key, expected, ref seen) => {
                let keys = Keys {
                    first: key,
                    end: Key(key.0 + 1),
                };
                let modified = seen.first().map_or(0, |seen| seen.modified);
                *seen == self.read(keys, revision) && modified != expected
            }
        }
    }

    fn is_written(&self, key: Key, id: WriteId, revision: i64) -> bool {
        self.at(key, revision)
            .is_some_and(|it| it.modified == revision && it.value == Some(id))
    }

    fn at(&self, key: Key, revision: i64) -> Option<Version> {
        let versions = self.versions.get(&key)?;
        let after = versions.partition_point(|it| it.modified <= revision);
        Some(versions[after.checked_sub(1)?])
    }

    fn read(&self, keys: Keys, revision: i64) -> Vec<Seen> {
        let keys = (keys.first.0..keys.end.0).map(Key);
        let live = keys.filter_map(|key| {
            let it = self.at(key, revision).filter(|it| it.number > 0)?;
            Some(Seen {
                key,
                value: it.value,
                created: it.created,
                modified: it.modified,
                version: it.number,
            })
        });
        live.collect()
    }

    /// Begins a watch whose first event may have the revision `next`; returns its number.
    pub(crate) fn watch(&mut self, selection: Selection, next: i64) -> u64 {
        self.next_watch += 1;
        let watch = Watch {
            selection,
            next,
            deliveries: VecDeque::new(),
            has_ended: false,
        };
        self.watches.insert(self.next_watch, watch);
        self.next_watch
    }

    /// Takes a delivery of a watch, which is then complete up to `revision`.
    pub(crate) fn deliver(&mut self, watch: u64, events: Vec<Event>, revision: i64) {
        if let Some(watch) = self.watches.get_mut(&watch) {
            watch.deliveries.push_back((events, revision));
        }
    }

    /// Ends a watch. What it has delivered is still compared.
    pub(crate) fn unwatch(&mut self, watch: u64) {
        if let Some(watch) = self.watches.get_mut(&watch) {
            watch.has_ended = true;
        }
    }

    fn compare_watches(&mut self) {
        self.watches
            .retain(|_, watch| !watch.has_ended || !watch.deliveries.is_empty());
        for (number, watch) in &mut self.watches {
            while let Some((_, revision)) = watch.deliveries.front() {
                if *revision > self.revision {
                    break;
                }
                let Some((events, revision)) = watch.deliveries.pop_front() else {
                    break;
                };
                self.delivered += events.len() as u64;
                let from = watch.next;
                watch.next = watch.next.max(revision + 1);
                if from <= self.forgotten {
                    continue;
                }
                let first = self.changes.partition_point(|it| it.kv.modified < from);
                let due = self.changes.range(first..);
                let due = due.take_while(|it| it.kv.modified <= revision);
                let mut due = due.filter(|it| watch.selection.matches(it));
                let wrong = events.iter().find(|event| {
                    let due = due.next();
                    !due.is_some_and(|due| {
                        is_event(event, due, watch.selection.replaced, self.compacted)
                    })
                });
                let missing = wrong.is_none().then(|| due.next()).flatten();
                if wrong.is_some() || missing.is_some() {
                    self.violations.add(format!(
                        "watch {number} of {:?} from {from} to {revision}: wrong {wrong:?}, missing {missing:?}",
                        watch.selection
                    ));
                }
            }
        }
    }

    /// Judges everything after the end of all requests. Returns the number of acknowledged operations at
    /// revisions that the witness has not delivered, which are dropped.
    pub(crate) fn settle_all(&mut self) -> usize {
        self.settle(Tick::MAX);
        let left = self.unjudged.drain();
        left.filter(|Reverse(ByEnd(operation))| !matches!(operation.answer, Answer::Observed))
            .count()
    }

    /// Ends the history: as [`settle_all`](Self::settle_all), and looks whether requests explain all deletions.
    pub(crate) fn finish(&mut self) -> usize {
        let left = self.settle_all();
        for (key, deletions) in &self.deletions {
            if deletions.events > deletions.acknowledged + deletions.unknown {
                let violation = format!("{key:?}: {deletions:?}");
                self.violations.add(violation);
            }
        }
        left
    }
}

/// Returns whether a delivered event is the one that is due.
fn is_event(event: &Event, due: &Event, replaced: bool, compacted: i64) -> bool {
    let same = event.is_delete == due.is_delete
        && event.kv.key == due.kv.key
        && event.kv.modified == due.kv.modified
        && (event.is_delete || event.kv == due.kv);
    // A compaction may have removed the replaced version.
    let replaced_may_be_gone = event.replaced.is_none() && due.kv.modified <= compacted;
    let same_replaced = !replaced || event.replaced == due.replaced;
    same && (same_replaced || replaced_may_be_gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A judge of a store with one put of each of the writes 1 to 3 to key 0, at revisions 2 to 4, and a
    /// deletion at 5. The witness delivers them at tick 100.
    fn judge() -> Judge {
        let mut judge = Judge::new(1);
        for id in 1..4 {
            judge.send(id, Key(0), 10 * id);
        }
        judge.witness(vec![put(1, 2), put(2, 3), put(3, 4), delete(5)], 5, 100);
        judge.doubt_deletion(Key(0));
        judge
    }

    fn put(id: WriteId, modified: i64) -> Event {
        Event {
            kv: Seen {
                key: Key(0),
                value: Some(id),
                created: 2,
                modified,
                version: modified - 1,
            },
            is_delete: false,
            replaced: Some(id - 1).filter(|&it| it > 0),
        }
    }

    fn delete(modified: i64) -> Event {
        let kv = Seen {
            key: Key(0),
            value: None,
            created: 0,
            modified,
            version: 0,
        };
        Event {
            kv,
            is_delete: true,
            replaced: Some(3),
        }
    }

    fn key_0() -> Keys {
        Keys {
            first: Key(0),
            end: Key(1),
        }
    }

    fn violations(mut judge: Judge) -> u64 {
        judge.finish();
        judge.violations.count
    }

    /// Returns the number of violations of the history with some operations: start, end, revision, answer.
    fn judged(operations: &[(Tick, Tick, i64, Answer)]) -> u64 {
        let mut judge = judge();
        for &(start, end, revision, ref answer) in operations {
            judge.answer(Operation {
                start,
                end,
                revision,
                answer: answer.clone(),
            });
        }
        violations(judge)
    }

    #[test]
    fn answers_agree_with_the_state_at_their_revision() {
        let read = |revision, event: Option<Event>| {
            let seen = event.map(|event| event.kv).into_iter().collect();
            (101, 102, 5, Answer::Read(key_0(), Some(revision), seen))
        };
        assert_eq!(judged(&[]), 0);
        assert_eq!(judged(&[read(3, Some(put(2, 3))), read(5, None)]), 0);
        assert_eq!(judged(&[read(3, Some(put(1, 2)))]), 1, "an older value");
        assert_eq!(judged(&[read(3, None)]), 1, "a missing key");
        assert_eq!(judged(&[read(5, Some(put(3, 4)))]), 1, "a deleted key");
        let acknowledged = |id, revision| (10 * id, 90, revision, Answer::Put(Key(0), id));
        assert_eq!(judged(&[acknowledged(2, 3)]), 0);
        assert_eq!(judged(&[acknowledged(2, 4)]), 1, "another revision");
        assert_eq!(judged(&[acknowledged(7, 3)]), 1, "a lost write");
        let deleted = |existed, revision| (50, 90, revision, Answer::Delete(Key(0), existed));
        assert_eq!(judged(&[deleted(true, 5)]), 0);
        assert_eq!(judged(&[deleted(true, 4)]), 1, "no deletion there");
        assert_eq!(
            judged(&[deleted(false, 4)]),
            1,
            "there was something to delete"
        );
        let swapped = |expected| (20, 90, 3, Answer::Swapped(vec![(Key(0), 2)], expected));
        assert_eq!(judged(&[swapped(2)]), 0);
        assert_eq!(judged(&[swapped(1)]), 1, "the condition was false");
        let seen = vec![put(2, 3).kv];
        let not_swapped = |expected| {
            let answer = Answer::NotSwapped(Key(0), expected, seen.clone());
            (20, 90, 3, answer)
        };
        assert_eq!(judged(&[not_swapped(2)]), 0);
        assert_eq!(judged(&[not_swapped(3)]), 1, "the condition was true");
    }

    #[test]
    fn revisions_follow_real_time() {
        let observed = |start, end, revision| (start, end, revision, Answer::Observed);
        let read = |start, end, revision: i64| {
            let seen = match revision {
                5 => Vec::new(),
                _ => vec![put(revision.unsigned_abs() - 1, revision).kv],
            };
            (start, end, revision, Answer::Read(key_0(), None, seen))
        };
        assert_eq!(
            judged(&[read(60, 70, 5), read(65, 80, 4)]),
            0,
            "at the same time"
        );
        assert_eq!(
            judged(&[read(60, 70, 5), read(75, 80, 4)]),
            1,
            "a read of the past"
        );
        // Write 3 was sent at 30, and is revision 4.
        assert_eq!(judged(&[observed(1, 29, 3)]), 0);
        assert_eq!(judged(&[observed(1, 29, 4)]), 1, "a write into the past");
        assert_eq!(judged(&[read(101, 102, 4)]), 1, "older than the witness");
    }

    #[test]
    fn events_are_what_was_sent() {
        let mut refused = judge();
        refused.refuse(2);
        assert_eq!(violations(refused), 1);
        let mut unsent = judge();
        unsent.witness(
            vec![Event {
                kv: Seen {
                    created: 6,
                    version: 1,
                    ..put(9, 6).kv
                },
                ..put(9, 6)
            }],
            6,
            101,
        );
        assert_eq!(violations(unsent), 1);
        let mut twice = judge();
        twice.witness(
            vec![Event {
                kv: Seen {
                    created: 6,
                    version: 1,
                    ..put(3, 6).kv
                },
                ..put(3, 6)
            }],
            6,
            101,
        );
        assert_eq!(violations(twice), 1);
        let mut repeated = judge();
        repeated.witness(vec![put(3, 4)], 4, 101);
        assert_eq!(violations(repeated), 1);
        let mut version = judge();
        version.send(4, Key(0), 101);
        version.witness(vec![put(4, 6)], 6, 102);
        assert_eq!(
            violations(version),
            1,
            "not the first version after a deletion"
        );
        let mut unexplained = Judge::new(1);
        unexplained.send(1, Key(0), 1);
        unexplained.witness(vec![put(1, 2), delete(3)], 3, 100);
        assert_eq!(violations(unexplained), 1, "nobody has deleted the key");
    }

    #[test]
    fn watches_deliver_what_they_match() {
        let watched = |selection, deliveries: &[(&[Event], i64)]| {
            let mut judge = judge();
            let watch = judge.watch(selection, 2);
            for &(events, revision) in deliveries {
                judge.deliver(watch, events.to_vec(), revision);
            }
            judge.unwatch(watch);
            violations(judge)
        };
        let all = Selection {
            keys: key_0(),
            puts: true,
            deletes: true,
            replaced: true,
        };
        let events = [put(1, 2), put(2, 3), put(3, 4), delete(5)];
        assert_eq!(watched(all, &[(&events, 5)]), 0);
        assert_eq!(
            watched(all, &[(&events[..2], 3), (&[], 3), (&events[2..], 5)]),
            0
        );
        assert_eq!(
            watched(all, &[(&events[..2], 3), (&[], 5)]),
            1,
            "progress too early"
        );
        assert_eq!(watched(all, &[(&events[1..], 5)]), 1, "a lost event");
        assert_eq!(
            watched(all, &[(&events[..2], 3), (&events[1..], 5)]),
            1,
            "a repeated one"
        );
        assert_eq!(
            watched(all, &[(&[put(1, 2), put(3, 4), put(2, 3)], 4)]),
            1,
            "another order"
        );
        let unreplaced = Event {
            replaced: None,
            ..put(2, 3)
        };
        assert_eq!(
            watched(all, &[(&[put(1, 2), unreplaced], 3)]),
            1,
            "no previous value"
        );
        let puts = Selection {
            deletes: false,
            ..all
        };
        assert_eq!(watched(puts, &[(&events[..3], 5)]), 0);
        assert_eq!(watched(puts, &[(&events, 5)]), 1, "a filtered event");
    }
}
