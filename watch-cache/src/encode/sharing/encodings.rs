//! The encodings of one event of the window.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::encode::sharing::EncodingKey;

/// The maximum number of encodings of an event that are kept: 5 forms with their 3 types. Watchers that
/// need further ones encode them for themselves.
const ENCODINGS_MAX: usize = 15;

/// The encodings of an event, one for each form and type that a watcher has needed, shared by all
/// watchers (WC-142). Corresponds to Kubernetes' `cachingObject`.
#[derive(Debug, Default)]
pub(crate) struct Encodings {
    first: OnceLock<Box<Encoding>>,
    /// The memory of the encodings in bytes. The bit [`EVICTED`] is set when the event is evicted.
    bytes: AtomicU64,
}

/// One encoding, and those that were needed later.
#[derive(Debug)]
struct Encoding {
    key: EncodingKey,
    /// The time at which it was first needed.
    at: Duration,
    bytes: OnceLock<Bytes>,
    next: OnceLock<Box<Encoding>>,
}

/// The bit of [`Encodings::bytes`] that marks an evicted event. The memory of an encoding that is added
/// after the eviction is not accounted for.
const EVICTED: u64 = 1 << 63;

impl Encodings {
    /// Returns the encoding for `key`. The first call for each key encodes with `encode`, and adds the
    /// memory to `sum` while the event is in the window. An encoding that is older than `shared_for` is
    /// not used.
    pub(crate) fn get(
        &self,
        key: EncodingKey,
        (now, shared_for): (Duration, Option<Duration>),
        sum: &AtomicI64,
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let mut place = &self.first;
        for _ in 0..ENCODINGS_MAX {
            // Another watcher may add an encoding here at the same time, also one with another key.
            let encoding = place.get_or_init(|| {
                Box::new(Encoding {
                    key,
                    at: now,
                    bytes: OnceLock::new(),
                    next: OnceLock::new(),
                })
            });
            if encoding.key != key {
                place = &encoding.next;
                continue;
            }
            if shared_for.is_some_and(|limit| now.saturating_sub(encoding.at) > limit) {
                break;
            }
            let bytes = encoding.bytes.get_or_init(|| {
                let bytes = encode();
                let added = (bytes.len() + size_of::<Encoding>()) as u64;
                // Relaxed: no other data depends on these sums. The read-modify-write operations on
                // `bytes` have one order, so `evicted` subtracts exactly the sizes that were added
                // here before it set `EVICTED`.
                let previous = self.bytes.fetch_add(added, Ordering::Relaxed);
                if previous & EVICTED == 0 {
                    sum.fetch_add(signed(added), Ordering::Relaxed);
                }
                bytes
            });
            return bytes.clone();
        }
        encode()
    }

    /// Subtracts the memory of the encodings from `sum`, and ends their accounting.
    pub(crate) fn mark_evicted(&self, sum: &AtomicI64) {
        // Relaxed: as in `get`.
        let bytes = self.bytes.fetch_or(EVICTED, Ordering::Relaxed) & !EVICTED;
        sum.fetch_sub(signed(bytes), Ordering::Relaxed);
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::event::EventType;
    use crate::encode::sharing::Part;

    fn key(form: u64) -> EncodingKey {
        EncodingKey {
            form,
            part: Part::Event(EventType::Added, false),
        }
    }

    fn text(form: u64, time: u64) -> Bytes {
        format!("{form} at {time}").into()
    }

    #[test]
    fn wc_142_each_form_is_encoded_once_up_to_the_bound() {
        let (encodings, sum) = (Encodings::default(), AtomicI64::new(0));
        let forms = ENCODINGS_MAX as u64;
        for time in 0..2 {
            for form in 0..forms {
                let now = (Duration::from_secs(time), None);
                let found = encodings.get(key(form), now, &sum, || text(form, time));
                assert_eq!(found, text(form, 0));
            }
        }
        let used = sum.load(Ordering::Relaxed);
        assert!(used > 0);
        for time in 0..2 {
            let now = (Duration::from_secs(time), None);
            let found = encodings.get(key(forms), now, &sum, || text(forms, time));
            assert_eq!(found, text(forms, time), "not kept");
        }
        assert_eq!(sum.load(Ordering::Relaxed), used);
        encodings.mark_evicted(&sum);
        assert_eq!(sum.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn wc_142_an_encoding_that_depends_on_the_time_is_shared_for_a_limited_time() {
        let (encodings, sum) = (Encodings::default(), AtomicI64::new(0));
        let limit = Some(Duration::from_secs(1));
        for (time, expected) in [(0, 0), (1, 0), (2, 2), (3, 3)] {
            let now = (Duration::from_secs(time), limit);
            let found = encodings.get(key(1), now, &sum, || text(1, time));
            assert_eq!(found, text(1, expected));
        }
    }

    #[test]
    fn wc_142_watchers_of_several_forms_on_several_threads_share_one_encoding_each() {
        let (encodings, sum) = (Encodings::default(), AtomicI64::new(0));
        let encoded = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (encodings, sum, encoded) = (&encodings, &sum, &encoded);
                scope.spawn(move || {
                    for number in 0..10 {
                        let form = (number + thread) % 10;
                        let now = (Duration::ZERO, None);
                        let found = encodings.get(key(form), now, sum, || {
                            encoded.fetch_add(1, Ordering::Relaxed);
                            text(form, 0)
                        });
                        assert_eq!(found, text(form, 0));
                    }
                });
            }
        });
        assert_eq!(encoded.load(Ordering::Relaxed), 10);
    }
}
