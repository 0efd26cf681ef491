//! Values that a kube-apiserver has written, in the form in which this server writes them.

use bytes::Bytes;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use revstore_engine::{KeyRange, Revision};
use revstore_kinds as kinds;
use revstore_watch_cache::registry::JsonObject;
use revstore_watch_cache::source::{
    Batch, BatchStream, ConditionalWrite, ListPage, ListRequest, Source, SourceError,
    StoredKeyValue, VersionOutcome, VersionWrite, WatchRequest, WriteOutcome,
};
use serde::Serializer as _;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::builtin;
use crate::custom::definition;

/// A source that returns values as this server writes them: in JSON, with the defaults of their fields, and definitions
/// of custom resources in `v1`. A kube-apiserver stores most objects in protobuf, without the defaults of fields that it
/// sets whenever it reads them, and definitions in `v1beta1`.
///
/// Values that cannot be converted stay as they are, and are reported as corrupt objects.
#[derive(Debug)]
pub(crate) struct Transcoded {
    source: Arc<dyn Source>,
}

impl Transcoded {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self { source }
    }
}

/// How objects of built-in kinds begin in JSON that a kube-apiserver has written. This server writes the API version
/// first.
const FOREIGN_JSON: &[u8] = br#"{"kind":""#;

/// Returns a value as this server writes it, if it is in another form.
fn to_json(value: &Bytes) -> Option<Bytes> {
    let parsed = if value.starts_with(kinds::MAGIC) {
        kinds::from_protobuf(value).ok()?
    } else if value.starts_with(FOREIGN_JSON) {
        serde_json::from_slice(value).ok()?
    } else {
        return None;
    };
    let Value::Object(mut object) = parsed else {
        return None;
    };
    if object
        .get("kind")
        .is_some_and(|kind| kind == definition::KIND)
    {
        definition::to_v1(&mut object);
    }
    builtin::set_defaults(&mut object);
    write(&object, value.len())
}

/// Writes an object. The API version and the kind come first, as in the values that this server writes.
fn write(object: &JsonObject, length: usize) -> Option<Bytes> {
    const FIRST: [&str; 2] = ["apiVersion", "kind"];
    let first = FIRST
        .iter()
        .filter_map(|field| object.get_key_value(*field));
    let rest = object
        .iter()
        .filter(|(field, _)| !FIRST.contains(&field.as_str()));
    let mut json = Vec::with_capacity(2 * length);
    serde_json::Serializer::new(&mut json)
        .collect_map(first.chain(rest))
        .ok()?;
    json.shrink_to_fit();
    Some(json.into())
}

fn transcode(stored: &mut StoredKeyValue) {
    if let Some(json) = to_json(&stored.value) {
        stored.value = json;
    }
}

impl Source for Transcoded {
    fn current_revision(&self) -> BoxFuture<'_, Result<Revision, SourceError>> {
        self.source.current_revision()
    }

    fn oldest_revision(&self) -> Option<Revision> {
        self.source.oldest_revision()
    }

    fn replacements(&self) -> u64 {
        self.source.replacements()
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        Box::pin(async move {
            let mut page = self.source.list(request).await?;
            page.items.iter_mut().for_each(transcode);
            Ok(page)
        })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<BatchStream, SourceError>> {
        Box::pin(async move {
            let batches = self.source.watch(request).await?;
            Ok(Box::pin(TranscodedBatches { batches }) as BatchStream)
        })
    }

    fn write(&self, write: ConditionalWrite) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        Box::pin(async move {
            let mut outcome = self.source.write(write).await?;
            if let WriteOutcome::Differs(Some(found)) = &mut outcome {
                transcode(found);
            }
            Ok(outcome)
        })
    }

    fn write_with(
        &self,
        write: ConditionalWrite,
        others: Vec<ConditionalWrite>,
    ) -> BoxFuture<'_, Result<WriteOutcome, SourceError>> {
        Box::pin(async move {
            let mut outcome = self.source.write_with(write, others).await?;
            if let WriteOutcome::Differs(Some(found)) = &mut outcome {
                transcode(found);
            }
            Ok(outcome)
        })
    }

    fn write_version(
        &self,
        write: VersionWrite,
    ) -> BoxFuture<'_, Result<VersionOutcome, SourceError>> {
        self.source.write_version(write)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), SourceError>> {
        self.source.compact(revision)
    }

    fn watch_range(&self, needed: Option<KeyRange>) -> KeyRange {
        self.source.watch_range(needed)
    }

    fn requests_progress(&self) -> bool {
        self.source.requests_progress()
    }

    fn request_progress(&self) {
        self.source.request_progress();
    }
}

/// The batches of a watch, with their values as JSON.
struct TranscodedBatches {
    batches: BatchStream,
}

impl Stream for TranscodedBatches {
    type Item = Result<Batch, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.batches.as_mut().poll_next(context);
        next.map(|next| {
            next.map(|batch| {
                let mut batch = batch?;
                for change in &mut batch.changes {
                    for stored in [&mut change.new, &mut change.previous]
                        .into_iter()
                        .flatten()
                    {
                        transcode(stored);
                    }
                }
                Ok(batch)
            })
        })
    }
}
