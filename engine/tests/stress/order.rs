//! Whether the revisions in the answers are a linearization of what was asked.
//!
//! A general checker has to search for an order in which one thread alone would have been told the
//! same. Here the answers name it, so that histories of any length can be judged in one pass:
//!
//! 1. Everything that changed something has a revision of its own, without a gap (I1).
//! 2. Run in that order, the model gives every answer, reads at old revisions included (I2, I3).
//! 3. The order respects real time: what began after something was over does not come before it.
//!
//! Answers without a revision (the get, and most refusals) must fit somewhere between what was over
//! when they were called and what had begun when they returned.

use std::collections::BTreeMap;

use revstore_engine::{CompactError, PutError, ReadError, TxnError};

use crate::history::{Operation, Request, Response, Seen};
use crate::model::Model;

/// Replays a history in the order of its revisions and checks that against real time. Returns the
/// model as it was left, which knows what watches had to see.
pub(crate) fn check(history: &[Operation]) -> Result<Model, String> {
    let replay = replay(history)?;
    check_real_time(history, &replay)?;
    check_compactions(history)?;
    check_leases(history)?;
    Ok(replay.model)
}

struct Replay {
    model: Model,
    /// Which operation made each revision.
    writers: BTreeMap<i64, usize>,
}

fn replay(history: &[Operation]) -> Result<Replay, String> {
    let mut by_revision: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, operation) in history.iter().enumerate() {
        if let Some(revision) = operation.response.revision() {
            by_revision.entry(revision).or_default().push(index);
        }
    }
    let mut model = Model::new();
    let mut writers = BTreeMap::new();
    for (revision, mut group) in by_revision {
        if model.revision() + 1 < revision {
            let missing = model.revision() + 1;
            return Err(format!("I1: nobody made revision {missing}"));
        }
        // What made the revision comes first; those that found it there follow in any order. A
        // revocation does not say whether it changed something: if nobody else did, it is the one
        // whose lease had keys.
        let place = |index: &usize| {
            let Operation {
                request, response, ..
            } = &history[*index];
            match (response.changed(), request) {
                (Some(true), _) => 0,
                (None, Request::Revoke(lease)) if !model.attached(*lease).is_empty() => 1,
                _ => 2,
            }
        };
        group.sort_by_key(place);
        for index in group {
            let operation = &history[index];
            let before = model.revision();
            let is_refusal = matches!(
                operation.response,
                Response::Refused(_) | Response::CompactionRefused(_)
            );
            if !is_refusal {
                let expected = model.apply(&operation.request);
                if expected != operation.response {
                    return Err(format!("the model answers {expected:?} to {operation:?}"));
                }
            }
            if model.revision() != revision {
                return Err(format!(
                    "I1: nobody made revision {revision}: {operation:?}"
                ));
            }
            if model.revision() > before {
                writers.insert(revision, index);
            }
        }
    }
    Ok(Replay { model, writers })
}

/// Goes through calls and returns as they happened, with what was known to be over at each point.
fn check_real_time(history: &[Operation], replay: &Replay) -> Result<(), String> {
    let mut moments: Vec<(u64, usize)> = Vec::new();
    for (index, operation) in history.iter().enumerate() {
        if operation.called >= operation.returned {
            return Err(format!("returned before it was called: {operation:?}"));
        }
        moments.extend([(operation.called, index), (operation.returned, index)]);
    }
    moments.sort_unstable();
    let mut placed: Vec<Option<i64>> = vec![None; history.len()];
    let mut floor = 1;
    for (moment, index) in moments {
        let operation = &history[index];
        if moment == operation.returned {
            floor = placed[index].map_or(floor, |revision| floor.max(revision));
            continue;
        }
        placed[index] = match operation.response.revision() {
            Some(revision) => {
                let writes = replay.writers.get(&revision) == Some(&index);
                // A write is behind all that was over; anything else may stand beside it.
                if revision < floor + i64::from(writes) {
                    return Err(format!(
                        "something at revision {floor} was over before this began: {operation:?}"
                    ));
                }
                Some(revision)
            }
            None => place(history, replay, operation, floor)?,
        };
    }
    Ok(())
}

/// The lowest revision at which an answer without one could have been given, if it depends on that.
/// The lowest is the best choice, for it binds those who come later the least.
fn place(
    history: &[Operation],
    replay: &Replay,
    operation: &Operation,
    floor: i64,
) -> Result<Option<i64>, String> {
    let expected: Option<&Seen> = match &operation.response {
        Response::Got(found) => found.as_ref(),
        Response::Refused(TxnError::Put(PutError::KeyNotFound)) => None,
        _ => return Ok(None),
    };
    let key = match &operation.request {
        Request::Get(key) => key,
        Request::Put(put) => &put.key,
        other => return Err(format!("no rule for {other:?}")),
    };
    let begun = |revision: &i64| {
        let writer = replay.writers.get(revision);
        *revision == floor
            || writer.is_some_and(|writer| history[*writer].called < operation.returned)
    };
    (floor..=replay.model.revision())
        .take_while(begun)
        .find(|revision| {
            let keys = replay.model.at(*revision);
            keys.is_some_and(|keys| keys.get(key) == expected)
        })
        .map(Some)
        .ok_or_else(|| format!("no revision from {floor} on fits {operation:?}"))
}

/// I7: who was refused names a compaction that had begun, and who asks below one that is over is
/// refused.
fn check_compactions(history: &[Operation]) -> Result<(), String> {
    let compactions = || {
        history.iter().filter_map(|operation| {
            let done = operation.response == Response::Compacted;
            match operation.request {
                Request::Compact(mark) if done => Some((mark, operation)),
                _ => None,
            }
        })
    };
    for operation in history {
        let mut over = compactions().filter(|(_, one)| one.returned < operation.called);
        let refused = match &operation.response {
            Response::Refused(TxnError::Read(ReadError::Compacted {
                requested,
                compacted,
            })) => Some((requested.0 < compacted.0, compacted.0)),
            Response::CompactionRefused(CompactError::Compacted {
                requested,
                compacted,
            }) => Some((requested.0 <= compacted.0, compacted.0)),
            _ => None,
        };
        let fits = match (refused, &operation.request) {
            (Some((below, compacted)), _) => {
                let begun = compactions()
                    .any(|(mark, one)| mark == compacted && one.called < operation.returned);
                // The mark only rises.
                below && begun && !over.any(|(mark, _)| mark > compacted)
            }
            (None, Request::Range(range)) => {
                let answered = matches!(operation.response, Response::Range { .. });
                let at = range.at.map_or(i64::MAX, |at| at.0);
                !answered || !over.any(|(mark, _)| mark > at)
            }
            (None, Request::Compact(requested)) if operation.response == Response::Compacted => {
                !over.any(|(mark, _)| mark >= *requested)
            }
            _ => true,
        };
        if !fits {
            return Err(format!("I7: does not fit the compactions: {operation:?}"));
        }
    }
    Ok(())
}

/// PUT-6: who is told that a lease is gone was told so after its end began.
fn check_leases(history: &[Operation]) -> Result<(), String> {
    for operation in history {
        if let Response::Refused(TxnError::Put(PutError::LeaseNotFound { lease })) =
            operation.response
        {
            let begun = history.iter().any(|one| {
                matches!(one.request, Request::Revoke(of) if of == lease)
                    && one.called < operation.returned
            });
            if !begun {
                return Err(format!("the lease still lived: {operation:?}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use revstore_engine::{Engine, KeyRange, Put, Range, Revision};

    use super::check;
    use crate::history::{Operation, Recorder, Request, Response};

    /// A put, a get and a range one after the other, and a compaction; a good history.
    fn good() -> Vec<Operation> {
        let recorder = Recorder::new(Engine::builder().build());
        recorder.run(Request::Put(Put::new("k", "1")));
        recorder.run(Request::Put(Put::new("k", "2")));
        recorder.run(Request::Get("k".into()));
        recorder.run(Request::Range(Range::of(KeyRange::all())));
        recorder.run(Request::Compact(2));
        let old = Range::of(KeyRange::all()).at(Revision(2));
        recorder.run(Request::Range(old));
        recorder.history()
    }

    fn check_rejected(expected: &str, spoil: impl FnOnce(&mut Vec<Operation>)) {
        let mut history = good();
        spoil(&mut history);
        let fault = check(&history).expect_err("accepted a bad history");
        assert!(fault.contains(expected), "{fault}");
    }

    /// Lets two operations change their places in real time.
    fn swap_times(history: &mut [Operation], a: usize, b: usize) {
        let times = |one: &Operation| (one.called, one.returned);
        let (of_a, of_b) = (times(&history[a]), times(&history[b]));
        (history[a].called, history[a].returned) = of_b;
        (history[b].called, history[b].returned) = of_a;
    }

    #[test]
    fn a_good_history_is_accepted() {
        assert_eq!(check(&good()).expect("a good history").revision(), 3);
    }

    #[test]
    fn writes_against_real_time_are_rejected() {
        check_rejected("was over before", |history| swap_times(history, 0, 1));
    }

    #[test]
    fn a_stale_get_is_rejected() {
        check_rejected("no revision from 3 on fits", |history| {
            let Response::Put { previous, .. } = &history[1].response else {
                panic!("a put")
            };
            history[2].response = Response::Got(previous.clone());
        });
    }

    #[test]
    fn a_get_of_what_was_not_yet_written_is_rejected() {
        check_rejected("no revision from 2 on fits", |history| {
            swap_times(history, 1, 2);
        });
    }

    #[test]
    fn a_stale_range_is_rejected() {
        check_rejected("was over before", |history| {
            history[3].request = Request::Look;
            history[3].response = Response::Revision(2);
        });
    }

    #[test]
    fn a_revision_made_twice_is_rejected() {
        check_rejected("the model answers", |history| {
            let again = history[1].clone();
            history.push(again);
        });
    }

    #[test]
    fn a_revision_made_by_nobody_is_rejected() {
        check_rejected("nobody made revision 2", |history| {
            drop(history.remove(0));
            history[0].response = Response::Put {
                revision: 3,
                previous: None,
            };
            history[0].request = Request::Put(Put::new("k", "2"));
            history.truncate(1);
        });
    }

    #[test]
    fn a_read_below_a_finished_compaction_is_rejected() {
        check_rejected("does not fit the compactions", |history| {
            history[4].request = Request::Compact(3);
        });
    }
}
