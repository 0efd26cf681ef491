//! The responses that wait because their watches are held.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use revstore_grpc::intercept::WatchResponseInfo;

/// A response that waits.
#[derive(Clone, Debug)]
pub(super) struct Response {
    /// The message with its prefix.
    pub(super) bytes: Bytes,
    pub(super) info: WatchResponseInfo,
}

/// The responses of one stream that wait, in the order of the services.
///
/// Those of a watch wait while it is held. A progress notification for all watches of the stream (id -1) waits for all
/// that came before it.
#[derive(Debug, Default)]
pub(super) struct Held {
    queue: VecDeque<Response>,
    /// The memory of the responses of each watch that has some.
    bytes: HashMap<i64, usize>,
}

impl Held {
    /// Returns whether responses of a watch wait.
    pub(super) fn contains(&self, watch_id: i64) -> bool {
        self.bytes.contains_key(&watch_id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the memory of the watch with the most.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes.values().copied().max().unwrap_or(0)
    }

    /// Adds a response. Of several progress notifications for the stream in a row, the last one stays.
    pub(super) fn push(&mut self, response: Response) {
        if response.info.watch_id < 0 {
            if let Some(last) = self.queue.back_mut()
                && last.info.watch_id < 0
            {
                *last = response;
                return;
            }
        } else {
            let bytes = self.bytes.entry(response.info.watch_id).or_default();
            *bytes += response.bytes.len();
        }
        self.queue.push_back(response);
    }

    /// Removes the responses of a watch that has ended.
    pub(super) fn remove(&mut self, watch_id: i64) {
        self.bytes.remove(&watch_id);
        self.queue.retain(|it| it.info.watch_id != watch_id);
    }

    /// Removes the progress notifications for all watches of the stream, which are wrong for a watch that is created
    /// later. Returns whether there were any.
    pub(super) fn remove_progress(&mut self) -> bool {
        let before = self.queue.len();
        self.queue.retain(|it| it.info.watch_id >= 0);
        self.queue.len() < before
    }

    /// Removes the responses that do not wait any longer, in their order. A watch is asked for once: it may be held or
    /// released meanwhile, and a later response must not pass an earlier one.
    pub(super) fn release(&mut self, is_held: impl Fn(i64) -> bool) -> VecDeque<Response> {
        let mut released = VecDeque::new();
        self.bytes.retain(|id, _| is_held(*id));
        let mut kept = VecDeque::new();
        for response in std::mem::take(&mut self.queue) {
            let watch_id = response.info.watch_id;
            let waits = if watch_id < 0 {
                !kept.is_empty()
            } else {
                self.contains(watch_id)
            };
            let list = if waits { &mut kept } else { &mut released };
            list.push_back(response);
        }
        self.queue = kept;
        released
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn response(watch_id: i64, revision: i64) -> Response {
        Response {
            bytes: Bytes::from_static(b"12345"),
            info: WatchResponseInfo {
                watch_id,
                revision,
                ..WatchResponseInfo::default()
            },
        }
    }

    fn released(held: &mut Held, still_held: &[i64]) -> Vec<(i64, i64)> {
        let released = held.release(|id| still_held.contains(&id));
        let infos = released.iter().map(|it| it.info);
        infos.map(|it| (it.watch_id, it.revision)).collect()
    }

    #[test]
    fn progress_of_a_stream_waits_for_all_events_before_it() {
        let mut held = Held::default();
        for (id, revision) in [(1, 5), (2, 6), (-1, 6), (1, 7), (-1, 7), (-1, 8), (2, 9)] {
            held.push(response(id, revision));
        }
        assert_eq!(held.bytes_max(), 10);
        assert_eq!(released(&mut held, &[1, 2]), []);
        // The events of watch 1 precede the first notification, those of watch 2 do not.
        assert_eq!(released(&mut held, &[2]), [(1, 5), (1, 7)]);
        assert!(!held.contains(1) && held.contains(2));
        assert_eq!(released(&mut held, &[]), [(2, 6), (-1, 6), (-1, 8), (2, 9)]);
        assert!(held.is_empty());
        assert_eq!(held.bytes_max(), 0);
    }

    #[test]
    fn responses_keep_their_order_when_a_watch_is_released_meanwhile() {
        let mut held = Held::default();
        for revision in [5, 6, 7] {
            held.push(response(1, revision));
        }
        let is_held = Cell::new(true);
        // Held at the first look, released at the second one.
        assert!(held.release(|_| is_held.replace(false)).is_empty());
        assert!(held.contains(1));
        assert_eq!(released(&mut held, &[]), [(1, 5), (1, 6), (1, 7)]);
    }

    #[test]
    fn progress_of_a_stream_can_be_removed() {
        let mut held = Held::default();
        for (id, revision) in [(1, 5), (-1, 6)] {
            held.push(response(id, revision));
        }
        assert!(held.remove_progress());
        assert!(!held.remove_progress());
        assert_eq!(released(&mut held, &[]), [(1, 5)]);
    }

    #[test]
    fn a_watch_that_ended_leaves_nothing_behind() {
        let mut held = Held::default();
        for (id, revision) in [(1, 5), (-1, 6), (2, 7)] {
            held.push(response(id, revision));
        }
        held.remove(1);
        assert_eq!(released(&mut held, &[2]), [(-1, 6)]);
        held.remove(2);
        assert!(held.is_empty());
    }
}
