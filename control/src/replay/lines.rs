//! Journals in files: a record as a JSON object in each line.

use std::io::{BufRead, Read};

use prost::Message;

use super::ReplayError;
use crate::proto::JournalRecord;
use crate::service::read_response_line;

/// The maximum length of a line.
pub const LINE_BYTES_MAX: u64 = 1024 * 1024;

/// The maximum length of a journal.
pub const JOURNAL_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Reads the records of a journal, with the numbers of their lines.
pub(super) fn read(mut from: impl BufRead) -> Result<Vec<(u64, JournalRecord)>, ReplayError> {
    let (mut records, mut text) = (Vec::new(), Vec::new());
    let (mut line, mut bytes) = (0, 0);
    loop {
        line += 1;
        text.clear();
        let read = from.by_ref().take(LINE_BYTES_MAX + 1);
        let length = { read }.read_until(b'\n', &mut text)? as u64;
        if length == 0 {
            return Ok(records);
        }
        let damaged = |problem| ReplayError::Damaged { line, problem };
        if length > LINE_BYTES_MAX {
            return Err(damaged(format!("more than {LINE_BYTES_MAX} bytes")));
        }
        bytes += length;
        if bytes > JOURNAL_BYTES_MAX {
            let problem = format!("the journal has more than {JOURNAL_BYTES_MAX} bytes");
            return Err(damaged(problem));
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let record = read_response_line("JournalRead", &text).map_err(|status| {
            damaged(
                status
                    .message()
                    .replace(" at line 1 column ", " at column "),
            )
        })?;
        let record = JournalRecord::decode(&*record).map_err(|error| damaged(error.to_string()))?;
        records.push((line, record));
    }
}
