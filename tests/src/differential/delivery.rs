//! The events that the watches of a stream delivered, without their batches.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, ReflectMessage as _, Value};
use revstore_proto::etcdserverpb::WatchResponse;

use crate::scenario::message;
use crate::scenario::normalize::LeaseNames;
use crate::scenario::run::status_text;
use crate::scenario::stream::{StreamItem, WHOLE_STREAM};

/// The deliveries of each watch of a stream, line by line. The end of the stream has the key `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryLog(pub BTreeMap<Option<i64>, Vec<String>>);

/// The progress of each watch of a stream, to detect invalid deliveries.
#[derive(Clone, Debug, Default)]
pub struct DeliveryChecker(BTreeMap<i64, Delivered>);

#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    /// The events up to this revision were delivered.
    revision: i64,
    /// Whether the next response is a further fragment of the same response (WA-36).
    continues: bool,
}

impl DeliveryChecker {
    /// Adds an item of a stream to a log. Progress notifications are not added, because their time varies.
    ///
    /// # Errors
    /// If a watch delivers the events of one revision in two batches (WA-31), delivers an event that is older
    /// than earlier events (WA-30) or than its progress (WA-51, WA-55), or has a header that is older than its
    /// events (WA-32).
    pub fn observe(&mut self, item: &StreamItem, log: &mut DeliveryLog) -> Result<(), String> {
        let message = match item {
            StreamItem::Message(message) => message,
            StreamItem::End(status) => {
                let end = status.as_ref().map_or("OK".to_owned(), status_text);
                log.0.entry(None).or_default().push(format!("end {end}"));
                return Ok(());
            }
        };
        let response: WatchResponse = message.transcode_to().map_err(|error| error.to_string())?;
        if message.descriptor().name() != "WatchResponse" || response.created || response.canceled {
            if response.created && !response.canceled {
                self.0.insert(response.watch_id, Delivered::default());
            } else {
                self.0.remove(&response.watch_id);
            }
            let lines = log.0.entry(Some(response.watch_id)).or_default();
            lines.push(message::line(message));
            return Ok(());
        }
        let violation =
            |before: &Delivered| format!("after {before:?}: {}", message::line(message));
        let header = response.header.as_ref().map_or(0, |header| header.revision);
        if response.events.is_empty() {
            // A create response may arrive before an older progress notification of the whole stream. So the
            // notification may not cover a watch that has delivered nothing yet.
            let all = response.watch_id == WHOLE_STREAM;
            let covered = self.0.iter_mut().filter(|(id, delivered)| {
                **id == response.watch_id || all && delivered.revision > 0
            });
            for (_, delivered) in covered {
                if header < delivered.revision {
                    return Err(violation(delivered));
                }
                delivered.revision = header;
            }
            return Ok(());
        }
        let revisions = response
            .events
            .iter()
            .map(|event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision));
        let revisions: Vec<i64> = revisions.collect();
        let (first, last) = (revisions[0], revisions[revisions.len() - 1]);
        let delivered = Delivered {
            revision: last,
            continues: response.fragment,
        };
        let before = self.0.insert(response.watch_id, delivered);
        let before = before.unwrap_or_default();
        let follows = first > before.revision || before.continues && first == before.revision;
        if !follows || header < last || !revisions.is_sorted() {
            return Err(violation(&before));
        }
        let events = message.get_field_by_name("events");
        if let Some(Value::List(events)) = events.as_deref() {
            let events = events.iter().filter_map(Value::as_message);
            let lines = log.0.entry(Some(response.watch_id)).or_default();
            lines.extend(events.map(line_of));
        }
        Ok(())
    }
}

fn line_of(message: &DynamicMessage) -> String {
    message::lines(message, &LeaseNames::default()).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::message::parse;
    use crate::scenario::wire::Method;

    /// Checks that the first `accepted` responses are valid and the next one is an error.
    fn check(responses: &[&str], accepted: usize) {
        let output = Method::of_name("Watch").unwrap().output();
        let (mut checker, mut log) = (DeliveryChecker::default(), DeliveryLog::default());
        let valid = responses.iter().take_while(|text| {
            let message = parse(&output, text, &LeaseNames::default()).unwrap();
            let item = StreamItem::Message(message);
            checker.observe(&item, &mut log).is_ok()
        });
        assert_eq!(valid.count(), accepted, "{responses:?}");
    }

    const CREATED: &str = "header { revision: 1 } created: true";
    const AT_4: &str = "header { revision: 5 } events { kv { mod_revision: 4 } }";
    const AT_5: &str = "header { revision: 5 } events { kv { mod_revision: 5 } }";
    const AT_6: &str = "header { revision: 6 } events { kv { mod_revision: 6 } }";

    #[test]
    fn events_are_delivered_once_and_in_order() {
        check(&[CREATED, AT_5, AT_6], 3);
        check(&[CREATED, AT_5, AT_5], 2);
        check(&[CREATED, AT_6, AT_5], 2);
        check(&[CREATED, "events { kv { mod_revision: 5 } }"], 1);
        let whole = "header { revision: 5 } fragment: true events { kv { mod_revision: 5 } }";
        check(&[CREATED, whole, AT_5, AT_5], 3);
    }

    #[test]
    fn progress_covers_earlier_events_only() {
        let own = "header { revision: 5 }";
        let whole = "header { revision: 5 } watch_id: -1";
        for progress in [own, whole] {
            check(&[CREATED, AT_5, progress, AT_6], 4);
            check(&[CREATED, AT_4, progress, AT_5], 3);
            check(&[CREATED, AT_6, progress], 2);
        }
        // Progress of another watch, and a watch that was created after the progress notification was sent.
        check(&[CREATED, "header { revision: 5 } watch_id: 3", AT_5], 3);
        check(&[whole, CREATED, AT_5], 3);
    }
}
