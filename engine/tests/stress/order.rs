//! Linearizability of operations, by the revisions in their responses.
//!
//! A general checker searches for an order of the operations in which one thread would get the same
//! responses. Here the responses contain that order, so a history of any length is checked in one
//! pass:
//!
//! 1. Each operation that changed something has a separate revision, and there is no gap (I1).
//! 2. In that order, the model gives all responses, also to reads at old revisions (I2, I3).
//! 3. The order respects real time: an operation that began after another one ended does not come
//!    before it.
//!
//! A read of a snapshot must match the model at the revision of the snapshot.
//!
//! Another response without a revision (of a get, and most errors) must match some revision between the
//! last one that was complete at the call and the last one that had begun at the return.

use std::collections::BTreeMap;

use revstore_engine::{CompactError, PutError, ReadError};

use crate::history::{Failure, KeyVersion, Operation, Request, Response};
use crate::leases;
use crate::model::Model;

/// Replays a history in the order of its revisions and checks that order against real time. Returns
/// the model in its last state, which contains the events that watches have to deliver.
pub(crate) fn check(history: &[Operation]) -> Result<Model, String> {
    let replay = replay(history)?;
    check_real_time(history, &replay)?;
    check_compactions(history)?;
    check_snapshots(history, &replay.model)?;
    leases::check(history)?;
    Ok(replay.model)
}

struct Replay {
    model: Model,
    /// The operation that wrote each revision.
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
            return Err(format!("I1: no operation wrote revision {missing}"));
        }
        // The operation that wrote the revision comes first, the others follow in any order. The
        // response of a revocation does not contain whether it changed something: it did if no
        // other operation did and its lease had keys.
        let precedence = |index: &usize| {
            let Operation {
                request, response, ..
            } = &history[*index];
            match (response.changed(), request) {
                (Some(true), _) => 0,
                (None, Request::Revoke(lease)) if !model.attached(*lease).is_empty() => 1,
                _ => 2,
            }
        };
        // If two revocations of an id report one revision, the one that was called first wrote it:
        // the other one may have found it written.
        group.sort_by_key(|index| (precedence(index), history[*index].called));
        for index in group {
            let operation = &history[index];
            let before = model.revision();
            let is_error = matches!(
                operation.response,
                Response::Failed(_) | Response::CompactionFailed(_)
            );
            if !is_error {
                let expected = model.apply(&operation.request);
                if expected != operation.response {
                    return Err(format!("the model returns {expected:?} to {operation:?}"));
                }
            }
            if model.revision() != revision {
                return Err(format!(
                    "I1: no operation wrote revision {revision}: {operation:?}"
                ));
            }
            if model.revision() > before {
                writers.insert(revision, index);
            }
        }
    }
    Ok(Replay { model, writers })
}

/// Checks the order of the revisions against the order of calls and returns.
fn check_real_time(history: &[Operation], replay: &Replay) -> Result<(), String> {
    let mut times: Vec<(u64, usize)> = Vec::new();
    for (index, operation) in history.iter().enumerate() {
        if operation.called >= operation.returned {
            return Err(format!("returned before it was called: {operation:?}"));
        }
        times.extend([(operation.called, index), (operation.returned, index)]);
    }
    times.sort_unstable();
    // The revision of each operation that was called, and the highest one of those that have
    // returned.
    let mut revisions: Vec<Option<i64>> = vec![None; history.len()];
    let mut completed = 1;
    for (time, index) in times {
        let operation = &history[index];
        if time == operation.returned {
            completed = revisions[index].map_or(completed, |revision| completed.max(revision));
            continue;
        }
        revisions[index] = match operation.response.revision() {
            Some(revision) => {
                let writes = replay.writers.get(&revision) == Some(&index);
                // A write is above all completed revisions; a read may be at the highest one.
                if revision < completed + i64::from(writes) {
                    return Err(format!(
                        "an operation at revision {completed} ended before this began: {operation:?}"
                    ));
                }
                Some(revision)
            }
            None => matching_revision(history, replay, operation, completed)?,
        };
    }
    Ok(())
}

/// Returns the lowest revision that matches a response without a revision, or `None` if the
/// response does not depend on the revision. The lowest one restricts later operations the least.
fn matching_revision(
    history: &[Operation],
    replay: &Replay,
    operation: &Operation,
    completed: i64,
) -> Result<Option<i64>, String> {
    let expected: Option<&KeyVersion> = match &operation.response {
        Response::Get(found) => found.as_ref(),
        Response::Failed(Failure::Put(PutError::KeyNotFound)) => None,
        _ => return Ok(None),
    };
    let key = match &operation.request {
        Request::Get(key) => key,
        Request::Put(put) => &put.key,
        other => return Err(format!("unexpected error of {other:?}")),
    };
    let begun = |revision: &i64| {
        let writer = replay.writers.get(revision);
        *revision == completed
            || writer.is_some_and(|writer| history[*writer].called < operation.returned)
    };
    (completed..=replay.model.revision())
        .take_while(begun)
        .find(|revision| {
            let keys = replay.model.at(*revision);
            keys.is_some_and(|keys| keys.get(key) == expected)
        })
        .map(Some)
        .ok_or_else(|| format!("no revision from {completed} on matches {operation:?}"))
}

/// Checks I7: an error names a compaction that had begun, and a read below a completed compaction
/// fails.
fn check_compactions(history: &[Operation]) -> Result<(), String> {
    let compactions = || {
        history.iter().filter_map(|operation| {
            let done = operation.response == Response::Compacted;
            match operation.request {
                Request::Compact(revision) if done => Some((revision, operation)),
                _ => None,
            }
        })
    };
    for operation in history {
        let mut completed =
            compactions().filter(|(_, compaction)| compaction.returned < operation.called);
        let failed = match &operation.response {
            Response::Failed(Failure::Read(ReadError::Compacted {
                requested,
                compacted,
            })) => Some((requested.0 < compacted.0, compacted.0)),
            Response::CompactionFailed(CompactError::Compacted {
                requested,
                compacted,
            }) => Some((requested.0 <= compacted.0, compacted.0)),
            _ => None,
        };
        let matches = match (failed, &operation.request) {
            (Some((below, compacted)), _) => {
                let begun = compactions().any(|(revision, compaction)| {
                    revision == compacted && compaction.called < operation.returned
                });
                // The compacted revision never decreases.
                below && begun && !completed.any(|(revision, _)| revision > compacted)
            }
            (None, Request::Range(range)) => {
                let succeeded = matches!(operation.response, Response::Range { .. });
                let at = range.at.map_or(i64::MAX, |at| at.0);
                !succeeded || !completed.any(|(revision, _)| revision > at)
            }
            (None, Request::Compact(requested)) if operation.response == Response::Compacted => {
                !completed.any(|(revision, _)| revision >= *requested)
            }
            _ => true,
        };
        if !matches {
            return Err(format!("I7: does not match the compactions: {operation:?}"));
        }
    }
    Ok(())
}

/// Checks that all reads of a snapshot return the keys at its revision, whatever was compacted.
fn check_snapshots(history: &[Operation], model: &Model) -> Result<(), String> {
    let mut model = model.clone();
    let is_read =
        |operation: &&Operation| matches!(operation.request, Request::ReadSnapshot { .. });
    for operation in history.iter().filter(is_read) {
        let expected = model.apply(&operation.request);
        if expected != operation.response {
            return Err(format!(
                "I7: the model returns {expected:?} to {operation:?}"
            ));
        }
    }
    Ok(())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use revstore_engine::{Engine, KeyRange, Put, Range, Revision};

    use super::check;
    use crate::history::{Operation, Recorder, Request, Response};

    /// Returns a valid history: two puts, a get, a range and a compaction, one after the other.
    fn valid() -> Vec<Operation> {
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

    fn check_rejected(expected: &str, break_history: impl FnOnce(&mut Vec<Operation>)) {
        let mut history = valid();
        break_history(&mut history);
        let violation = check(&history).expect_err("accepted an invalid history");
        assert!(violation.contains(expected), "{violation}");
    }

    /// Exchanges the times of two operations.
    fn swap_times(history: &mut [Operation], a: usize, b: usize) {
        let times = |operation: &Operation| (operation.called, operation.returned);
        let (of_a, of_b) = (times(&history[a]), times(&history[b]));
        (history[a].called, history[a].returned) = of_b;
        (history[b].called, history[b].returned) = of_a;
    }

    #[test]
    fn a_valid_history_is_accepted() {
        assert_eq!(check(&valid()).expect("a valid history").revision(), 3);
    }

    #[test]
    fn writes_against_real_time_are_rejected() {
        check_rejected("ended before", |history| swap_times(history, 0, 1));
    }

    #[test]
    fn a_stale_get_is_rejected() {
        check_rejected("no revision from 3 on matches", |history| {
            let Response::Put { previous, .. } = &history[1].response else {
                panic!(
                    "expected the response of a put, got {:?}",
                    history[1].response
                )
            };
            history[2].response = Response::Get(previous.clone());
        });
    }

    #[test]
    fn a_get_of_a_later_write_is_rejected() {
        check_rejected("no revision from 2 on matches", |history| {
            swap_times(history, 1, 2);
        });
    }

    #[test]
    fn a_stale_range_is_rejected() {
        check_rejected("ended before", |history| {
            history[3].request = Request::CurrentRevision;
            history[3].response = Response::Revision(2);
        });
    }

    #[test]
    fn a_revision_written_twice_is_rejected() {
        check_rejected("the model returns", |history| {
            let again = history[1].clone();
            history.push(again);
        });
    }

    #[test]
    fn a_missing_revision_is_rejected() {
        check_rejected("no operation wrote revision 2", |history| {
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
    fn a_read_of_a_snapshot_without_a_key_is_rejected() {
        check_rejected("I7: the model returns Snapshot", |history| {
            let mut read = history[5].clone();
            read.request = Request::ReadSnapshot {
                at: 2,
                keys: KeyRange::all(),
            };
            read.response = Response::Snapshot(Vec::new());
            history.push(read);
        });
    }

    #[test]
    fn a_read_below_a_finished_compaction_is_rejected() {
        check_rejected("does not match the compactions", |history| {
            history[4].request = Request::Compact(3);
        });
    }
}
