//! Encoding of responses: objects, lists and watch events in one form. What other clients also need is
//! encoded once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::api::event::{Shared, WatchEvent};
use crate::api::list::{ListItems, ObjectList};
use crate::api::status::RequestError;
use crate::cache::resource::Resource;
use crate::encode::form::{ControlEvent, ListHead, RegisteredForm};
use crate::encode::kind::encoded_with;
use crate::encode::object::Object;
use crate::encode::sharing::{EncodingKey, Part};

/// The size in bytes that the chunks of a list approach. A chunk of one item may be larger.
const CHUNK_BYTES: usize = 32 << 10;

/// An encoder of one response in one form of a resource. Created by
/// [`ResourceCache::encoder`](crate::ResourceCache::encoder).
///
/// ```
/// use std::sync::Arc;
/// use revstore_engine::Engine;
/// use pollster::block_on;
/// use revstore_watch_cache::encode::{FormId, JsonForm, MetadataForm};
/// use revstore_watch_cache::{
///     EngineSource, JsonKind, ListOptions, ResourceConfig, Scope, WatchCache, WatchOptions,
/// };
///
/// const METADATA: FormId = FormId(1);
/// let engine = Engine::builder().build();
/// let (cache, feeder) = WatchCache::builder(Arc::new(EngineSource::new(engine.clone()))).build();
/// let metadata = MetadataForm::of(Arc::new(JsonForm::new("v1", "Pod")));
/// let pods = cache.add(
///     ResourceConfig::namespaced(JsonKind::new("v1", "Pod"), "pods", "/pods")
///         .form(METADATA, Arc::new(metadata)),
/// )?;
/// let _running = feeder.spawn();
/// block_on(pods.wait_until_ready())?;
/// engine.put("/pods/ns/a", r#"{"metadata":{"name":"a"},"spec":{}}"#)?;
///
/// let mut encoder = pods.encoder(METADATA).expect("the resource has the form");
/// let mut watcher = block_on(pods.watch(&Scope::All, &WatchOptions::default()))?;
/// let event = watcher.next_blocking().expect("the watcher has not ended");
/// assert_eq!(
///     &encoder.event(&event)[..],
///     concat!(
///         r#"{"type":"ADDED","object":{"kind":"PartialObjectMetadata","#,
///         r#""apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"2","name":"a"}}}"#,
///         "\n"
///     ).as_bytes()
/// );
///
/// let list = block_on(pods.list(&Scope::All, &ListOptions::default()))?;
/// let encoder = pods.encoder(METADATA).expect("the resource has the form");
/// let chunks: Vec<_> = encoder.list(list).collect::<Result<_, _>>()?;
/// assert!(chunks.concat().starts_with(br#"{"kind":"PartialObjectMetadataList","#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Encoder {
    resource: Arc<Resource>,
    form: RegisteredForm,
    is_first: bool,
}

impl Encoder {
    pub(crate) fn new(resource: Arc<Resource>, form: RegisteredForm) -> Self {
        Self {
            resource,
            form,
            is_first: true,
        }
    }

    /// Encodes the next event of a watch. An event of the window is encoded once for all watchers with
    /// the form, and they share the bytes. So do, for a short time, watchers that start with the same
    /// objects.
    // WC-142.
    pub fn event(&mut self, event: &WatchEvent) -> Bytes {
        let is_first = std::mem::replace(&mut self.is_first, false);
        encode_event(&self.resource, &self.form, event, is_first)
    }

    /// Encodes an object as the whole response.
    pub fn object(&self, object: &Object) -> Bytes {
        let form = &*self.form.form;
        let bytes = encoded_with(|out| form.write_object(object, out));
        let written = bytes.len() as u64;
        self.resource.counters.bytes_written.add(written);
        bytes
    }

    /// Encodes a list in chunks. Their memory does not grow with the list, unless the form
    /// [needs](crate::encode::Form::needs_items_bytes) all items before the first one is sent.
    ///
    /// The chunks end with an error if an object of the list cannot be decoded.
    pub fn list(self, list: ObjectList) -> ListChunks {
        let head = ListHead {
            revision: list.revision,
            continue_token: list.continue_token,
            remaining_item_count: list.remaining_item_count,
            items_bytes: None,
        };
        ListChunks {
            encoder: self,
            head,
            items: list.items,
            ready: Vec::new().into_iter(),
            stage: Stage::Head,
        }
    }

    /// Appends an item of a list.
    fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        let form = &*self.form.form;
        if !form.shares_items() || object.revision() != object.mod_revision() {
            form.write_item(object, out);
            return;
        }
        out.extend_from_slice(&self.item(object));
    }

    /// Returns an item of a list, which other lists share.
    fn item(&self, object: &Object) -> Bytes {
        let form = &*self.form.form;
        let key = EncodingKey {
            form: self.form.number,
            part: Part::Item,
        };
        let times = times(&self.resource, &self.form);
        let kept = &self.resource.shared.kept;
        kept.get(object.stored(), key, times, || {
            encoded_with(|out| form.write_item(object, out))
        })
    }
}

/// Returns the current time, if the form needs it, and the time for which encodings are shared.
fn times(resource: &Resource, form: &RegisteredForm) -> (Duration, Option<Duration>) {
    match form.form.shared_for() {
        None => (Duration::ZERO, None),
        limit => (resource.shared.timers.now(), limit),
    }
}

/// Encodes an event for clients, or returns the bytes that were encoded for another watcher.
pub(crate) fn encode_event(
    resource: &Resource,
    registered: &RegisteredForm,
    event: &WatchEvent,
    is_first: bool,
) -> Bytes {
    let form = &*registered.form;
    let is_first = is_first && form.differs_in_first_event();
    let bytes = match event {
        WatchEvent::Object {
            event,
            object,
            shared,
        } => {
            let encode = || {
                resource.counters.events_encoded.add(1);
                encoded_with(|out| form.write_event(*event, object, is_first, out))
            };
            let key = EncodingKey {
                form: registered.number,
                part: Part::Event(*event, is_first),
            };
            let times = times(resource, registered);
            match &shared.0 {
                Shared::Window(in_window) => {
                    let sum = resource.encoded_bytes();
                    in_window.encodings.get(key, times, sum, encode)
                }
                Shared::Initial => resource
                    .shared
                    .kept
                    .get(object.stored(), key, times, encode),
                Shared::Not => encode(),
            }
        }
        WatchEvent::Bookmark {
            revision,
            initial_events_end,
        } => encoded_with(|out| {
            let bookmark = ControlEvent::Bookmark {
                revision: *revision,
                initial_events_end: *initial_events_end,
            };
            form.write_control_event(bookmark, is_first, out);
        }),
        WatchEvent::Error(error) => encoded_with(|out| {
            form.write_control_event(ControlEvent::Error(error), is_first, out);
        }),
    };
    let size = bytes.len() as u64;
    resource.counters.event_bytes.observe(size);
    resource.counters.bytes_written.add(size);
    bytes
}

/// A list in chunks of about 32 KiB. Created by [`Encoder::list`].
#[derive(Debug)]
pub struct ListChunks {
    encoder: Encoder,
    head: ListHead,
    items: ListItems,
    /// The items of a list whose size had to be known.
    ready: std::vec::IntoIter<Bytes>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was written.
    Head,
    /// The head was written, and nothing else.
    FirstItem,
    /// An item was written.
    Items,
    /// All was written, or an object could not be decoded.
    Ended,
}

impl ListChunks {
    /// Encodes all items, and learns their size.
    fn encode_items(&mut self) -> Result<(), RequestError> {
        let separator = self.encoder.form.form.separator().len();
        let mut encoded = Vec::new();
        let mut bytes = 0;
        for object in &mut self.items {
            let mut item = Vec::new();
            self.encoder.write_item(&object?, &mut item);
            bytes += item.len();
            encoded.push(Bytes::from(item));
        }
        self.head.items_bytes = Some(bytes + encoded.len().saturating_sub(1) * separator);
        self.ready = encoded.into_iter();
        Ok(())
    }

    /// Appends the next item, with the separator before it. Returns whether there was one.
    fn write_next(&mut self, out: &mut Vec<u8>) -> Result<bool, RequestError> {
        let from = out.len();
        if self.stage == Stage::Items {
            out.extend_from_slice(self.encoder.form.form.separator());
        }
        if let Some(item) = self.ready.next() {
            out.extend_from_slice(&item);
        } else if let Some(object) = self.items.next() {
            self.encoder.write_item(&object?, out);
        } else {
            out.truncate(from);
            return Ok(false);
        }
        self.stage = Stage::Items;
        Ok(true)
    }

    fn write_chunk(&mut self, out: &mut Vec<u8>) -> Result<(), RequestError> {
        if self.stage == Stage::Head {
            if self.encoder.form.form.needs_items_bytes() {
                self.encode_items()?;
            }
            self.encoder.form.form.write_list_head(&self.head, out);
            self.stage = Stage::FirstItem;
        }
        while out.len() < CHUNK_BYTES {
            if !self.write_next(out)? {
                self.encoder.form.form.write_list_tail(&self.head, out);
                self.stage = Stage::Ended;
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Iterator for ListChunks {
    type Item = Result<Bytes, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stage == Stage::Ended {
            return None;
        }
        // The last item usually exceeds the size.
        let mut out = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        if let Err(error) = self.write_chunk(&mut out) {
            self.stage = Stage::Ended;
            return Some(Err(error));
        }
        if out.len() < out.capacity() / 2 {
            out.shrink_to_fit();
        }
        let written = out.len() as u64;
        self.encoder.resource.counters.bytes_written.add(written);
        Some(Ok(out.into()))
    }
}
