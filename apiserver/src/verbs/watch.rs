//! Watches.

use revstore_watch_cache::RequestError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use futures_core::Stream;
use http::StatusCode;
use revstore_watch_cache::api::CollectionOptions;
use revstore_watch_cache::encode::Encoder;
use revstore_watch_cache::selector::{FieldRequirement, FieldSelector, Selector};
use revstore_watch_cache::status::Status;
use revstore_watch_cache::{CacheWatcher, WatchEvent};

use crate::catalog::{Resource, Stored, form_id, protobuf_form_id};
use crate::control::ControlledEvents;
use crate::custom::conversion::ConvertedWatch;
use crate::http::websocket::{self, Messages, Opcode};
use crate::http::{Answer, Body, Chunks, Exchange, Form, Front, InTurns, Media, Target};
use crate::metrics::Running;
use crate::verbs::collection_offer;
use crate::verbs::list::{resolve_fields, scope};
use crate::verbs::read::include;

/// The size from which events that are ready are sent, before further ones are looked at.
const CHUNK_BYTES: usize = 32 << 10;

/// The size of the length before each event in protobuf.
const LENGTH_BYTES: usize = 4;

/// Answers a watch.
pub(crate) async fn watch(
    front: &Front,
    exchange: &Exchange,
    resource: &Resource,
    stored: &Stored,
    target: &Target,
) -> Result<Answer, RequestError> {
    let forms = [Form::Whole, Form::Table, Form::Metadata];
    let accepted = exchange.negotiate(collection_offer(resource, &forms))?;
    accepted.check_stream()?;
    let mut query = exchange.query.clone();
    query.set("watch", "true");
    let options = CollectionOptions::from_query(&query)?;
    let CollectionOptions::Watch(mut options) = options else {
        return Err(Status::bad_request("the request is a list").into());
    };
    resolve_fields(resource, &mut options.selector)?;
    if !target.name.is_empty() {
        select_name(&mut options.selector, &target.name)?;
    }
    let is_known = resource.verbs.iter().any(|verb| *verb == "watch");
    if !is_known {
        options.check()?;
        return Err(Status::method_not_allowed(&resource.names.resource_name(), "watch").into());
    }
    if options.timeout.is_none() {
        options.timeout = Some(front.watch_timeout());
    }
    let watcher = stored.cache.watch(&scope(target), &options).await?;
    let watcher = match &resource.converter {
        None => Events::Plain(watcher),
        Some(converter) => Events::Converted(ConvertedWatch::new(watcher, converter.clone())),
    };
    let watcher = match &exchange.control {
        None => watcher,
        Some(control) => {
            let events = control.watch.watch(watcher, &options);
            Events::Controlled(events)
        }
    };
    let id = match (
        accepted.media,
        protobuf_form_id(resource.version, accepted.into()),
    ) {
        (Media::Protobuf, Some(id)) => id,
        _ => form_id(
            resource.version,
            accepted.into(),
            include(exchange, accepted.form)?,
        ),
    };
    let content_type = match accepted.media {
        Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => Media::Json.content_type(),
    };
    let encoder = stored.cache.encoder(id);
    let encoder = encoder.ok_or_else(|| RequestError::Internal("a form is missing".to_owned()))?;
    let opcode = match accepted.media {
        Media::Protobuf => Opcode::Binary,
        _ => Opcode::Text,
    };
    let time_limit = options.timeout.unwrap_or_default();
    let messages = WatchMessages {
        chunks: WatchChunks {
            watcher,
            encoder,
            _running: front.requests.start_watch(&exchange.labels()),
        },
        opcode,
    };
    let chunks = match websocket::open(exchange, opcode, messages, time_limit) {
        Ok(answer) => return Ok(answer),
        Err(messages) => messages.chunks,
    };
    Ok(Answer::new(
        StatusCode::OK,
        content_type,
        Body::chunks(InTurns::new(chunks)),
    ))
}

/// Restricts a watch to the object that its path names.
fn select_name(selector: &mut Selector, name: &str) -> Result<(), RequestError> {
    let mut requirements = selector.fields.requirements.iter();
    let is_other = |requirement: &FieldRequirement| {
        requirement.field == "metadata.name" && (requirement.value == name) != requirement.equal
    };
    if requirements.any(is_other) {
        let message = "fieldSelector metadata.name doesn't match requested name";
        return Err(RequestError::BadRequest(message.to_owned()));
    }
    let named = FieldSelector::equals("metadata.name", name);
    selector.fields.requirements.extend(named.requirements);
    Ok(())
}

/// The events of a watch.
pub(crate) enum Events {
    Plain(CacheWatcher),
    /// Those of a resource whose objects a webhook converts.
    Converted(ConvertedWatch),
    /// Those on a server with control.
    Controlled(ControlledEvents),
}

impl Events {
    /// Makes the next bookmark due now, of a watch that has bookmarks.
    pub(crate) fn request_bookmark(&mut self) {
        match self {
            Self::Plain(watcher) => watcher.request_bookmark(),
            Self::Converted(watch) => watch.request_bookmark(),
            Self::Controlled(_) => {}
        }
    }

    /// Sets the number under which the bookmarks and the end of the watch are listed.
    pub(crate) fn set_number(&mut self, number: u64) {
        match self {
            Self::Plain(watcher) => watcher.set_number(number),
            Self::Converted(watch) => watch.set_number(number),
            Self::Controlled(_) => {}
        }
    }

    /// Returns whether it is worth to poll for a further event that is sent together with one.
    fn may_be_ready(&self) -> bool {
        match self {
            Self::Plain(watcher) => watcher.may_be_ready(),
            Self::Converted(_) | Self::Controlled(_) => true,
        }
    }

    /// Leaves the events for later, although the task was woken.
    pub(crate) fn defer(&mut self) {
        match self {
            Self::Plain(watcher) => watcher.defer(),
            Self::Converted(watch) => watch.defer(),
            Self::Controlled(_) => {}
        }
    }

    /// Returns whether the body breaks off at their end.
    fn is_cut(&self) -> bool {
        matches!(self, Self::Controlled(events) if events.is_cut())
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        match self {
            Self::Plain(watcher) => Pin::new(watcher).poll_next(context),
            Self::Converted(watch) => Pin::new(watch).poll_next(context),
            Self::Controlled(events) => events.poll_next(context),
        }
    }
}

/// The chunks of a watch.
struct WatchChunks {
    watcher: Events,
    encoder: Encoder,
    /// Counts the watch.
    _running: Option<Running>,
}

/// The messages of a watch over a WebSocket: an event each.
struct WatchMessages {
    chunks: WatchChunks,
    opcode: Opcode,
}

impl Messages for WatchMessages {
    fn poll_message(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let WatchMessages { chunks, opcode } = self.get_mut();
        let next = chunks.watcher.poll_next(context);
        next.map(|event| {
            let mut bytes = chunks.encoder.event(&event?);
            if *opcode == Opcode::Binary {
                // Messages have a length already.
                bytes.advance(LENGTH_BYTES.min(bytes.len()));
            }
            Some(bytes)
        })
    }
}

impl Chunks for WatchChunks {
    fn poll_chunk(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RequestError>>> {
        let this = self.get_mut();
        // One event is not copied, as all watches share its bytes.
        let mut chunk = Bytes::new();
        let mut several: Vec<u8> = Vec::new();
        loop {
            match this.watcher.poll_next(context) {
                Poll::Ready(Some(event)) => {
                    let bytes = this.encoder.event(&event);
                    if chunk.is_empty() {
                        chunk = bytes;
                    } else {
                        if several.is_empty() {
                            several.extend_from_slice(&chunk);
                        }
                        several.extend_from_slice(&bytes);
                    }
                    if chunk.len().max(several.len()) >= CHUNK_BYTES || !this.watcher.may_be_ready()
                    {
                        break;
                    }
                }
                Poll::Ready(None) if chunk.is_empty() => {
                    let cut = this.watcher.is_cut().then(|| {
                        let message = "the watch was cut by a fault";
                        Err(RequestError::Internal(message.to_owned()))
                    });
                    return Poll::Ready(cut);
                }
                Poll::Pending if chunk.is_empty() => return Poll::Pending,
                _ => break,
            }
        }
        if !several.is_empty() {
            chunk = several.into();
        }
        Poll::Ready(Some(Ok(chunk)))
    }
}
