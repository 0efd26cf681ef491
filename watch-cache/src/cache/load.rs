//! The load of one resource: the pages that it has read, and the changes that it has received.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::keys;
use crate::cache::contents::{Contents, DecodedChange};
use crate::cache::readiness::Readiness;
use crate::cache::resource::Resource;
use crate::encode::object::ObjectDecoder;
use crate::source::{Change, ListPage, ListRequest, SourceError, StoredKeyValue};
use crate::wake;

/// The number of objects that a load decodes before the feeder looks for changes of other resources
/// and yields to other tasks. One step of the feeder decodes no more for all loads together.
pub(crate) const SLICE_OBJECTS: usize = 16;
/// The size of the values in bytes after which a step ends earlier. One larger value is a step.
const SLICE_BYTES: usize = 64 << 10;
/// The number of keys in the first page of a load. Each page may be twice as large as the previous
/// one.
const FIRST_PAGE_KEYS: usize = 16;
/// The maximum number of keys in a page.
const PAGE_KEYS_MAX: usize = 256;
/// The size in bytes that the pages of a load approach. A page of one key may be larger.
const PAGE_BYTES: usize = 256 << 10;
/// The maximum number of changes that wait for the page that contains their keys. When it is reached,
/// the changes are dropped and the page is read again.
const WAITING_CHANGES_MAX: usize = 4096;
/// The maximum size in bytes of these changes.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// The page size, in keys, of a load at the oldest revision of the source, beside which no other
/// resource is ready.
const OLDEST_PAGE_KEYS: usize = 10_000;

/// The load of one resource.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) id: u64,
    pub(crate) resource: Arc<Resource>,
    decoder: ObjectDecoder,
    pub(crate) began: Duration,
    pub(crate) contents: Contents,
    /// The first key that was not read, or `None` if all were read.
    pub(crate) next_key: Option<Bytes>,
    pub(crate) stage: Stage,
    pub(crate) page_keys: usize,
    /// The watermark when the current page was requested. The page must not be older. After the last
    /// page, the newest revision that was known when the current revision was requested.
    pub(crate) known: Revision,
    /// Whether a page could not be read because its revision was compacted.
    pub(crate) is_compacted: bool,
    /// Whether a page was read at the current revision of the source, which may be above the
    /// watermark.
    pub(crate) awaits_current: bool,
    /// The changes of keys that are being read, with the times of their arrival.
    waiting: Vec<(Change, Duration)>,
    waiting_bytes: usize,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// A page is being read. If `again` is set, changes were dropped meanwhile, and it is read again.
    Reading { again: bool },
    /// The pairs of a page are being decoded.
    Decoding {
        items: std::vec::IntoIter<StoredKeyValue>,
        revision: Revision,
        next_key: Option<Bytes>,
    },
    /// A page is applied; the next one was not requested yet.
    Applied,
    /// A page could not be read, and will be read again after a pause.
    Pausing,
    /// All pages are applied, and the current revision is being read.
    Verifying,
    /// The resource joins when the watermark has reached this revision.
    Complete(Revision),
}

/// The part of a slice that is left.
pub(crate) struct Slice {
    objects: usize,
    bytes: usize,
}

impl Slice {
    pub(crate) fn new() -> Self {
        Self {
            objects: SLICE_OBJECTS,
            bytes: SLICE_BYTES,
        }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.objects == 0 || self.bytes == 0
    }

    pub(crate) fn use_objects(&mut self, objects: usize, bytes: usize) {
        self.objects = self.objects.saturating_sub(objects);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Load {
    /// Returns a load whose first page was not requested yet, or a complete one if there is no
    /// `next_key`.
    pub(crate) fn new(
        id: u64,
        resource: &Arc<Resource>,
        contents: Contents,
        next_key: Option<Bytes>,
        began: Duration,
    ) -> Self {
        Self {
            id,
            resource: resource.clone(),
            decoder: resource.decoder(),
            began,
            contents,
            next_key,
            stage: Stage::Applied,
            page_keys: FIRST_PAGE_KEYS,
            known: Revision(0),
            is_compacted: false,
            awaits_current: false,
            waiting: Vec::new(),
            waiting_bytes: 0,
        }
    }

    /// Takes a change from the feeder.
    pub(crate) fn receive(&mut self, change: Change, arrived: Duration) {
        let is_read = self
            .next_key
            .as_ref()
            .is_none_or(|next_key| change.key < next_key);
        if is_read {
            self.apply(change, arrived);
            return;
        }
        if matches!(self.stage, Stage::Pausing) {
            // The key will be read in the state after this change.
            return;
        }
        let value = change.new.as_ref().map_or(0, |stored| stored.value.len());
        self.waiting_bytes += change.key.len() + value;
        self.waiting.push((change, arrived));
        if self.waiting.len() < WAITING_CHANGES_MAX && self.waiting_bytes < WAITING_BYTES_MAX {
            return;
        }
        if let Stage::Reading { again } = &mut self.stage {
            *again = true;
            self.drop_waiting();
        } else {
            // Decodes the rest of the page, which empties the list.
            self.decode(&mut Slice {
                objects: usize::MAX,
                bytes: usize::MAX,
            });
        }
    }

    pub(crate) fn drop_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Applies a change of a key that was read.
    fn apply(&mut self, change: Change, arrived: Duration) {
        let indexes = &self.resource.indexes;
        let change = DecodedChange::of(change, &self.decoder);
        if self.next_key.is_some() || change.revision <= self.contents.loaded {
            self.contents.store_newer(indexes, &change);
            return;
        }
        let now = self.resource.shared.timers.now();
        self.contents.apply(indexes, change, arrived, now);
        drop(self.contents.evict(now));
    }

    pub(crate) fn take_page(&mut self, page: ListPage) {
        let size = |stored: &StoredKeyValue| stored.key.len() + stored.value.len();
        let bytes: usize = page.items.iter().map(size).sum();
        let fitting = PAGE_BYTES * page.items.len() / bytes.max(1);
        self.page_keys = fitting.clamp(1, PAGE_KEYS_MAX.min(2 * self.page_keys));
        let last = page.items.last().filter(|_| page.more);
        self.stage = Stage::Decoding {
            next_key: last.map(|last| keys::after(&last.key)),
            items: page.items.into_iter(),
            revision: page.revision,
        };
    }

    /// Decodes pairs of the page until the slice is used. After the last one, applies the changes
    /// that have waited for the page.
    pub(crate) fn decode(&mut self, slice: &mut Slice) {
        let Stage::Decoding {
            items,
            revision,
            next_key,
        } = &mut self.stage
        else {
            return;
        };
        while !slice.is_used() {
            let Some(stored) = items.next() else {
                break;
            };
            slice.use_objects(1, stored.value.len());
            let object = self.decoder.decode(stored);
            let indexes = &self.resource.indexes;
            self.contents.store(indexes, object.key(), Some(&object));
        }
        if items.len() > 0 {
            return;
        }
        self.next_key = next_key.take();
        let revision = *revision;
        if self.next_key.is_none() {
            // The window contains the events after the last page, but not those of the changes that
            // were applied while it was read.
            let loaded = revision.max(self.contents.last);
            self.contents.set_loaded(loaded);
        }
        self.stage = Stage::Applied;
        self.waiting_bytes = 0;
        for (change, arrived) in std::mem::take(&mut self.waiting) {
            let is_read = self
                .next_key
                .as_ref()
                .is_none_or(|next_key| change.key < next_key);
            if is_read {
                self.apply(change, arrived);
            }
        }
    }

    /// Records the error of a failed read in the readiness of the resource.
    pub(crate) fn record_failure(&self, error: &SourceError) {
        self.resource.counters.initialization_errors.add(1);
        // The source answers more requests while the resource is inconsistent (WC-135).
        if self.resource.ready.state() != Readiness::Inconsistent {
            self.resource.ready.set(Readiness::Pending {
                since: self.resource.shared.timers.now(),
                cause: Some(error.to_string()),
            });
        }
    }
}

/// Reads all objects of a resource at one revision: at `at`, or at the current revision. Yields to
/// other tasks after every slice.
pub(crate) async fn read_at(
    resource: &Resource,
    at: Option<Revision>,
) -> Result<Contents, SourceError> {
    let decoder = resource.decoder();
    let span = resource.config.layout.span();
    let mut contents = Contents::new(resource.config.window, &resource.indexes);
    let (mut revision, mut start) = (at, span.start.clone());
    loop {
        let request = ListRequest {
            range: span.from(start).range(),
            at: revision,
            limit: Some(OLDEST_PAGE_KEYS),
        };
        let page = resource.shared.source.list(request).await?;
        revision = Some(page.revision);
        let last = page.items.last().filter(|_| page.more);
        let next = last.map(|last| keys::after(&last.key));
        let mut slice = Slice::new();
        for stored in page.items {
            if slice.is_used() {
                wake::yield_now().await;
                slice = Slice::new();
            }
            slice.use_objects(1, stored.value.len());
            let object = decoder.decode(stored);
            contents.store(&resource.indexes, object.key(), Some(&object));
        }
        let Some(next) = next else {
            contents.set_loaded(page.revision);
            return Ok(contents);
        };
        start = next;
    }
}
