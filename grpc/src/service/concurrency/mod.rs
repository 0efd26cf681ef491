//! The Lock and Election services. Like etcd, they use keys, leases and watches.
//!
//! Both services use the wait queue in `wait_queue`: a waiter owns a key that is attached to a lease. The
//! waiter holds the lock, or is the leader, when no older key is in the queue. They correspond to etcd's
//! services `v3lock` and `v3election`, which use `Mutex` and `Election` of package `concurrency`.

pub(crate) mod election;
pub(crate) mod lock;
pub(crate) mod wait_queue;
