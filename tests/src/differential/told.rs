//! What the watches of a stream told, without the batches in which they did.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, ReflectMessage as _, Value};
use revstore_proto::etcdserverpb::WatchResponse;

use crate::scenario::message;
use crate::scenario::normal::Names;
use crate::scenario::run::status_text;
use crate::scenario::stream::{Told, WHOLE_STREAM};

/// For each watch of a stream, line by line, what it told; the end of the stream stands under none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story(pub BTreeMap<Option<i64>, Vec<String>>);

/// How far each living watch of a stream has come, to notice what no server may do.
#[derive(Clone, Debug, Default)]
pub struct Positions(BTreeMap<i64, Position>);

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Everything up to this revision was told.
    revision: i64,
    /// The response goes on in a further piece (WA-36).
    continues: bool,
}

impl Positions {
    /// Adds what a stream told to a story. When progress is told is a matter of time, so it is not
    /// part of it.
    ///
    /// # Errors
    /// When a watch tells the events of one revision in two batches (WA-31), goes back behind its
    /// events (WA-30) or the progress it has told (WA-51, WA-55), or has a header that is behind its
    /// events (WA-32).
    pub fn follow(&mut self, told: &Told, story: &mut Story) -> Result<(), String> {
        let message = match told {
            Told::Message(message) => message,
            Told::End(status) => {
                let end = status.as_ref().map_or("OK".to_owned(), status_text);
                story.0.entry(None).or_default().push(format!("end {end}"));
                return Ok(());
            }
        };
        let response: WatchResponse = message.transcode_to().map_err(|error| error.to_string())?;
        if message.descriptor().name() != "WatchResponse" || response.created || response.canceled {
            if response.created && !response.canceled {
                self.0.insert(response.watch_id, Position::default());
            } else {
                self.0.remove(&response.watch_id);
            }
            let lines = story.0.entry(Some(response.watch_id)).or_default();
            lines.push(message::line(message));
            return Ok(());
        }
        let wrong = |before: &Position| format!("after {before:?}: {}", message::line(message));
        let header = response.header.as_ref().map_or(0, |header| header.revision);
        if response.events.is_empty() {
            // Replies to requests overtake the progress of the whole stream, so a watch that has told
            // nothing yet may be younger than that.
            let all = response.watch_id == WHOLE_STREAM;
            let covered = self
                .0
                .iter_mut()
                .filter(|(id, position)| **id == response.watch_id || all && position.revision > 0);
            for (_, position) in covered {
                if header < position.revision {
                    return Err(wrong(position));
                }
                position.revision = header;
            }
            return Ok(());
        }
        let revisions = response
            .events
            .iter()
            .map(|event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision));
        let revisions: Vec<i64> = revisions.collect();
        let (first, last) = (revisions[0], revisions[revisions.len() - 1]);
        let position = Position {
            revision: last,
            continues: response.fragment,
        };
        let before = self.0.insert(response.watch_id, position);
        let before = before.unwrap_or_default();
        let follows = first > before.revision || before.continues && first == before.revision;
        if !follows || header < last || !revisions.is_sorted() {
            return Err(wrong(&before));
        }
        let events = message.get_field_by_name("events");
        if let Some(Value::List(events)) = events.as_deref() {
            let events = events.iter().filter_map(Value::as_message);
            let lines = story.0.entry(Some(response.watch_id)).or_default();
            lines.extend(events.map(line_of));
        }
        Ok(())
    }
}

fn line_of(message: &DynamicMessage) -> String {
    message::lines(message, &Names::default()).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::message::parse;
    use crate::scenario::wire::Method;

    /// Follows responses as long as they are right; returns how many were.
    fn check(responses: &[&str], right: usize) {
        let output = Method::of_name("Watch").unwrap().output();
        let (mut positions, mut story) = (Positions::default(), Story::default());
        let followed = responses.iter().take_while(|text| {
            let message = parse(&output, text, &Names::default()).unwrap();
            let told = Told::Message(message);
            positions.follow(&told, &mut story).is_ok()
        });
        assert_eq!(followed.count(), right, "{responses:?}");
    }

    const CREATED: &str = "header { revision: 1 } created: true";
    const AT_4: &str = "header { revision: 5 } events { kv { mod_revision: 4 } }";
    const AT_5: &str = "header { revision: 5 } events { kv { mod_revision: 5 } }";
    const AT_6: &str = "header { revision: 6 } events { kv { mod_revision: 6 } }";

    #[test]
    fn events_come_once_and_in_order() {
        check(&[CREATED, AT_5, AT_6], 3);
        check(&[CREATED, AT_5, AT_5], 2);
        check(&[CREATED, AT_6, AT_5], 2);
        check(&[CREATED, "events { kv { mod_revision: 5 } }"], 1);
        let whole = "header { revision: 5 } fragment: true events { kv { mod_revision: 5 } }";
        check(&[CREATED, whole, AT_5, AT_5], 3);
    }

    #[test]
    fn progress_covers_what_was_told_before() {
        let own = "header { revision: 5 }";
        let whole = "header { revision: 5 } watch_id: -1";
        for progress in [own, whole] {
            check(&[CREATED, AT_5, progress, AT_6], 4);
            check(&[CREATED, AT_4, progress, AT_5], 3);
            check(&[CREATED, AT_6, progress], 2);
        }
        // Of another watch, and of one that came later.
        check(&[CREATED, "header { revision: 5 } watch_id: 3", AT_5], 3);
        check(&[whole, CREATED, AT_5], 3);
    }
}
