//! What the server itself gives to an object: timestamps, uids and generated names.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::{Clock, SystemClock};

/// The number of random characters after a `generateName`.
const SUFFIX_CHARS: usize = 5;
/// The characters of a generated name: no vowels and no digits that look like letters.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The maximum length of a `generateName` in a name. The rest is cut off.
const PREFIX_BYTES_MAX: usize = 63 - SUFFIX_CHARS;

/// The origin of timestamps, uids and generated names.
#[derive(Debug)]
pub(super) struct Origin {
    clock: Arc<dyn Clock>,
    /// The time of day at the origin of the clock.
    epoch: SystemTime,
    /// Not held while anything else runs.
    rng: Mutex<fastrand::Rng>,
}

impl Default for Origin {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            epoch: SystemTime::now(),
            rng: Mutex::new(fastrand::Rng::new()),
        }
    }
}

impl Origin {
    pub(super) fn set_clock(&mut self, clock: Arc<dyn Clock>, epoch: SystemTime) {
        self.clock = clock;
        self.epoch = epoch;
    }

    pub(super) fn set_seed(&mut self, seed: u64) {
        self.rng = Mutex::new(fastrand::Rng::with_seed(seed));
    }

    /// Returns the time of day, `after` from now, as the text of a timestamp.
    pub(super) fn timestamp(&self, after: Duration) -> String {
        let since_origin = self.clock.now().saturating_add(after);
        let now = self.epoch.checked_add(since_origin).unwrap_or(self.epoch);
        let now = OffsetDateTime::from(now);
        let seconds = now.replace_nanosecond(0).unwrap_or(now);
        seconds.format(&Rfc3339).unwrap_or_default()
    }

    /// Returns a new uid: a random UUID of version 4.
    pub(super) fn new_uid(&self) -> String {
        let random = self.rng.lock().u128(..);
        // The version and the variant have fixed bits.
        let bits = random & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        parts.join("-")
    }

    /// Returns a name that begins with `prefix` and ends with random characters.
    pub(super) fn new_name(&self, prefix: &str) -> String {
        let mut end = prefix.len().min(PREFIX_BYTES_MAX);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let mut name = prefix[..end].to_owned();
        let mut rng = self.rng.lock();
        for _ in 0..SUFFIX_CHARS {
            name.push(SUFFIX_ALPHABET[rng.usize(..SUFFIX_ALPHABET.len())].into());
        }
        name
    }
}
