//! Lists: what they answer, and how a page of one is put together.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use revstore_engine::{KeyRange, Revision};

use crate::api::continue_token::ContinueToken;
use crate::api::keys::{Span, after};
use crate::api::status::{Expired, RequestError};
use crate::api::target::Target;
use crate::cache::objects::index::Indexed;
use crate::cache::objects::tree::{Item, Walk};
use crate::cache::resource::Resource;
use crate::encode::object::{Entry, Object, Reader};
use crate::selector::Filter;
use crate::source::{ListRequest, Source, SourceError, Stored};

/// Keys that one read of a source brings at most while a selector looks for matches.
const SCAN_PAGE_MAX: usize = 10_000;

/// What a list answers: everything about it first, then the objects one by one.
///
/// The objects of a list without a limit are filtered while they are read, so that a list of any
/// size costs one object and its encoder's buffer (WC-143). They come from one immutable snapshot:
/// no lock is held (WC-130), and nothing of a later revision is among them.
///
/// ```
/// use revstore_watch_cache::{List, RequestError};
///
/// /// The names of a list, none of whose objects is kept.
/// fn names(list: List) -> Result<Vec<String>, RequestError> {
///     list.items.map(|object| object.map(|object| object.name().to_owned())).collect()
/// }
/// ```
#[derive(Debug)]
pub struct List {
    /// `metadata.resourceVersion`.
    pub revision: Revision,
    /// `metadata.continue`: where the next page starts, if there is more (WC-221, WC-222).
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount` (WC-223).
    pub remaining_item_count: Option<u64>,
    /// The objects, ascending by key.
    pub items: Items,
}

/// The objects of a list, ascending by key (WC-134). An object that cannot be read is an error, and
/// the last item.
pub struct Items {
    from: From,
    ended: bool,
    tally: Option<Tally>,
}

/// What a list of the cache looked at and returned; counted when it is over.
pub(crate) struct Tally {
    resource: Arc<Resource>,
    fetched: u64,
    returned: u64,
}

impl Tally {
    pub(crate) fn new(resource: Arc<Resource>) -> Self {
        Self {
            resource,
            fetched: 0,
            returned: 0,
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let counters = &self.resource.counters;
        counters.list_objects_fetched.add(self.fetched);
        counters.list_objects_returned.add(self.returned);
    }
}

enum From {
    /// A snapshot of the cache.
    Snapshot {
        walk: Walk<Arc<Entry>>,
        end: Bytes,
        filter: Filter,
    },
    /// A snapshot of one of the cache's indexes.
    Index {
        walk: Walk<Indexed>,
        /// The place behind the last one.
        end: Bytes,
        filter: Filter,
    },
    /// What a source returned.
    Stored {
        items: std::vec::IntoIter<Stored>,
        reader: Reader,
        filter: Filter,
    },
    Page(std::vec::IntoIter<Arc<Entry>>),
}

/// The entry if it can be read, else the error that a request for it answers.
pub(crate) fn readable(entry: Arc<Entry>) -> Result<Arc<Entry>, RequestError> {
    match entry.fault() {
        None => Ok(entry),
        Some(fault) => Err(RequestError::Internal(fault.to_string())),
    }
}

impl List {
    fn all(revision: Revision, from: From) -> Self {
        Self {
            revision,
            continue_token: None,
            remaining_item_count: None,
            items: Items {
                from,
                ended: false,
                tally: None,
            },
        }
    }

    /// A list of given objects, for those who answer in the place of a store.
    pub fn from_objects(revision: Revision, objects: &[Object]) -> Self {
        let entries: Vec<_> = objects
            .iter()
            .map(|object| object.entry().clone())
            .collect();
        Self::all(revision, From::Page(entries.into_iter()))
    }

    /// A list without a limit over a snapshot.
    pub(crate) fn of_snapshot(
        revision: Revision,
        walk: Walk<Arc<Entry>>,
        end: Bytes,
        filter: Filter,
        tally: Tally,
    ) -> Self {
        Self::all(revision, From::Snapshot { walk, end, filter }).counted(tally)
    }

    /// A list without a limit over what an index has for one value, up to the place `end`.
    pub(crate) fn of_index(
        revision: Revision,
        walk: Walk<Indexed>,
        end: Bytes,
        filter: Filter,
        tally: Tally,
    ) -> Self {
        Self::all(revision, From::Index { walk, end, filter }).counted(tally)
    }

    fn counted(mut self, tally: Tally) -> Self {
        self.items.tally = Some(tally);
        self
    }

    /// A page over a snapshot; `count` tells how many keys a span holds there.
    pub(crate) fn page_of_snapshot(
        revision: Revision,
        walk: Walk<Arc<Entry>>,
        span: &Span,
        target: &Target,
        limit: usize,
        mut tally: Tally,
        count: impl FnOnce() -> usize,
    ) -> Result<Self, RequestError> {
        let mut found = Vec::new();
        let mut more = false;
        for entry in walk.take_while(|entry| *entry.key() < *span.end) {
            if found.len() == limit {
                more = true;
                break;
            }
            tally.fetched += 1;
            let entry = readable(entry)?;
            if target.filter.passes(&entry) {
                found.push(entry);
            }
        }
        tally.returned = found.len() as u64;
        Self::page(revision, found, more, target, limit, count)
    }

    fn page(
        revision: Revision,
        found: Vec<Arc<Entry>>,
        more: bool,
        target: &Target,
        limit: usize,
        count: impl FnOnce() -> usize,
    ) -> Result<Self, RequestError> {
        let mut list = Self::all(revision, From::Page(Vec::new().into_iter()));
        if let (true, Some(last)) = (more, found.last()) {
            list.continue_token = Some(target.token(last.key(), Some(revision))?);
            // WC-223: only the keys were counted, so only they may have decided.
            if target.filter.selects_by_key_alone() {
                list.remaining_item_count = Some(count().saturating_sub(limit) as u64);
            }
        }
        list.items.from = From::Page(found.into_iter());
        Ok(list)
    }

    /// Reads a list from a source: at a revision, or at the current one.
    pub(crate) async fn read(
        source: &dyn Source,
        reader: &Reader,
        target: &Target,
        at: Option<Revision>,
        start: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Self, RequestError> {
        let span = target.scan_from(start);
        let failed = |error| read_failed(error, target, start, &span);
        let Some(limit) = limit else {
            return Self::read_all(source, reader, target, at, &span)
                .await
                .map_err(failed);
        };
        let mut found = Vec::new();
        let (mut next, mut revision) = (span.start.clone(), at);
        // Without a selector the first read has all; with one, reads grow while nothing is found.
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
            for (at, stored) in page.items.into_iter().enumerate() {
                next = after(&stored.key);
                let entry = readable(reader.read(stored))?;
                if target.filter.passes(&entry) {
                    found.push(entry);
                }
                if found.len() == limit {
                    let more = page.more || at + 1 < fetched;
                    return Self::page(page.revision, found, more, target, limit, || count);
                }
            }
            if !page.more {
                return Self::page(page.revision, found, false, target, limit, || count);
            }
            page_size = (page_size * 2).min(SCAN_PAGE_MAX);
        }
    }

    /// Fails if a source cannot be read at a revision any more, or not yet, as a list would.
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
        reader: &Reader,
        target: &Target,
        at: Option<Revision>,
        span: &Span,
    ) -> Result<Self, SourceError> {
        let request = ListRequest {
            range: span.range(),
            at,
            limit: None,
        };
        let page = source.list(request).await?;
        let from = From::Stored {
            items: page.items.into_iter(),
            reader: reader.clone(),
            filter: target.filter.clone(),
        };
        Ok(Self::all(page.revision, from))
    }

    /// The objects, all at once.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn into_objects(self) -> Result<Vec<Object>, RequestError> {
        self.items.collect()
    }
}

/// What a request answers when its source could not read.
fn read_failed(
    error: SourceError,
    target: &Target,
    start: Option<&str>,
    span: &Span,
) -> RequestError {
    match error {
        SourceError::Compacted if start.is_some() => {
            // WC-234: the same place, at the latest revision.
            let place = span.start.strip_prefix(&*target.prefix);
            let token = place.and_then(|place| std::str::from_utf8(place).ok());
            RequestError::Expired(Expired::Continue {
                token: token.map(|start| {
                    ContinueToken {
                        at: None,
                        start: start.to_owned(),
                    }
                    .encode()
                }),
            })
        }
        SourceError::Compacted => RequestError::Expired(Expired::List),
        SourceError::Future { requested, current } => RequestError::TooLarge {
            asked: requested,
            current,
        },
        SourceError::Replaced { known, found } => {
            RequestError::Expired(Expired::Replaced { known, found })
        }
        SourceError::Unavailable(why) => RequestError::Internal(why),
    }
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items").finish_non_exhaustive()
    }
}

impl Iterator for Items {
    type Item = Result<Object, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.ended {
                return None;
            }
            let (entry, filter) = match &mut self.from {
                From::Snapshot { walk, end, filter } => {
                    let entry = walk.next().filter(|entry| *entry.key() < **end)?;
                    (entry, Some(&*filter))
                }
                From::Index { walk, end, filter } => {
                    let indexed = walk.next().filter(|found| *found.key() < **end)?;
                    (indexed.entry, Some(&*filter))
                }
                From::Stored {
                    items,
                    reader,
                    filter,
                } => (reader.read(items.next()?), Some(&*filter)),
                From::Page(entries) => (entries.next()?, None),
            };
            if let Some(tally) = &mut self.tally {
                tally.fetched += 1;
            }
            match readable(entry) {
                Ok(entry) if filter.is_none_or(|filter| filter.passes(&entry)) => {
                    if let Some(tally) = &mut self.tally {
                        tally.returned += 1;
                    }
                    return Some(Ok(Object::new(entry)));
                }
                Ok(_) => {}
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
