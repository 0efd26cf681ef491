//! A real etcd and our services, side by side.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use prost_reflect::DynamicMessage;
use prost_reflect::prost::Message as _;
use tonic::{Code, Status};

use crate::differential::generate::{Operation, View};
use crate::differential::told::{Positions, Story};
use crate::scenario::message;
use crate::scenario::normal::{self, Names};
use crate::scenario::run::{revision_of, status_text};
use crate::scenario::stream::{Cause, Stream};
use crate::scenario::target::{Kind, Target};
use crate::server::Options;

/// How often watches that ask for it hear of progress; the least that etcd does.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Both servers and what they have told so far.
#[derive(Debug)]
pub struct Pair {
    etcd: Side,
    ours: Side,
    view: View,
}

/// How the two differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What etcd says.
    pub etcd: String,
    /// What ours says.
    pub ours: String,
}

/// Why an episode stops.
#[derive(Debug)]
pub enum Stop {
    /// The two differ.
    Differ(Difference),
    /// It cannot go on, whoever is to blame.
    Broken(String),
}

#[derive(Debug)]
struct Side {
    target: Target,
    streams: BTreeMap<&'static str, Open>,
}

#[derive(Debug)]
struct Open {
    stream: Stream,
    positions: Positions,
    story: Story,
}

impl Pair {
    /// A fresh pair.
    ///
    /// # Errors
    /// When etcd does not start.
    pub fn fresh() -> io::Result<Self> {
        let options = Options {
            watch_progress_interval: Some(PROGRESS_INTERVAL),
            ..Options::default()
        };
        let side = |kind| {
            Target::fresh(kind, &options).map(|target| Side {
                target,
                streams: BTreeMap::new(),
            })
        };
        Ok(Self {
            etcd: side(Kind::Etcd)?,
            ours: side(Kind::Ours)?,
            view: View::default(),
        })
    }

    /// What the operations so far have led to.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Carries an operation out on both and compares what they answer.
    ///
    /// # Errors
    /// When they differ, or one of them fails.
    pub async fn apply(&mut self, operation: &Operation) -> Result<(), Stop> {
        // etcd cancels a watch that has not yet looked at its history when that is compacted
        // (WA-18), and mixes up what is still to be told of a watch that is cancelled.
        if operation.is_cancel() || operation.method.name() == "Compact" {
            self.settle().await?;
        }
        match operation.stream {
            Some(stream) => self.send(stream, operation).await,
            None => self.call(operation).await,
        }
    }

    /// Compares what all watches told so far.
    ///
    /// # Errors
    /// When they differ, or one of them fails.
    pub async fn settle(&mut self) -> Result<(), Stop> {
        let revision = self.view.revision;
        // Time passes for etcd by itself.
        self.ours.target.pass(PROGRESS_INTERVAL).await;
        let (etcd, ours) = tokio::join!(self.etcd.settle(revision), self.ours.settle(revision));
        let (etcd, ours) = (etcd?, ours?);
        for (name, story) in &etcd {
            compare(
                story,
                ours.get(name).unwrap_or(&Story::default()),
                |story| format!("{name}: {:#?}", story.0),
            )?;
        }
        Ok(())
    }

    async fn call(&mut self, operation: &Operation) -> Result<(), Stop> {
        let (etcd, ours) = tokio::join!(self.etcd.call(operation), self.ours.call(operation));
        if let Some(lost) = [&etcd, &ours].into_iter().find_map(lost) {
            return Err(Stop::Broken(lost));
        }
        if let Ok(answer) = &etcd {
            let revision = self.view.revision.max(revision_of(answer));
            if operation.is_txn() && revision > self.view.revision {
                self.view.mixed.insert(revision);
            }
            self.view.revision = revision;
            let mark = operation.message.get_field_by_name("revision");
            if let ("Compact", Some(mark)) = (operation.method.name(), mark) {
                self.view.marks.extend(mark.as_i64());
            }
        }
        compare(&text(etcd), &text(ours), Clone::clone)
    }

    async fn send(&mut self, stream: &'static str, operation: &Operation) -> Result<(), Stop> {
        let etcd = self.etcd.send(stream, operation);
        let (etcd, ours) = tokio::join!(etcd, self.ours.send(stream, operation));
        etcd?;
        ours
    }
}

/// An answer that says that the server has gone.
fn lost(answer: &Result<DynamicMessage, Status>) -> Option<String> {
    let status = answer.as_ref().err()?;
    matches!(status.code(), Code::Unavailable | Code::Unknown).then(|| status_text(status))
}

fn text(answer: Result<DynamicMessage, Status>) -> String {
    match answer {
        Ok(mut message) => {
            // Episodes are short, but not in seconds that a test may count.
            normal::normalise_after(&mut message, i64::MAX);
            message::lines(&message, &Names::default()).join("\n")
        }
        Err(status) => format!("error {}", status_text(&status)),
    }
}

fn compare<T: PartialEq>(etcd: &T, ours: &T, show: impl Fn(&T) -> String) -> Result<(), Stop> {
    if etcd == ours {
        return Ok(());
    }
    Err(Stop::Differ(Difference {
        etcd: show(etcd),
        ours: show(ours),
    }))
}

impl Side {
    async fn call(&mut self, operation: &Operation) -> Result<DynamicMessage, Status> {
        let bytes = Bytes::from(operation.message.encode_to_vec());
        let reply = self
            .target
            .transport()
            .unary(&operation.method, bytes)
            .await?;
        DynamicMessage::decode(operation.method.output(), reply)
            .map_err(|error| Status::internal(error.to_string()))
    }

    async fn send(&mut self, name: &'static str, operation: &Operation) -> Result<(), Stop> {
        let transport = self.target.transport();
        let open = self.streams.entry(name).or_insert_with(|| Open {
            stream: Stream::open(transport, &operation.method),
            positions: Positions::default(),
            story: Story::default(),
        });
        let cause = open.stream.send(&operation.message).map_err(Stop::Broken)?;
        open.take(cause).await
    }

    async fn settle(&mut self, revision: i64) -> Result<BTreeMap<&'static str, Story>, Stop> {
        let mut stories = BTreeMap::new();
        for (name, open) in &mut self.streams {
            open.drain(revision).await?;
            stories.insert(*name, std::mem::take(&mut open.story));
        }
        Ok(stories)
    }
}

impl Open {
    async fn take(&mut self, cause: Cause) -> Result<(), Stop> {
        let told = self.stream.replies(cause).await.map_err(Stop::Broken)?;
        self.tell(told)
    }

    async fn drain(&mut self, revision: i64) -> Result<(), Stop> {
        let told = self
            .stream
            .drain(revision, false)
            .await
            .map_err(Stop::Broken)?;
        self.tell(told)?;
        let told = self.stream.bury().await.map_err(Stop::Broken)?;
        self.tell(told)
    }

    fn tell(&mut self, told: Vec<crate::scenario::stream::Told>) -> Result<(), Stop> {
        let follow = |told| self.positions.follow(&told, &mut self.story);
        told.into_iter().try_for_each(follow).map_err(Stop::Broken)
    }
}
