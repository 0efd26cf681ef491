//! What a watch was told, written down.

use std::collections::BTreeMap;

use revstore_engine::{
    Event, KeyRange, Revision, WatchId, WatchOptions, WatchResponse, WatchStream,
};

use crate::history::{END, Recorder, Seen};
use crate::model::Change;

/// The watch of the end.
const END_ID: WatchId = WatchId(1_000_000);

/// The history of one watch.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "three independent switches of the request, and one of ours"
)]
pub(crate) struct Watched {
    pub(crate) range: KeyRange,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) prev_kv: bool,
    /// The first revision that it has to tell of.
    pub(crate) from: i64,
    pub(crate) told: Vec<Told>,
    /// Whether it was read to the end of the history.
    pub(crate) complete: bool,
}

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Events {
        revision: i64,
        events: Vec<ToldEvent>,
    },
    Progress(i64),
    Compacted(i64),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToldEvent {
    pub(crate) change: Change,
    pub(crate) previous: Option<Seen>,
}

impl ToldEvent {
    fn of(event: &Event) -> Self {
        let kv = &event.kv;
        let position = kv.position();
        Self {
            change: Change {
                main: position.revision.0,
                sub: position.sub,
                key: kv.key_bytes(),
                now: (!kv.is_tombstone()).then(|| Seen::of(kv)),
            },
            previous: event.prev_kv.as_ref().map(Seen::of),
        }
    }

    pub(crate) fn position(&self) -> (i64, u32) {
        self.change.position()
    }
}

impl Watched {
    pub(crate) fn events(&self) -> impl Iterator<Item = &ToldEvent> {
        self.told.iter().flat_map(|told| match told {
            Told::Events { events, .. } => &events[..],
            Told::Progress(_) | Told::Compacted(_) => &[],
        })
    }

    /// The revision of the last event, if there was any.
    pub(crate) fn last(&self) -> Option<i64> {
        self.events().last().map(|event| event.change.main)
    }

    /// Where the watch ended because of a compaction.
    pub(crate) fn compacted(&self) -> Option<i64> {
        match self.told.last() {
            Some(Told::Compacted(mark)) => Some(*mark),
            _ => None,
        }
    }

    /// Whether a change is one that the watch has to tell.
    pub(crate) fn wants(&self, change: &Change) -> bool {
        let filtered = if change.now.is_some() {
            self.no_put
        } else {
            self.no_delete
        };
        change.main >= self.from && self.range.contains(&change.key) && !filtered
    }
}

/// Reads a stream of watches and writes down what each is told.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    recorder: &'a Recorder,
    stream: WatchStream,
    living: BTreeMap<WatchId, Watched>,
    past: Vec<Watched>,
    /// The end of the history was told, or seen.
    ended: bool,
}

impl<'a> Reader<'a> {
    /// A stream that watches for the end of the history.
    pub(crate) fn new(recorder: &'a Recorder) -> Self {
        let mut new = Self {
            recorder,
            stream: recorder.engine.watch_stream(),
            living: BTreeMap::new(),
            past: Vec::new(),
            ended: false,
        };
        new.watch(WatchOptions::of(KeyRange::one(END)).with_id(END_ID));
        // A thread may come as late as that, and nobody would tell it.
        new.ended = recorder.engine.get(END).is_some();
        new
    }

    /// Adds a watch.
    pub(crate) fn watch(&mut self, options: WatchOptions) -> WatchId {
        let mut watched = Watched {
            range: options.range.clone(),
            no_put: options.no_put,
            no_delete: options.no_delete,
            prev_kv: options.prev_kv,
            from: options.start.map_or(0, |start| start.0),
            told: Vec::new(),
            complete: false,
        };
        let has_start = options.start.is_some();
        let stream = &mut self.stream;
        let created = self.recorder.look(|| {
            let created = stream.watch(options).expect("a legal watch");
            (created.revision, created)
        });
        if !has_start {
            watched.from = created.revision.next().0;
        }
        self.living.insert(created.id, watched);
        created.id
    }

    /// Ends a watch and starts it again behind the last revision that it told; as a client does that
    /// lost its connection.
    pub(crate) fn resume(&mut self, id: WatchId) {
        let Some(watched) = self.living.remove(&id) else {
            return;
        };
        assert!(self.stream.cancel(id), "the watch was there");
        let next = match (watched.compacted(), watched.last()) {
            (Some(mark), _) => mark,
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
        self.past.push(watched);
    }

    pub(crate) fn request_progress(&mut self) {
        self.stream.request_progress();
    }

    /// Waits for a response and notes it, unless the end was told.
    pub(crate) fn wait(&mut self) -> bool {
        if !self.ended {
            let response = self.stream.next_blocking();
            self.note(response);
        }
        !self.ended
    }

    /// Notes a response if there is one.
    pub(crate) fn poll(&mut self) -> bool {
        let response = self.stream.try_next();
        let any = response.is_some();
        if let Some(response) = response {
            self.note(response);
        }
        any
    }

    /// Reads until the end was told and nothing is left; returns all that was watched.
    pub(crate) fn finish(mut self) -> Vec<Watched> {
        while self.wait() {}
        self.recorder.wait_for_end();
        self.drain()
    }

    /// Reads until nothing is left; returns all that was watched. For when all writers are done.
    pub(crate) fn drain(mut self) -> Vec<Watched> {
        while self.poll() {}
        for watched in self.living.values_mut() {
            watched.complete = true;
        }
        self.past.extend(self.living.into_values());
        self.past
    }

    fn note(&mut self, response: WatchResponse) {
        let (id, told) = match response {
            WatchResponse::Events {
                id,
                revision,
                events,
            } => {
                self.ended |= id == END_ID;
                let events = events.iter().map(ToldEvent::of).collect();
                let revision = revision.0;
                (Some(id), Told::Events { revision, events })
            }
            WatchResponse::Progress { id, revision } => (id, Told::Progress(revision.0)),
            WatchResponse::Compacted { id, compacted } => (Some(id), Told::Compacted(compacted.0)),
        };
        if let Some(id) = id {
            let watched = self.living.get_mut(&id);
            let watched = watched.expect("WA-20: a cancelled watch spoke");
            assert!(watched.compacted().is_none(), "WA-40: said after the end");
            watched.told.push(told);
            return;
        }
        // What a compaction ended is on the stream no more.
        let living = self.living.values_mut();
        for watched in living.filter(|watched| watched.compacted().is_none()) {
            watched.told.push(told.clone());
        }
    }
}
