//! Heavy requests: long work on a few threads of its own, and the memory of answers under way.
//!
//! | file | contents |
//! |---|---|
//! | `cost.rs` | the estimate that decides, before the work, where a request runs |
//! | `workers.rs` | the threads for long work |
//! | `answer_memory.rs` | the memory of answers that clients have not read yet |
//! | `write_gate.rs` | where small writes wait for large ones |
//!
//! A request that visits a few keys runs in the task of its connection. Any other takes part in this
//! order: it waits for the memory of its answer, then for a worker. Both queues are in the order of
//! arrival, and nobody waits for memory while it has a worker, so each of them moves on.

mod answer_memory;
mod cost;
#[cfg(test)]
mod tests;
mod workers;
mod write_gate;

use std::sync::Arc;

use revstore_engine::Clock;
use tokio::runtime::Handle;

#[cfg(test)]
pub(crate) use self::answer_memory::UNREAD_MAX;
pub(crate) use self::answer_memory::{Answer, AnswerMemory, InWork, Reservation};
pub(crate) use self::cost::{ANSWER_BYTES, Cost, answer_bytes};
pub(crate) use self::workers::Workers;
use self::write_gate::WriteGate;
use crate::node::Node;
use crate::node::admission::Limits;
use crate::status::EtcdError;

/// The workers and the memory of a node.
#[derive(Debug)]
pub(crate) struct Heavy {
    /// The workers for whole requests, which may take seconds.
    pub(crate) workers: Workers,
    /// As many workers for parts of answers, which take a millisecond. Without them each part would
    /// wait for all requests that arrived before.
    pub(crate) part_workers: Workers,
    pub(crate) memory: AnswerMemory,
    pub(crate) write_gate: WriteGate,
}

/// The use of the threads for heavy requests and of the memory for their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeavyStats {
    /// The number of threads for heavy requests and for parts of answers.
    pub workers: usize,
    /// The number of these that are busy.
    pub workers_busy: usize,
    /// The number of requests that wait for a thread.
    pub waiting_for_worker: usize,
    /// The maximum memory of answers under way, in bytes.
    pub answer_bytes_max: u64,
    /// The memory of answers under way, in bytes.
    pub answer_bytes: u64,
    /// The number of requests that wait for memory.
    pub waiting_for_memory: usize,
    /// The number of answers that were ended because their clients did not read them.
    pub answers_ended: u64,
}

impl Node {
    /// Runs a write that is not quick, as [`run_slowly`](Self::run_slowly).
    pub(crate) async fn write_slowly<T, E>(
        self: &Arc<Self>,
        cost: Cost,
        work: impl FnOnce(&Self, Option<Reservation>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<EtcdError> + Send + 'static,
    {
        if !cost.is_heavy() {
            tokio::task::yield_now().await;
            let _open = self.heavy.write_gate.pass().await;
            return work(self, None);
        }
        let work = move |node: &Self, reservation| {
            let _closed = (cost.is_large_write()).then(|| node.heavy.write_gate.close());
            work(node, reservation)
        };
        self.run_slowly(cost, work).await
    }

    /// Waits until no large write runs. For small writes that wait for something else as well, so that they do not
    /// block a thread meanwhile.
    pub(crate) async fn wait_for_large_write(&self) {
        drop(self.heavy.write_gate.pass().await);
    }

    /// Runs a request that is not quick. Yields before it: a server executes the requests of a connection
    /// one after the other in one task, and spawns a separate task for a request that yields. A heavy
    /// request waits for the memory of its answer, if that refers to keys, and runs on a worker.
    pub(crate) async fn run_slowly<T, E>(
        self: &Arc<Self>,
        cost: Cost,
        work: impl FnOnce(&Self, Option<Reservation>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<EtcdError> + Send + 'static,
    {
        tokio::task::yield_now().await;
        if !cost.is_heavy() {
            return work(self, None);
        }
        let memory = &self.heavy.memory;
        let reservation = if cost.has_keys_in_answer() {
            Some(memory.reserve(cost.answer_bytes()).await?)
        } else {
            None
        };
        let node = self.clone();
        let work = move || work(&node, reservation);
        self.heavy.workers.run(work).await?
    }
}

impl Heavy {
    pub(crate) fn new(limits: &Limits, clock: Arc<dyn Clock>) -> Self {
        Self {
            workers: Workers::new(limits.heavy_workers),
            part_workers: Workers::new(limits.heavy_workers),
            memory: AnswerMemory::new(limits.answer_bytes_max, clock),
            write_gate: WriteGate::default(),
        }
    }

    /// Drops a large value on a worker. `runtime` is the one that the workers belong to.
    pub(crate) fn discard<T: Send + 'static>(self: Arc<Self>, runtime: &Handle, value: T) {
        runtime.spawn(async move { self.part_workers.run(move || drop(value)).await });
    }

    pub(crate) fn stats(&self) -> HeavyStats {
        let (answer_bytes, waiting_for_memory, answers_ended) = self.memory.stats();
        HeavyStats {
            workers: self.workers.max() + self.part_workers.max(),
            workers_busy: self.workers.busy() + self.part_workers.busy(),
            waiting_for_worker: self.workers.waiting() + self.part_workers.waiting(),
            answer_bytes_max: self.memory.max(),
            answer_bytes,
            waiting_for_memory,
            answers_ended,
        }
    }
}
