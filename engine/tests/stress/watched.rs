//! The recorded deliveries of a watch.

use std::collections::BTreeMap;

use revstore_engine::{
    Event, KeyRange, Revision, WatchId, WatchOptions, WatchResponse, WatchStream,
};

use crate::history::{END, KeyVersion, Recorder};
use crate::model::Change;

/// The id of the watch of [`END`].
const END_ID: WatchId = WatchId(1_000_000);

/// The history of one watch.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "three independent options of the request, and one of the test"
)]
pub(crate) struct Watched {
    pub(crate) range: KeyRange,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) prev_kv: bool,
    /// The first revision whose events the watch has to deliver.
    pub(crate) from: i64,
    pub(crate) deliveries: Vec<Delivery>,
    /// Whether the watch was read to the end of the history.
    pub(crate) complete: bool,
}

/// One response to a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Events {
        revision: i64,
        events: Vec<DeliveredEvent>,
    },
    Progress(i64),
    Compacted(i64),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeliveredEvent {
    pub(crate) change: Change,
    pub(crate) previous: Option<KeyVersion>,
}

impl DeliveredEvent {
    fn of(event: &Event) -> Self {
        let kv = &event.kv;
        let position = kv.position();
        Self {
            change: Change {
                revision: position.revision.0,
                sub: position.sub,
                key: kv.key_bytes(),
                version: (!kv.is_tombstone()).then(|| KeyVersion::of(kv)),
            },
            previous: event.prev_kv.as_ref().map(KeyVersion::of),
        }
    }

    pub(crate) fn position(&self) -> (i64, u32) {
        self.change.position()
    }
}

impl Watched {
    pub(crate) fn events(&self) -> impl Iterator<Item = &DeliveredEvent> {
        self.deliveries.iter().flat_map(|delivery| match delivery {
            Delivery::Events { events, .. } => &events[..],
            Delivery::Progress(_) | Delivery::Compacted(_) => &[],
        })
    }

    /// Returns the revision of the last event.
    pub(crate) fn last_revision(&self) -> Option<i64> {
        self.events().last().map(|event| event.change.revision)
    }

    /// Returns the compacted revision if a compaction has ended the watch.
    pub(crate) fn compacted(&self) -> Option<i64> {
        match self.deliveries.last() {
            Some(Delivery::Compacted(compacted)) => Some(*compacted),
            _ => None,
        }
    }

    /// Returns whether the watch has to deliver a change.
    pub(crate) fn matches(&self, change: &Change) -> bool {
        let filtered = if change.version.is_some() {
            self.no_put
        } else {
            self.no_delete
        };
        change.revision >= self.from && self.range.contains(&change.key) && !filtered
    }
}

/// Reads a watch stream and records the deliveries of each watch.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    recorder: &'a Recorder,
    stream: WatchStream,
    active: BTreeMap<WatchId, Watched>,
    cancelled: Vec<Watched>,
    /// Whether [`END`] was delivered, or found in the store.
    ended: bool,
}

impl<'a> Reader<'a> {
    /// Creates a reader with a watch of [`END`].
    pub(crate) fn new(recorder: &'a Recorder) -> Self {
        let mut reader = Self {
            recorder,
            stream: recorder.engine.watch_stream(),
            active: BTreeMap::new(),
            cancelled: Vec::new(),
            ended: false,
        };
        reader.watch(WatchOptions::of(KeyRange::one(END)).with_id(END_ID));
        // If the key was written before the watch was created, the watch does not deliver it.
        reader.ended = recorder.engine.get(END).is_some();
        reader
    }

    /// Adds a watch.
    pub(crate) fn watch(&mut self, options: WatchOptions) -> WatchId {
        let mut watched = Watched {
            range: options.range.clone(),
            no_put: options.no_put,
            no_delete: options.no_delete,
            prev_kv: options.prev_kv,
            from: options.start.map_or(0, |start| start.0),
            deliveries: Vec::new(),
            complete: false,
        };
        let has_start = options.start.is_some();
        let stream = &mut self.stream;
        let created = self.recorder.record_revision(|| {
            let created = stream.watch(options).expect("a valid watch");
            (created.revision, created)
        });
        if !has_start {
            watched.from = created.revision.next().0;
        }
        self.active.insert(created.id, watched);
        created.id
    }

    /// Cancels a watch and creates it again after its last delivered revision, like a client that
    /// has lost its connection.
    pub(crate) fn resume(&mut self, id: WatchId) {
        let Some(watched) = self.active.remove(&id) else {
            return;
        };
        assert!(self.stream.cancel(id), "the watch exists");
        let next = match (watched.compacted(), watched.last_revision()) {
            (Some(compacted), _) => compacted,
            (None, Some(last)) => last + 1,
            (None, None) => watched.from,
        };
        let mut options = WatchOptions::of(watched.range.clone())
            .from(Revision(next))
            .with_id(id);
        options.no_put = watched.no_put;
        options.no_delete = watched.no_delete;
        options.prev_kv = watched.prev_kv;
        self.watch(options);
        self.cancelled.push(watched);
    }

    pub(crate) fn request_progress(&mut self) {
        self.stream.request_progress();
    }

    /// Waits for a response and records it. Returns `false`, without waiting, after the end of the
    /// history.
    pub(crate) fn wait(&mut self) -> bool {
        if !self.ended {
            let response = self.stream.next_blocking();
            self.record(response);
        }
        !self.ended
    }

    /// Records a response if one is available; returns whether it was.
    pub(crate) fn poll(&mut self) -> bool {
        let response = self.stream.try_next();
        let any = response.is_some();
        if let Some(response) = response {
            self.record(response);
        }
        any
    }

    /// Reads all responses up to the end of the history; returns all watches.
    pub(crate) fn finish(mut self) -> Vec<Watched> {
        while self.wait() {}
        self.recorder.wait_for_end();
        self.drain()
    }

    /// Reads all available responses; returns all watches. Called after all writers have ended.
    pub(crate) fn drain(mut self) -> Vec<Watched> {
        while self.poll() {}
        for watched in self.active.values_mut() {
            watched.complete = true;
        }
        self.cancelled.extend(self.active.into_values());
        self.cancelled
    }

    fn record(&mut self, response: WatchResponse) {
        let (id, delivery) = match response {
            WatchResponse::Events {
                id,
                revision,
                events,
            } => {
                self.ended |= id == END_ID;
                let events = events.iter().map(DeliveredEvent::of).collect();
                let revision = revision.0;
                (Some(id), Delivery::Events { revision, events })
            }
            WatchResponse::Progress { id, revision } => (id, Delivery::Progress(revision.0)),
            WatchResponse::Compacted { id, compacted } => {
                (Some(id), Delivery::Compacted(compacted.0))
            }
        };
        if let Some(id) = id {
            let watched = self.active.get_mut(&id);
            let watched = watched.expect("WA-20: a response to a cancelled watch");
            assert!(
                watched.compacted().is_none(),
                "WA-40: a response after the end of the watch"
            );
            watched.deliveries.push(delivery);
            return;
        }
        // Watches that a compaction has ended are no longer on the stream.
        let active = self.active.values_mut();
        for watched in active.filter(|watched| watched.compacted().is_none()) {
            watched.deliveries.push(delivery.clone());
        }
    }
}
