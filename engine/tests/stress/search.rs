//! Linearizability of a few operations, by search: the cross-check of `order.rs`.
//!
//! The algorithm is that of Wing and Gong. The first operation of an order must have begun before
//! any other operation ended. The search tries each such operation; if the model returns the
//! recorded response, it searches an order of the remaining ones. It compares values only and does
//! not use the revisions that the engine returned.

use std::collections::HashSet;

use crate::history::{KeyVersion, Operation, Response};
use crate::model::Model;

/// Returns whether an order that respects real time yields all responses. For histories without
/// compaction.
pub(crate) fn is_linearizable(history: &[Operation]) -> bool {
    assert!(history.len() <= 64, "the search is for short histories");
    let mut search = Search {
        history,
        visited: HashSet::new(),
    };
    search.run(0, &Model::new())
}

struct Search<'a> {
    history: &'a [Operation],
    /// States from which no order was found: the operations done, as bits, and the live keys after
    /// them.
    visited: HashSet<(u64, Vec<KeyVersion>)>,
}

impl Search<'_> {
    fn run(&mut self, done: u64, model: &Model) -> bool {
        let left = (0..self.history.len()).filter(|index| done & (1 << index) == 0);
        let Some(first_end) = left.clone().map(|index| self.history[index].returned).min() else {
            return true;
        };
        let keys = model.live_keys().values().map(without_revisions).collect();
        if !self.visited.insert((done, keys)) {
            return false;
        }
        for index in left.filter(|index| self.history[*index].called < first_end) {
            let mut next = model.clone();
            let expected = next.apply(&self.history[index].request);
            let response = &self.history[index].response;
            if values(&expected) == values(response) && self.run(done | (1 << index), &next) {
                return true;
            }
        }
        false
    }
}

fn without_revisions(kv: &KeyVersion) -> KeyVersion {
    KeyVersion {
        create: 0,
        modified: 0,
        ..kv.clone()
    }
}

/// Returns the response with all revisions set to 0.
fn values(response: &Response) -> Response {
    let all = |kvs: &[KeyVersion]| kvs.iter().map(without_revisions).collect();
    match response {
        Response::Put { previous, .. } => Response::Put {
            revision: 0,
            previous: previous.as_ref().map(without_revisions),
        },
        Response::Delete { deleted, .. } => Response::Delete {
            revision: 0,
            deleted: all(deleted),
        },
        Response::Range {
            kvs, more, count, ..
        } => Response::Range {
            revision: 0,
            kvs: all(kvs),
            more: *more,
            count: *count,
        },
        Response::Get(found) => Response::Get(found.as_ref().map(without_revisions)),
        Response::Txn {
            succeeded, results, ..
        } => Response::Txn {
            revision: 0,
            succeeded: *succeeded,
            results: results.iter().map(values).collect(),
        },
        Response::Revoked { .. } => Response::Revoked { revision: 0 },
        Response::Expired { .. } => Response::Expired { revision: 0 },
        Response::Revision(_) => Response::Revision(0),
        Response::Granted(_)
        | Response::Renewed(_)
        | Response::LeaseNotFound
        | Response::Advanced(_)
        | Response::Compacted
        | Response::Snapshot(_)
        | Response::Failed(_)
        | Response::CompactionFailed(_) => response.clone(),
    }
}

#[cfg(test)]
mod tests {
    use revstore_engine::Put;

    use super::is_linearizable;
    use crate::history::{KeyVersion, Operation, Request, Response};

    fn operation(times: (u64, u64), request: Request, response: Response) -> Operation {
        let (called, returned) = times;
        Operation {
            called,
            returned,
            time: 0,
            request,
            response,
        }
    }

    fn put(times: (u64, u64), value: &'static str, previous: Option<KeyVersion>) -> Operation {
        let revision = 0;
        let request = Request::Put(Put::new("k", value));
        operation(times, request, Response::Put { revision, previous })
    }

    fn get(times: (u64, u64), found: Option<KeyVersion>) -> Operation {
        operation(times, Request::Get("k".into()), Response::Get(found))
    }

    fn seen(value: &'static str, version: i64) -> KeyVersion {
        KeyVersion {
            key: "k".into(),
            value: value.into(),
            create: 0,
            modified: 0,
            version,
            lease: None,
        }
    }

    #[test]
    fn overlapping_operations_may_happen_in_any_order() {
        let first = put((0, 5), "1", Some(seen("2", 1)));
        let second = put((1, 4), "2", None);
        assert!(is_linearizable(&[
            first,
            second,
            get((6, 7), Some(seen("1", 2)))
        ]));
    }

    #[test]
    fn a_stale_read_is_rejected() {
        let history = [put((0, 1), "1", None), get((2, 3), None)];
        assert!(!is_linearizable(&history));
    }

    #[test]
    fn a_lost_update_is_rejected() {
        let history = [put((0, 3), "1", None), put((1, 2), "2", None)];
        assert!(!is_linearizable(&history));
    }

    #[test]
    fn a_read_of_a_replaced_value_is_rejected() {
        let old = get((4, 5), Some(seen("1", 1)));
        let new = get((2, 3), Some(seen("2", 2)));
        let second = put((1, 8), "2", Some(seen("1", 1)));
        let first = put((0, 1), "1", None);
        assert!(is_linearizable(&[
            first.clone(),
            second.clone(),
            new.clone()
        ]));
        assert!(!is_linearizable(&[first, second, new, old]));
    }
}
