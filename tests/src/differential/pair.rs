//! A pair of servers: a real etcd and the revstore services.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;
use tonic::{Code, Status};

use crate::differential::delivery::{DeliveryChecker, DeliveryLog};
use crate::differential::generate::{Operation, StoreState};
use crate::scenario::message;
use crate::scenario::normalize::{self, LeaseNames};
use crate::scenario::run::{revision_of, status_text};
use crate::scenario::stream::{ClientStream, StepKind, StreamItem};
use crate::scenario::target::{Target, TargetKind};
use crate::server::Options;

/// The interval of progress notifications; the shortest that etcd accepts.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Both servers, with the state of the store that their responses show.
#[derive(Debug)]
pub struct Pair {
    etcd: PairSide,
    ours: PairSide,
    state: StoreState,
}

/// A difference between the two servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The response or the deliveries of etcd.
    pub etcd: String,
    /// The response or the deliveries of revstore.
    pub ours: String,
}

/// The reason why an episode stops.
#[derive(Debug)]
pub enum StopReason {
    /// The servers differ.
    Difference(Difference),
    /// The episode cannot continue, because of a failure on either side.
    Failure(String),
}

#[derive(Debug)]
struct PairSide {
    target: Target,
    streams: BTreeMap<&'static str, OpenStream>,
}

#[derive(Debug)]
struct OpenStream {
    stream: ClientStream,
    checker: DeliveryChecker,
    log: DeliveryLog,
}

impl Pair {
    /// Starts a new pair.
    ///
    /// # Errors
    /// If etcd does not start.
    pub fn fresh() -> io::Result<Self> {
        let options = Options {
            watch_progress_interval: Some(PROGRESS_INTERVAL),
            ..Options::default()
        };
        let side = |kind| {
            Target::fresh(kind, &options).map(|target| PairSide {
                target,
                streams: BTreeMap::new(),
            })
        };
        Ok(Self {
            etcd: side(TargetKind::Etcd)?,
            ours: side(TargetKind::Ours)?,
            state: StoreState::default(),
        })
    }

    /// Returns the state of the store after the operations so far.
    pub fn state(&self) -> &StoreState {
        &self.state
    }

    /// Runs an operation on both servers and compares the responses.
    ///
    /// # Errors
    /// If the responses differ or a server fails.
    pub async fn apply(&mut self, operation: &Operation) -> Result<(), StopReason> {
        // A compaction makes etcd cancel a watch that is still unsynced (WA-18), and a cancel request makes
        // it drop a varying number of events of the watch. So both wait until all events are delivered.
        if operation.is_cancel() || operation.method.name() == "Compact" {
            self.compare_deliveries().await?;
        }
        match operation.stream {
            Some(stream) => self.send(stream, operation).await,
            None => self.call(operation).await,
        }
    }

    /// Compares the deliveries of all watches since the last comparison.
    ///
    /// # Errors
    /// If the deliveries differ or a server fails.
    pub async fn compare_deliveries(&mut self) -> Result<(), StopReason> {
        let revision = self.state.revision;
        // etcd uses the system clock, revstore a manual clock.
        self.ours.target.advance(PROGRESS_INTERVAL).await;
        let (etcd, ours) = tokio::join!(
            self.etcd.take_deliveries(revision),
            self.ours.take_deliveries(revision)
        );
        let (etcd, ours) = (etcd?, ours?);
        for (name, log) in &etcd {
            compare(
                log,
                ours.get(name).unwrap_or(&DeliveryLog::default()),
                |log| format!("{name}: {:#?}", log.0),
            )?;
        }
        Ok(())
    }

    async fn call(&mut self, operation: &Operation) -> Result<(), StopReason> {
        let (etcd, ours) = tokio::join!(self.etcd.call(operation), self.ours.call(operation));
        if let Some(status) = [&etcd, &ours].into_iter().find_map(exited) {
            return Err(StopReason::Failure(status));
        }
        if let Ok(response) = &etcd {
            let revision = self.state.revision.max(revision_of(response));
            if operation.is_txn() && revision > self.state.revision {
                self.state.mixed.insert(revision);
            }
            self.state.revision = revision;
            let compacted = operation.message.get_field_by_name("revision");
            if let ("Compact", Some(compacted)) = (operation.method.name(), compacted) {
                self.state.compactions.extend(compacted.as_i64());
            }
        }
        compare(&text(etcd), &text(ours), Clone::clone)
    }

    async fn send(
        &mut self,
        stream: &'static str,
        operation: &Operation,
    ) -> Result<(), StopReason> {
        let etcd = self.etcd.send(stream, operation);
        let (etcd, ours) = tokio::join!(etcd, self.ours.send(stream, operation));
        etcd?;
        ours
    }
}

/// Returns the status of a response if it shows that the server has exited.
fn exited(response: &Result<DynamicMessage, Status>) -> Option<String> {
    let status = response.as_ref().err()?;
    matches!(status.code(), Code::Unavailable | Code::Unknown).then(|| status_text(status))
}

fn text(response: Result<DynamicMessage, Status>) -> String {
    match response {
        Ok(mut message) => {
            // An episode may take longer than the limit for scenarios.
            normalize::normalize_after(&mut message, i64::MAX);
            message::lines(&message, &LeaseNames::default()).join("\n")
        }
        Err(status) => format!("error {}", status_text(&status)),
    }
}

fn compare<T: PartialEq>(
    etcd: &T,
    ours: &T,
    show: impl Fn(&T) -> String,
) -> Result<(), StopReason> {
    if etcd == ours {
        return Ok(());
    }
    Err(StopReason::Difference(Difference {
        etcd: show(etcd),
        ours: show(ours),
    }))
}

impl PairSide {
    async fn call(&mut self, operation: &Operation) -> Result<DynamicMessage, Status> {
        let bytes = Bytes::from(operation.message.encode_to_vec());
        let response = self
            .target
            .transport()
            .unary(&operation.method, bytes)
            .await?;
        DynamicMessage::decode(operation.method.output(), response)
            .map_err(|error| Status::internal(error.to_string()))
    }

    async fn send(&mut self, name: &'static str, operation: &Operation) -> Result<(), StopReason> {
        let transport = self.target.transport();
        let open = self.streams.entry(name).or_insert_with(|| OpenStream {
            stream: ClientStream::open(transport, &operation.method),
            checker: DeliveryChecker::default(),
            log: DeliveryLog::default(),
        });
        let step = open
            .stream
            .send(&operation.message)
            .map_err(StopReason::Failure)?;
        open.take_responses(step).await
    }

    async fn take_deliveries(
        &mut self,
        revision: i64,
    ) -> Result<BTreeMap<&'static str, DeliveryLog>, StopReason> {
        let mut logs = BTreeMap::new();
        for (name, open) in &mut self.streams {
            open.take_events(revision).await?;
            logs.insert(*name, std::mem::take(&mut open.log));
        }
        Ok(logs)
    }
}

impl OpenStream {
    async fn take_responses(&mut self, step: StepKind) -> Result<(), StopReason> {
        let items = self
            .stream
            .responses(step)
            .await
            .map_err(StopReason::Failure)?;
        self.observe(items)
    }

    async fn take_events(&mut self, revision: i64) -> Result<(), StopReason> {
        let items = self
            .stream
            .drain_events(revision, false)
            .await
            .map_err(StopReason::Failure)?;
        self.observe(items)?;
        let items = self
            .stream
            .release_compacted()
            .await
            .map_err(StopReason::Failure)?;
        self.observe(items)
    }

    fn observe(&mut self, items: Vec<StreamItem>) -> Result<(), StopReason> {
        let observe = |item| self.checker.observe(&item, &mut self.log);
        items
            .into_iter()
            .try_for_each(observe)
            .map_err(StopReason::Failure)
    }
}
