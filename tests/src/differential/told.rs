//! What the watches of a stream told, without the batches in which they did.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, Value};
use revstore_proto::etcdserverpb::WatchResponse;

use crate::scenario::message;
use crate::scenario::normal::Names;
use crate::scenario::run::status_text;
use crate::scenario::stream::Told;

/// For each watch of a stream, line by line, what it told; the end of the stream stands under none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story(pub BTreeMap<Option<i64>, Vec<String>>);

/// What was told last by each watch of a stream, to notice what no server may do.
#[derive(Clone, Debug, Default)]
pub struct Positions(BTreeMap<i64, i64>);

impl Positions {
    /// Adds what a stream told to a story.
    ///
    /// # Errors
    /// When a watch tells the events of one revision in two batches (WA-31), goes back (WA-30), or
    /// has a header that is behind its events (WA-32).
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
        let lines = story.0.entry(Some(response.watch_id)).or_default();
        if response.events.is_empty() {
            if response.created || response.canceled {
                self.0.remove(&response.watch_id);
            }
            lines.push(message::line(message));
            return Ok(());
        }
        let revisions = response
            .events
            .iter()
            .map(|event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision));
        let revisions: Vec<i64> = revisions.collect();
        let (first, last) = (revisions[0], revisions[revisions.len() - 1]);
        let before = self.0.insert(response.watch_id, last).unwrap_or(0);
        let header = response.header.map_or(0, |header| header.revision);
        if first <= before || header < last || !revisions.is_sorted() {
            return Err(format!("after {before}: {}", message::line(message)));
        }
        let events = message.get_field_by_name("events");
        if let Some(Value::List(events)) = events.as_deref() {
            let events = events.iter().filter_map(Value::as_message);
            lines.extend(events.map(line_of));
        }
        Ok(())
    }
}

fn line_of(message: &DynamicMessage) -> String {
    message::lines(message, &Names::default()).join(" ")
}
