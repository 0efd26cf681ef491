//! Locks and elections: the two services that etcd builds from keys, leases and watches.
//!
//! Both are thin layers over one wait queue (`wait_queue`): a waiter owns a key that is attached to a
//! lease, and holds the lock or leads once no older key is in the queue. In etcd these are the
//! services `v3lock` and `v3election`, over `Mutex` and `Election` of package `concurrency`.

pub(crate) mod election;
pub(crate) mod lock;
pub(crate) mod wait_queue;
