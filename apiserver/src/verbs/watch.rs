//! Watches.

use revstore_watch_cache::RequestError;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::StatusCode;
use revstore_watch_cache::CacheWatcher;
use revstore_watch_cache::api::CollectionOptions;
use revstore_watch_cache::status::Status;

use crate::catalog::{Resource, Stored};
use crate::http::{Answer, Body, Chunks, Exchange, Form, Media, Target};
use crate::verbs::list::{check_fields, scope};
use crate::verbs::offer;
use crate::verbs::read::Include;

/// The size from which events that are ready are sent, before further ones are looked at.
const CHUNK_BYTES: usize = 32 << 10;

/// Answers a watch.
pub(crate) async fn watch(
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Answer, RequestError> {
    let forms = [Form::Whole, Form::Table, Form::Metadata];
    let accepted = exchange.negotiate(offer(resource, &forms))?;
    let mut query = exchange.query.clone();
    query.set("watch", "true");
    let _ = target;
    let options = CollectionOptions::from_query(&query)?;
    let CollectionOptions::Watch(mut options) = options else {
        return Err(Status::bad_request("the request is a list").into());
    };
    check_fields(resource, &options.selector)?;
    if options.timeout.is_none() {
        options.timeout = Some(Duration::from_secs(1800));
    }
    let watcher = stored.cache.watch(&scope(target), &options).await?;
    let _ = Include::of(exchange)?;
    let _ = accepted;
    let chunks = WatchChunks { watcher };
    Ok(Answer::new(
        StatusCode::OK,
        Media::Json.content_type(),
        Body::chunks(chunks),
    ))
}

/// The chunks of a watch.
struct WatchChunks {
    watcher: CacheWatcher,
}

impl Chunks for WatchChunks {
    fn poll_chunk(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let mut chunk: Option<Vec<u8>> = None;
        loop {
            match Pin::new(&mut this.watcher).poll_next(context) {
                Poll::Ready(Some(event)) => {
                    let bytes = this.watcher.encode(&event);
                    let out = chunk.get_or_insert_default();
                    out.extend_from_slice(&bytes);
                    if out.len() >= CHUNK_BYTES {
                        break;
                    }
                }
                Poll::Ready(None) if chunk.is_none() => return Poll::Ready(None),
                Poll::Pending if chunk.is_none() => return Poll::Pending,
                _ => break,
            }
        }
        Poll::Ready(chunk.map(Into::into))
    }
}
