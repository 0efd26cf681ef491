//! Encoding of watch events, once for all watchers.

use bytes::Bytes;

use crate::api::event::WatchEvent;
use crate::cache::resource::Resource;
use crate::encode::kind::{Notice, written};

/// Writes an event for clients, or finds that it was written for another watcher.
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
                written(|out| kind.write_event(*event, object.entry(), object.revision(), out))
            };
            match &shared.0 {
                Some(logged) => logged.frame(*event, resource.frame_sum(), encode),
                None => encode(),
            }
        }
        WatchEvent::Bookmark {
            revision,
            initial_events_end,
        } => written(|out| {
            let notice = Notice::Bookmark {
                revision: *revision,
                initial_events_end: *initial_events_end,
            };
            kind.write_notice(notice, out);
        }),
        WatchEvent::Error(error) => written(|out| kind.write_notice(Notice::Error(error), out)),
    };
    let written = bytes.len() as u64;
    resource.counters.event_bytes.add(written);
    resource.counters.bytes_written.add(written);
    bytes
}
