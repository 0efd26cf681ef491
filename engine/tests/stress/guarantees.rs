//! The guarantees of watches, one judge each (I5, I6).
//!
//! | guarantee | promises |
//! |---|---|
//! | ordered | events come in the order of their revisions, and of their places inside them |
//! | unique | no event comes twice |
//! | atomic | the events of a revision come in one response, all of them |
//! | reliable | between two events that came, none is missing, and all that came happened |
//! | resumable | a watch begins with the first event at or behind its start revision |
//! | bookmarkable | progress at a revision comes behind all events up to it, and before all others |

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Change, Model};
use crate::watched::{Told, ToldEvent, Watched};

/// What really happened: the model after a replay, and the highest mark of a compaction.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) model: Model,
    pub(crate) compacted: i64,
}

type Verdict = Result<(), String>;
type Judge = fn(&Watched, &Truth) -> Verdict;

/// Every guarantee, by name.
const GUARANTEES: [(&str, Judge); 6] = [
    ("ordered", ordered),
    ("unique", unique),
    ("atomic", atomic),
    ("reliable", reliable),
    ("resumable", resumable),
    ("bookmarkable", bookmarkable),
];

/// Judges a watch by every guarantee.
pub(crate) fn check(watched: &Watched, truth: &Truth) -> Verdict {
    for (name, judge) in GUARANTEES {
        judge(watched, truth).map_err(|fault| {
            let Watched { range, from, .. } = watched;
            format!("not {name}: {fault} (a watch of {range:?} from {from} on)")
        })?;
    }
    Ok(())
}

fn wanted<'a>(watched: &'a Watched, truth: &'a Truth) -> impl Iterator<Item = &'a Change> {
    let changes = truth.model.changes.iter();
    changes.filter(|change| watched.wants(change))
}

fn ordered(watched: &Watched, _: &Truth) -> Verdict {
    let mut last = (0, 0);
    for event in watched.events() {
        if event.position() < last {
            return Err(format!("{:?} after {last:?}", event.position()));
        }
        last = event.position();
    }
    for told in &watched.told {
        if let Told::Events { revision, events } = told {
            // WA-32: the header is never behind the events under it.
            let behind = events.iter().find(|event| event.change.main > *revision);
            if let Some(event) = behind {
                return Err(format!("{:?} under {revision}", event.position()));
            }
        }
    }
    Ok(())
}

fn unique(watched: &Watched, _: &Truth) -> Verdict {
    let mut seen = BTreeSet::new();
    match watched
        .events()
        .find(|event| !seen.insert(event.position()))
    {
        Some(again) => Err(format!("{:?} came twice", again.position())),
        None => Ok(()),
    }
}

fn atomic(watched: &Watched, truth: &Truth) -> Verdict {
    let mut whole: BTreeMap<i64, BTreeSet<u32>> = BTreeMap::new();
    for change in wanted(watched, truth) {
        whole.entry(change.main).or_default().insert(change.sub);
    }
    for told in &watched.told {
        let Told::Events { events, .. } = told else {
            continue;
        };
        let mut here: BTreeMap<i64, BTreeSet<u32>> = BTreeMap::new();
        for event in events {
            let (main, sub) = event.position();
            here.entry(main).or_default().insert(sub);
        }
        for (main, subs) in here {
            if whole.get(&main).is_some_and(|all| !all.is_subset(&subs)) {
                return Err(format!("of revision {main} only {subs:?} came together"));
            }
        }
    }
    Ok(())
}

fn reliable(watched: &Watched, truth: &Truth) -> Verdict {
    let mut told = BTreeSet::new();
    let changes = &truth.model.changes;
    for event in watched.events() {
        let found = changes.binary_search_by_key(&event.position(), Change::position);
        if found.is_ok_and(|found| changes[found] == event.change) {
            told.insert(event.position());
        } else {
            return Err(format!("this never happened: {event:?}"));
        }
        if !truthful_previous(watched, truth, event) {
            return Err(format!("WA-33: that was not before: {event:?}"));
        }
    }
    let first = told.first().map_or(watched.from, |first| first.0);
    let last = match told.last() {
        _ if watched.complete && watched.compacted().is_none() => i64::MAX,
        Some(last) => last.0,
        None => 0,
    };
    let missing = wanted(watched, truth)
        .filter(|change| first <= change.main && change.main <= last)
        .find(|change| !told.contains(&change.position()));
    match missing {
        Some(missing) => Err(format!("{missing:?} is missing")),
        None => Ok(()),
    }
}

fn truthful_previous(watched: &Watched, truth: &Truth, event: &ToldEvent) -> bool {
    let before = event.change.main - 1;
    let previous = truth.model.at(before);
    // A creation has none, also where the same transaction has deleted the key before (TXN-7).
    let now = event.change.now.as_ref();
    let created = now.is_some_and(|seen| seen.create == event.change.main);
    let previous = previous
        .and_then(|keys| keys.get(&event.change.key))
        .filter(|_| !created);
    match &event.previous {
        Some(told) => watched.prev_kv && previous == Some(told),
        None => !watched.prev_kv || previous.is_none() || before < truth.compacted,
    }
}

fn resumable(watched: &Watched, truth: &Truth) -> Verdict {
    let from = watched.from;
    if let Some(early) = watched.events().find(|event| event.change.main < from) {
        return Err(format!("{:?} lies before the start", early.position()));
    }
    let first = watched.events().next();
    let expected = wanted(watched, truth).next();
    if let (Some(first), Some(expected)) = (first, expected)
        && first.change.main != expected.main
    {
        let found = first.position();
        return Err(format!("began with {found:?} instead of {expected:?}"));
    }
    // WA-41: a watch ends only if what it had yet to read lies below the mark.
    let next = watched.last().map_or(from, |last| last + 1);
    match watched.compacted() {
        Some(mark) if mark <= next => Err(format!("ended at {mark}, though it stood at {next}")),
        _ => Ok(()),
    }
}

fn bookmarkable(watched: &Watched, truth: &Truth) -> Verdict {
    let mut due = wanted(watched, truth).peekable();
    let mut progress = 0;
    let mut told = BTreeSet::new();
    for response in &watched.told {
        match response {
            Told::Events { events, .. } => {
                for event in events {
                    if event.change.main <= progress {
                        let position = event.position();
                        return Err(format!("{position:?} after progress at {progress}"));
                    }
                    told.insert(event.position());
                }
            }
            Told::Progress(revision) => {
                if *revision < progress {
                    return Err(format!("progress at {revision} after {progress}"));
                }
                progress = *revision;
                // All that an earlier one covered was looked at then.
                while let Some(change) = due.next_if(|change| change.main <= progress) {
                    if !told.contains(&change.position()) {
                        return Err(format!("progress at {progress} overtook {change:?}"));
                    }
                }
            }
            Told::Compacted(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, KeyRange, Op, Put, Revision, Txn, WatchOptions};

    use super::{
        Judge, Told, Truth, Watched, atomic, bookmarkable, check, ordered, reliable, resumable,
        unique,
    };
    use crate::history::{Recorder, Request};
    use crate::order;
    use crate::watched::{Reader, ToldEvent};

    /// Writes at 2, at 3 (two of them), at 4 (a deletion) and at 5, watched from 3 on, with progress.
    fn good() -> (Watched, Truth) {
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
        assert_eq!(watched.told.len(), 4, "three revisions and progress");
        let model = order::check(&recorder.history()).expect("a good history");
        let compacted = 0;
        (watched, Truth { model, compacted })
    }

    fn check_rejected(judge: Judge, expected: &str, spoil: impl FnOnce(&mut Watched)) {
        let (mut watched, truth) = good();
        judge(&watched, &truth).expect("a good history");
        spoil(&mut watched);
        let fault = judge(&watched, &truth).expect_err("accepted a bad history");
        assert!(fault.contains(expected), "{fault}");
    }

    fn events(told: &mut Told) -> &mut Vec<ToldEvent> {
        match told {
            Told::Events { events, .. } => events,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_good_history_is_accepted() {
        let (watched, truth) = good();
        check(&watched, &truth).expect("a good history");
    }

    #[test]
    fn ordered_rejects_a_later_revision_in_front() {
        check_rejected(ordered, "after", |watched| watched.told.swap(0, 1));
    }

    #[test]
    fn ordered_rejects_changes_of_a_revision_the_wrong_way_round() {
        check_rejected(ordered, "(3, 0) after (3, 1)", |watched| {
            events(&mut watched.told[0]).reverse();
        });
    }

    #[test]
    fn ordered_rejects_events_above_their_header() {
        check_rejected(ordered, "under", |watched| {
            if let Told::Events { revision, .. } = &mut watched.told[1] {
                *revision = 3;
            }
        });
    }

    #[test]
    fn unique_rejects_an_event_told_twice() {
        check_rejected(unique, "came twice", |watched| {
            let again = watched.told[1].clone();
            watched.told.push(again);
        });
    }

    #[test]
    fn atomic_rejects_a_revision_in_two_responses() {
        check_rejected(atomic, "of revision 3", |watched| {
            let events = vec![events(&mut watched.told[0]).pop().expect("two events")];
            let revision = 3;
            watched.told.insert(1, Told::Events { revision, events });
        });
    }

    #[test]
    fn reliable_rejects_a_gap() {
        check_rejected(reliable, "is missing", |watched| {
            watched.told.remove(1);
        });
    }

    #[test]
    fn reliable_rejects_a_lost_end() {
        check_rejected(reliable, "is missing", |watched| {
            watched.told.truncate(2);
        });
    }

    #[test]
    fn reliable_rejects_what_never_happened() {
        check_rejected(reliable, "never happened", |watched| {
            events(&mut watched.told[2])[0].change.key = "d".into();
        });
    }

    #[test]
    fn reliable_rejects_a_wrong_previous_version() {
        check_rejected(reliable, "WA-33", |watched| {
            events(&mut watched.told[1])[0].previous = None;
        });
    }

    #[test]
    fn resumable_rejects_a_late_beginning() {
        check_rejected(resumable, "began with", |watched| {
            watched.told.remove(0);
        });
    }

    #[test]
    fn resumable_rejects_events_before_the_start() {
        check_rejected(resumable, "before the start", |watched| watched.from = 4);
    }

    #[test]
    fn resumable_rejects_an_end_that_was_not_due() {
        check_rejected(resumable, "though it stood at", |watched| {
            watched.told.push(Told::Compacted(5));
        });
    }

    #[test]
    fn bookmarkable_rejects_progress_in_front_of_what_it_covers() {
        check_rejected(bookmarkable, "overtook", |watched| watched.told.swap(2, 3));
    }

    #[test]
    fn bookmarkable_rejects_events_behind_the_progress_that_covers_them() {
        check_rejected(bookmarkable, "after progress", |watched| {
            let again = watched.told[2].clone();
            watched.told.push(again);
        });
    }

    #[test]
    fn bookmarkable_rejects_progress_that_goes_back() {
        check_rejected(bookmarkable, "progress at 4 after 5", |watched| {
            watched.told.push(Told::Progress(4));
        });
    }
}
