//! Linearizability of a few operations, by search: the cross-check of `order.rs`.
//!
//! After Wing and Gong: some operation that began before any other was over must come first; each is
//! tried, and if the model answers as the engine did, the rest is tried behind it. The search takes the
//! engine's word for nothing: it looks at values only, not at revisions.

use std::collections::HashSet;

use crate::history::{Operation, Response, Seen};
use crate::model::Model;

/// Whether some order that respects real time gives every answer. For histories without compaction.
pub(crate) fn is_linearizable(history: &[Operation]) -> bool {
    assert!(history.len() <= 64, "the search is for short histories");
    let mut search = Search {
        history,
        failed: HashSet::new(),
    };
    search.go(0, &Model::new())
}

struct Search<'a> {
    history: &'a [Operation],
    /// What was tried in vain: the operations done, as bits, and the keys that they left behind.
    failed: HashSet<(u64, Vec<Seen>)>,
}

impl Search<'_> {
    fn go(&mut self, done: u64, model: &Model) -> bool {
        let left = (0..self.history.len()).filter(|index| done & (1 << index) == 0);
        let Some(first_end) = left.clone().map(|index| self.history[index].returned).min() else {
            return true;
        };
        let keys = model.now().values().map(without_revisions).collect();
        if !self.failed.insert((done, keys)) {
            return false;
        }
        for index in left.filter(|index| self.history[*index].called < first_end) {
            let mut next = model.clone();
            let expected = next.apply(&self.history[index].request);
            let told = &self.history[index].response;
            if values(&expected) == values(told) && self.go(done | (1 << index), &next) {
                return true;
            }
        }
        false
    }
}

fn without_revisions(kv: &Seen) -> Seen {
    Seen {
        create: 0,
        modified: 0,
        ..kv.clone()
    }
}

/// The answer with all revisions set to nothing.
fn values(response: &Response) -> Response {
    let all = |kvs: &[Seen]| kvs.iter().map(without_revisions).collect();
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
        Response::Got(found) => Response::Got(found.as_ref().map(without_revisions)),
        Response::Txn {
            succeeded, results, ..
        } => Response::Txn {
            revision: 0,
            succeeded: *succeeded,
            results: results.iter().map(values).collect(),
        },
        Response::Revoked { .. } => Response::Revoked { revision: 0 },
        Response::Revision(_) => Response::Revision(0),
        Response::Compacted | Response::Refused(_) | Response::CompactionRefused(_) => {
            response.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use revstore_engine::Put;

    use super::is_linearizable;
    use crate::history::{Operation, Request, Response, Seen};

    fn operation(times: (u64, u64), request: Request, response: Response) -> Operation {
        let (called, returned) = times;
        Operation {
            called,
            returned,
            request,
            response,
        }
    }

    fn put(times: (u64, u64), value: &'static str, previous: Option<Seen>) -> Operation {
        let revision = 0;
        let request = Request::Put(Put::new("k", value));
        operation(times, request, Response::Put { revision, previous })
    }

    fn get(times: (u64, u64), found: Option<Seen>) -> Operation {
        operation(times, Request::Get("k".into()), Response::Got(found))
    }

    fn seen(value: &'static str, version: i64) -> Seen {
        Seen {
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
    fn a_value_that_comes_back_is_rejected() {
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
