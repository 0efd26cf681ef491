//! The responses of watch streams: holds, cuts, cancellations and progress notifications on demand.
//!
//! What is sent keeps the promises of a watch: events once, in order, without a gap, or a typed end (I5); and progress at
//! r only after all events up to r (I6).

mod held;
mod stream;

pub(super) use stream::WatchBody;

/// The maximum memory of the events that one watch holds. With more, the stream is not read any further, which is what
/// a client does that does not read.
const HELD_BYTES_MAX: usize = 8 << 20;
