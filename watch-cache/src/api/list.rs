//! Lists: the response to a list request, built from a snapshot of the cache or read from a source.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::{KeyRange, Revision};

use crate::api::continue_token::ContinueToken;
use crate::api::corrupt::{CorruptList, CorruptObject};
use crate::api::keys::{KeySpan, after};
use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::cache::objects::index::IndexItem;
use crate::cache::objects::tree::{Item, TreeIter};
use crate::cache::resource::Resource;
use crate::encode::object::{Object, ObjectDecoder, StoredObject};
use crate::selector::ObjectFilter;
use crate::source::{ListRequest, Source, SourceError, StoredKeyValue};

/// The maximum page size, in keys, of reads from a source for a page of a list with a selector.
const SCAN_PAGE_MAX: usize = 10_000;

/// The response to a list request: the metadata of the list, and an iterator over its objects.
///
/// The objects of a list without a limit are filtered while they are iterated, so that the memory
/// does not grow with the size of the list. All objects come from one immutable snapshot; the
/// iterator holds no lock.
///
/// ```
/// use revstore_watch_cache::RequestError;
/// use revstore_watch_cache::api::ObjectList;
///
/// /// Returns the names of the objects in a list.
/// fn names(list: ObjectList) -> Result<Vec<String>, RequestError> {
///     list.items.map(|object| object.map(|object| object.name().to_owned())).collect()
/// }
/// ```
// WC-130, WC-143.
#[derive(Debug)]
#[non_exhaustive]
pub struct ObjectList {
    /// The revision of the listed state: `metadata.resourceVersion`.
    pub revision: Revision,
    /// The token for the next page, if there are more objects: `metadata.continue`.
    // WC-221, WC-222.
    pub continue_token: Option<String>,
    /// The number of objects after this page, if it is known: `metadata.remainingItemCount`. Unknown
    /// for lists with a selector.
    // WC-223.
    pub remaining_item_count: Option<u64>,
    /// The objects in ascending order of their keys.
    pub items: ListItems,
}

/// An iterator over the objects of a list, in ascending order of their keys. If objects cannot be
/// decoded, it returns an error that names them in place of the first one, and ends.
// WC-134.
pub struct ListItems {
    objects: ItemIter,
    /// The filter, unless the objects are already filtered.
    filter: Option<ObjectFilter>,
    ended: bool,
    /// Whether objects that cannot be decoded are left out.
    readable: bool,
    counts: Option<ListCounts>,
}

/// The numbers of objects that a list of the cache has examined and returned. Dropping the value adds
/// them to the metrics of the resource.
pub(crate) struct ListCounts {
    resource: Arc<Resource>,
    fetched: u64,
    returned: u64,
}

impl ListCounts {
    pub(crate) fn new(resource: Arc<Resource>) -> Self {
        Self {
            resource,
            fetched: 0,
            returned: 0,
        }
    }
}

impl Drop for ListCounts {
    fn drop(&mut self) {
        let counters = &self.resource.counters;
        counters.list_objects_fetched.add(self.fetched);
        counters.list_objects_returned.add(self.returned);
    }
}

/// The origin of the objects of a list.
enum ItemIter {
    /// A snapshot of the cache.
    Snapshot {
        objects: TreeIter<Arc<StoredObject>>,
        end: Bytes,
    },
    /// A snapshot of an index of the cache.
    Index {
        objects: TreeIter<IndexItem>,
        /// The index key at which the iteration ends.
        end: Bytes,
    },
    /// Key-value pairs returned by a source.
    Stored {
        items: std::vec::IntoIter<StoredKeyValue>,
        decoder: ObjectDecoder,
    },
    /// Objects that are already filtered.
    Page(std::vec::IntoIter<Arc<StoredObject>>),
}

impl ObjectList {
    fn new(revision: Revision, objects: ItemIter, filter: Option<ObjectFilter>) -> Self {
        Self {
            revision,
            continue_token: None,
            remaining_item_count: None,
            items: ListItems {
                objects,
                filter,
                ended: false,
                readable: false,
                counts: None,
            },
        }
    }

    /// Returns a list of the given objects, for implementations of [`Storage`](crate::api::Storage)
    /// and for tests.
    pub fn from_objects(revision: Revision, objects: &[Object]) -> Self {
        let objects: Vec<_> = objects
            .iter()
            .map(|object| object.stored().clone())
            .collect();
        Self::new(revision, ItemIter::Page(objects.into_iter()), None)
    }

    /// Returns a list without a limit over a snapshot, up to the key `end`.
    pub(crate) fn of_snapshot(
        revision: Revision,
        objects: TreeIter<Arc<StoredObject>>,
        end: Bytes,
        filter: ObjectFilter,
        counts: ListCounts,
    ) -> Self {
        Self::new(revision, ItemIter::Snapshot { objects, end }, Some(filter)).with_counts(counts)
    }

    /// Returns a list without a limit over the objects of an index, up to the index key `end`.
    pub(crate) fn of_index(
        revision: Revision,
        objects: TreeIter<IndexItem>,
        end: Bytes,
        filter: ObjectFilter,
        counts: ListCounts,
    ) -> Self {
        Self::new(revision, ItemIter::Index { objects, end }, Some(filter)).with_counts(counts)
    }

    fn with_counts(mut self, counts: ListCounts) -> Self {
        self.items.counts = Some(counts);
        self
    }

    /// Returns a page over a snapshot. `count` returns the number of keys of the snapshot in `span`.
    pub(crate) fn page_of_snapshot(
        revision: Revision,
        objects: TreeIter<Arc<StoredObject>>,
        span: &KeySpan,
        target: &Target,
        limit: usize,
        mut counts: ListCounts,
        count: impl FnOnce() -> usize,
    ) -> Result<Self, RequestError> {
        let mut found = Vec::new();
        let mut corrupt = CorruptList::of(&target.filter);
        let mut more = false;
        for object in objects.take_while(|object| *object.key() < *span.end) {
            if found.len() == limit {
                more = true;
                break;
            }
            counts.fetched += 1;
            match target.filter.decide(&object) {
                Ok(true) => found.push(object),
                Ok(false) => {}
                Err(object) => {
                    if !corrupt.add(object) {
                        break;
                    }
                }
            }
        }
        corrupt.check()?;
        counts.returned = found.len() as u64;
        Self::page(revision, found, more, target, limit, count)
    }

    fn page(
        revision: Revision,
        found: Vec<Arc<StoredObject>>,
        more: bool,
        target: &Target,
        limit: usize,
        count: impl FnOnce() -> usize,
    ) -> Result<Self, RequestError> {
        let mut list = Self::new(revision, ItemIter::Page(Vec::new().into_iter()), None);
        if let (true, Some(last)) = (more, found.last()) {
            list.continue_token = Some(target.token(last.key(), revision)?);
            // WC-223: `count` counts keys, so the number is known only if the filter selects by key.
            if target.filter.selects_by_key_only() {
                list.remaining_item_count = Some(count().saturating_sub(limit) as u64);
            }
        }
        list.items.objects = ItemIter::Page(found.into_iter());
        Ok(list)
    }

    /// Reads a list from a source, at the revision `at` or at the current one.
    pub(crate) async fn read(
        source: &dyn Source,
        decoder: &ObjectDecoder,
        target: &Target,
        at: Option<Revision>,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Self, RequestError> {
        let span = target.scan_from(start);
        let failed = |error| read_failed(error, target, start, &span);
        let Some(limit) = limit else {
            return Self::read_all(source, decoder, target, at, &span)
                .await
                .map_err(failed);
        };
        let mut found = Vec::new();
        let mut corrupt = CorruptList::of(&target.filter);
        let (mut next, mut revision) = (span.start.clone(), at);
        // Without a selector one read is enough. With a selector the page size doubles until there
        // are enough matches.
        let (mut page_size, mut count) = (limit, None);
        loop {
            let request = ListRequest {
                range: span.from(next.clone()).range(),
                at: revision,
                limit: Some(page_size),
            };
            let page = source.list(request).await.map_err(failed)?;
            revision = Some(page.revision);
            let count = *count.get_or_insert(page.count);
            let fetched = page.items.len();
            for (index, stored) in page.items.into_iter().enumerate() {
                next = after(&stored.key);
                let object = decoder.decode(stored);
                match target.filter.decide(&object) {
                    Ok(true) => found.push(object),
                    Ok(false) => {}
                    Err(object) => {
                        if !corrupt.add(object) {
                            corrupt.check()?;
                        }
                    }
                }
                if found.len() == limit {
                    corrupt.check()?;
                    let more = page.more || index + 1 < fetched;
                    return Self::page(page.revision, found, more, target, limit, || count);
                }
            }
            if !page.more {
                corrupt.check()?;
                return Self::page(page.revision, found, false, target, limit, || count);
            }
            page_size = (page_size * 2).min(SCAN_PAGE_MAX);
        }
    }

    /// Fails with the error of a list if a source cannot be read at the revision `at`, because `at`
    /// is compacted or in the future.
    pub(crate) async fn check_readable(
        source: &dyn Source,
        target: &Target,
        at: Revision,
        start: Option<&str>,
    ) -> Result<(), RequestError> {
        let span = target.scan_from(start);
        let request = ListRequest {
            range: KeyRange::One(span.start.clone()),
            at: Some(at),
            limit: Some(1),
        };
        match source.list(request).await {
            Ok(_) => Ok(()),
            Err(error) => Err(read_failed(error, target, start, &span)),
        }
    }

    async fn read_all(
        source: &dyn Source,
        decoder: &ObjectDecoder,
        target: &Target,
        at: Option<Revision>,
        span: &KeySpan,
    ) -> Result<Self, SourceError> {
        let request = ListRequest {
            range: span.range(),
            at,
            limit: None,
        };
        let page = source.list(request).await?;
        let objects = ItemIter::Stored {
            items: page.items.into_iter(),
            decoder: decoder.clone(),
        };
        Ok(Self::new(
            page.revision,
            objects,
            Some(target.filter.clone()),
        ))
    }

    /// Collects the objects.
    ///
    /// # Errors
    /// [`RequestError::CorruptList`] if an object cannot be decoded.
    pub fn into_objects(self) -> Result<Vec<Object>, RequestError> {
        self.items.collect()
    }
}

/// Returns the error of a request whose read from the source failed.
fn read_failed(
    error: SourceError,
    target: &Target,
    start: Option<&str>,
    span: &KeySpan,
) -> RequestError {
    match error {
        SourceError::Compacted if start.is_some() => {
            // WC-234: the new token continues at the same key, at the latest revision.
            let relative = span.start.strip_prefix(&*target.prefix);
            let token = relative.and_then(|start| std::str::from_utf8(start).ok());
            RequestError::Expired(Expired::Continue {
                token: token.map(|start| {
                    ContinueToken {
                        revision: None,
                        start: start.to_owned(),
                    }
                    .encode()
                }),
            })
        }
        SourceError::Compacted => RequestError::Expired(Expired::List),
        SourceError::Future { requested, current } => RequestError::TooLarge { requested, current },
        SourceError::Replaced { known, found } => {
            RequestError::Expired(Expired::Replaced { known, found })
        }
        error @ (SourceError::Ended | SourceError::TooLarge | SourceError::Unavailable(_)) => {
            RequestError::Internal(error.to_string())
        }
    }
}

impl fmt::Debug for ListItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListItems").finish_non_exhaustive()
    }
}

impl ListItems {
    /// Leaves out the objects that cannot be decoded, for readers that can go on without them. Otherwise the first of
    /// them ends the list with an error.
    #[must_use]
    pub fn readable(mut self) -> Self {
        self.readable = true;
        self
    }

    /// Returns the next object, before the filter is applied.
    fn next_object(&mut self) -> Option<Arc<StoredObject>> {
        let object = match &mut self.objects {
            ItemIter::Snapshot { objects, end } => {
                objects.next().filter(|object| *object.key() < **end)?
            }
            ItemIter::Index { objects, end } => {
                objects.next().filter(|item| *item.key() < **end)?.object
            }
            ItemIter::Stored { items, decoder } => decoder.decode(items.next()?),
            ItemIter::Page(objects) => objects.next()?,
        };
        if let Some(counts) = &mut self.counts {
            counts.fetched += 1;
        }
        Some(object)
    }

    /// Returns the error of a list with a corrupt object. Names the other ones after it too.
    fn corrupt(&mut self, first: CorruptObject) -> RequestError {
        let Some(filter) = self.filter.take() else {
            return RequestError::Corrupt(Box::new(first));
        };
        let mut corrupt = CorruptList::of(&filter);
        corrupt.add(first);
        while let Some(object) = self.next_object() {
            if let Err(object) = filter.decide(&object)
                && !corrupt.add(object)
            {
                break;
            }
        }
        RequestError::CorruptList(Box::new(corrupt))
    }
}

impl Iterator for ListItems {
    type Item = Result<Object, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let object = self.next_object()?;
            let decided = match &self.filter {
                Some(filter) => filter.decide(&object),
                None => object.corruption().map_or(Ok(true), Err),
            };
            match decided {
                Ok(true) => {
                    if let Some(counts) = &mut self.counts {
                        counts.returned += 1;
                    }
                    return Some(Ok(Object::new(object)));
                }
                Ok(false) => {}
                Err(_) if self.readable => {}
                Err(corrupt) => {
                    self.ended = true;
                    return Some(Err(self.corrupt(corrupt)));
                }
            }
        }
        None
    }
}
