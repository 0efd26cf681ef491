//! Encoding of watch events. An event of the window is encoded once, and all watchers share the
//! bytes, as with Kubernetes' `cachingObject`.

use bytes::Bytes;

use crate::api::event::WatchEvent;
use crate::cache::resource::Resource;
use crate::encode::kind::{ControlEvent, encoded_with};

/// Encodes an event for clients, or returns the bytes that were encoded for another watcher.
pub(crate) fn encode(resource: &Resource, event: &WatchEvent) -> Bytes {
    let kind = &*resource.config.kind;
    let bytes = match event {
        WatchEvent::Object {
            event,
            object,
            shared,
        } => {
            let encode = || {
                resource.counters.events_encoded.add(1);
                encoded_with(|out| {
                    kind.write_event(*event, object.stored(), object.revision(), out);
                })
            };
            match &shared.0 {
                Some(window_event) => {
                    window_event.encoded(*event, resource.encoded_bytes(), encode)
                }
                None => encode(),
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
            kind.write_control_event(bookmark, out);
        }),
        WatchEvent::Error(error) => {
            encoded_with(|out| kind.write_control_event(ControlEvent::Error(error), out))
        }
    };
    let size = bytes.len() as u64;
    resource.counters.event_bytes.observe(size);
    resource.counters.bytes_written.add(size);
    bytes
}
