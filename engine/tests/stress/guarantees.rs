//! The guarantees of watches and a validator for each (I5, I6).
//!
//! | guarantee | meaning |
//! |---|---|
//! | ordered | events are delivered in the order of their positions |
//! | unique | no event is delivered twice |
//! | atomic | all events of a revision are delivered in one response |
//! | reliable | no event is missing between two delivered events, and every delivered event is a change of the store |
//! | resumable | the first delivered event is the first one at or above the start revision |
//! | bookmarkable | progress at a revision is delivered after all events up to it and before all others |

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Change, Model};
use crate::watched::{DeliveredEvent, Delivery, Watched};

/// The expected events: the model after a replay, and the compacted revision.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) model: Model,
    pub(crate) compacted: i64,
}

type Validity = Result<(), String>;
type Validator = fn(&Watched, &Expected) -> Validity;

/// All guarantees by name.
const GUARANTEES: [(&str, Validator); 6] = [
    ("ordered", ordered),
    ("unique", unique),
    ("atomic", atomic),
    ("reliable", reliable),
    ("resumable", resumable),
    ("bookmarkable", bookmarkable),
];

/// Validates all guarantees of a watch.
pub(crate) fn check(watched: &Watched, expected: &Expected) -> Validity {
    for (name, validate) in GUARANTEES {
        validate(watched, expected).map_err(|violation| {
            let Watched { range, from, .. } = watched;
            format!("not {name}: {violation} (a watch of {range:?} from {from} on)")
        })?;
    }
    Ok(())
}

fn matching_changes<'a>(
    watched: &'a Watched,
    expected: &'a Expected,
) -> impl Iterator<Item = &'a Change> {
    let changes = expected.model.changes.iter();
    changes.filter(|change| watched.matches(change))
}

fn ordered(watched: &Watched, _: &Expected) -> Validity {
    let mut last = (0, 0);
    for event in watched.events() {
        if event.position() < last {
            return Err(format!("{:?} after {last:?}", event.position()));
        }
        last = event.position();
    }
    for delivery in &watched.deliveries {
        if let Delivery::Events { revision, events } = delivery {
            // WA-32: the revision of the header is not below those of the events.
            let above = events
                .iter()
                .find(|event| event.change.revision > *revision);
            if let Some(event) = above {
                return Err(format!(
                    "{:?} in a response at {revision}",
                    event.position()
                ));
            }
        }
    }
    Ok(())
}

fn unique(watched: &Watched, _: &Expected) -> Validity {
    let mut seen = BTreeSet::new();
    match watched
        .events()
        .find(|event| !seen.insert(event.position()))
    {
        Some(event) => Err(format!("{:?} was delivered twice", event.position())),
        None => Ok(()),
    }
}

fn atomic(watched: &Watched, expected: &Expected) -> Validity {
    let mut all_subs: BTreeMap<i64, BTreeSet<u32>> = BTreeMap::new();
    for change in matching_changes(watched, expected) {
        all_subs
            .entry(change.revision)
            .or_default()
            .insert(change.sub);
    }
    for delivery in &watched.deliveries {
        let Delivery::Events { events, .. } = delivery else {
            continue;
        };
        let mut delivered: BTreeMap<i64, BTreeSet<u32>> = BTreeMap::new();
        for event in events {
            let (revision, sub) = event.position();
            delivered.entry(revision).or_default().insert(sub);
        }
        for (revision, subs) in delivered {
            let all = all_subs.get(&revision);
            if all.is_some_and(|all| !all.is_subset(&subs)) {
                return Err(format!(
                    "of revision {revision} only {subs:?} are in one response"
                ));
            }
        }
    }
    Ok(())
}

fn reliable(watched: &Watched, expected: &Expected) -> Validity {
    let mut delivered = BTreeSet::new();
    let changes = &expected.model.changes;
    for event in watched.events() {
        let found = changes.binary_search_by_key(&event.position(), Change::position);
        if found.is_ok_and(|found| changes[found] == event.change) {
            delivered.insert(event.position());
        } else {
            return Err(format!("no such change: {event:?}"));
        }
        if !is_previous_correct(watched, expected, event) {
            return Err(format!("WA-33: wrong previous version: {event:?}"));
        }
    }
    let first = delivered.first().map_or(watched.from, |first| first.0);
    let last = match delivered.last() {
        _ if watched.complete && watched.compacted().is_none() => i64::MAX,
        Some(last) => last.0,
        None => 0,
    };
    let missing = matching_changes(watched, expected)
        .filter(|change| first <= change.revision && change.revision <= last)
        .find(|change| !delivered.contains(&change.position()));
    match missing {
        Some(missing) => Err(format!("{missing:?} is missing")),
        None => Ok(()),
    }
}

fn is_previous_correct(watched: &Watched, expected: &Expected, event: &DeliveredEvent) -> bool {
    let before = event.change.revision - 1;
    let previous = expected.model.at(before);
    // A creation has no previous version, also if the same transaction has deleted the key before
    // (TXN-7).
    let version = event.change.version.as_ref();
    let created = version.is_some_and(|version| version.create == event.change.revision);
    let previous = previous
        .and_then(|keys| keys.get(&event.change.key))
        .filter(|_| !created);
    match &event.previous {
        Some(delivered) => watched.prev_kv && previous == Some(delivered),
        None => !watched.prev_kv || previous.is_none() || before < expected.compacted,
    }
}

fn resumable(watched: &Watched, expected: &Expected) -> Validity {
    let from = watched.from;
    if let Some(early) = watched.events().find(|event| event.change.revision < from) {
        return Err(format!("{:?} is before the start", early.position()));
    }
    let first = watched.events().next();
    let due = matching_changes(watched, expected).next();
    if let (Some(first), Some(due)) = (first, due)
        && first.change.revision != due.revision
    {
        let found = first.position();
        return Err(format!("started with {found:?} instead of {due:?}"));
    }
    // WA-41: a watch ends only if its next revision is below the compacted one.
    let next = watched.last_revision().map_or(from, |last| last + 1);
    match watched.compacted() {
        Some(compacted) if compacted <= next => Err(format!(
            "ended at {compacted}, but its next revision is {next}"
        )),
        _ => Ok(()),
    }
}

fn bookmarkable(watched: &Watched, expected: &Expected) -> Validity {
    let mut due = matching_changes(watched, expected).peekable();
    let mut progress = 0;
    let mut delivered = BTreeSet::new();
    for response in &watched.deliveries {
        match response {
            Delivery::Events { events, .. } => {
                for event in events {
                    if event.change.revision <= progress {
                        let position = event.position();
                        return Err(format!("{position:?} after progress at {progress}"));
                    }
                    delivered.insert(event.position());
                }
            }
            Delivery::Progress(revision) => {
                if *revision < progress {
                    return Err(format!("progress at {revision} after {progress}"));
                }
                progress = *revision;
                // Changes up to an earlier progress were checked then.
                while let Some(change) = due.next_if(|change| change.revision <= progress) {
                    if !delivered.contains(&change.position()) {
                        return Err(format!("progress at {progress} precedes {change:?}"));
                    }
                }
            }
            Delivery::Compacted(_) => {}
        }
    }
    Ok(())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use revstore_engine::{Engine, KeyRange, Op, Put, Revision, Txn, WatchOptions};

    use super::{
        Delivery, Expected, Validator, Watched, atomic, bookmarkable, check, ordered, reliable,
        resumable, unique,
    };
    use crate::history::{Recorder, Request};
    use crate::order;
    use crate::watched::{DeliveredEvent, Reader};

    /// Returns a valid history: a write at 2, two at 3, a deletion at 4 and a write at 5, watched
    /// from 3 on, with progress.
    fn valid() -> (Watched, Expected) {
        let recorder = Recorder::new(Engine::builder().build());
        recorder.run(Request::Put(Put::new("a", "0")));
        let mut reader = Reader::new(&recorder);
        let options = WatchOptions::of(KeyRange::all()).with_prev_kv();
        reader.watch(options.from(Revision(3)));
        recorder.run(Request::Txn(Txn::new().and_then([
            Op::Put(Put::new("a", "1")),
            Op::Put(Put::new("b", "1")),
        ])));
        recorder.run(Request::Delete(KeyRange::one("a")));
        recorder.run(Request::Put(Put::new("c", "2")));
        reader.request_progress();
        let watched = reader.drain().remove(0);
        assert_eq!(watched.deliveries.len(), 4, "three revisions and progress");
        let model = order::check(&recorder.history()).expect("a valid history");
        let compacted = 0;
        (watched, Expected { model, compacted })
    }

    fn check_rejected(
        validate: Validator,
        message: &str,
        break_history: impl FnOnce(&mut Watched),
    ) {
        let (mut watched, expected) = valid();
        validate(&watched, &expected).expect("a valid history");
        break_history(&mut watched);
        let violation = validate(&watched, &expected).expect_err("accepted an invalid history");
        assert!(violation.contains(message), "{violation}");
    }

    fn events(delivery: &mut Delivery) -> &mut Vec<DeliveredEvent> {
        match delivery {
            Delivery::Events { events, .. } => events,
            other => panic!("expected events, got {other:?}"),
        }
    }

    #[test]
    fn a_valid_history_is_accepted() {
        let (watched, expected) = valid();
        check(&watched, &expected).expect("a valid history");
    }

    #[test]
    fn ordered_rejects_a_later_revision_before_an_earlier_one() {
        check_rejected(ordered, "after", |watched| watched.deliveries.swap(0, 1));
    }

    #[test]
    fn ordered_rejects_swapped_changes_of_a_revision() {
        check_rejected(ordered, "(3, 0) after (3, 1)", |watched| {
            events(&mut watched.deliveries[0]).reverse();
        });
    }

    #[test]
    fn ordered_rejects_events_above_the_revision_of_their_header() {
        check_rejected(ordered, "in a response at", |watched| {
            if let Delivery::Events { revision, .. } = &mut watched.deliveries[1] {
                *revision = 3;
            }
        });
    }

    #[test]
    fn unique_rejects_an_event_delivered_twice() {
        check_rejected(unique, "delivered twice", |watched| {
            let again = watched.deliveries[1].clone();
            watched.deliveries.push(again);
        });
    }

    #[test]
    fn atomic_rejects_a_revision_in_two_responses() {
        check_rejected(atomic, "of revision 3", |watched| {
            let events = vec![
                events(&mut watched.deliveries[0])
                    .pop()
                    .expect("two events"),
            ];
            let revision = 3;
            watched
                .deliveries
                .insert(1, Delivery::Events { revision, events });
        });
    }

    #[test]
    fn reliable_rejects_a_gap() {
        check_rejected(reliable, "is missing", |watched| {
            watched.deliveries.remove(1);
        });
    }

    #[test]
    fn reliable_rejects_missing_last_events() {
        check_rejected(reliable, "is missing", |watched| {
            watched.deliveries.truncate(2);
        });
    }

    #[test]
    fn reliable_rejects_an_event_without_a_change() {
        check_rejected(reliable, "no such change", |watched| {
            events(&mut watched.deliveries[2])[0].change.key = "d".into();
        });
    }

    #[test]
    fn reliable_rejects_a_wrong_previous_version() {
        check_rejected(reliable, "WA-33", |watched| {
            events(&mut watched.deliveries[1])[0].previous = None;
        });
    }

    #[test]
    fn resumable_rejects_a_late_start() {
        check_rejected(resumable, "started with", |watched| {
            watched.deliveries.remove(0);
        });
    }

    #[test]
    fn resumable_rejects_events_before_the_start() {
        check_rejected(resumable, "before the start", |watched| watched.from = 4);
    }

    #[test]
    fn resumable_rejects_an_end_without_lost_events() {
        check_rejected(resumable, "but its next revision is", |watched| {
            watched.deliveries.push(Delivery::Compacted(5));
        });
    }

    #[test]
    fn bookmarkable_rejects_progress_before_events_that_it_covers() {
        check_rejected(bookmarkable, "precedes", |watched| {
            watched.deliveries.swap(2, 3);
        });
    }

    #[test]
    fn bookmarkable_rejects_events_after_progress_that_covers_them() {
        check_rejected(bookmarkable, "after progress", |watched| {
            let again = watched.deliveries[2].clone();
            watched.deliveries.push(again);
        });
    }

    #[test]
    fn bookmarkable_rejects_decreasing_progress() {
        check_rejected(bookmarkable, "progress at 4 after 5", |watched| {
            watched.deliveries.push(Delivery::Progress(4));
        });
    }
}
