//! Waking of tasks that wait: subscribers, which the feeder wakes for events, and the queue of timers
//! of a clock.

pub(crate) mod subscriber;
pub(crate) mod timer_queue;
