//! The responses of watch streams: holds, cuts, cancellations and progress notifications on demand.
//!
//! What is sent keeps the promises of a watch: events once, in order, without a gap, or a typed end (I5); and progress at
//! r only after all events up to r (I6).

mod stream;

pub(super) use stream::WatchBody;
