//! The items of a list in JSON.

use revstore_watch_cache::RequestError;

use super::{Pieces, internal};

/// The members of lists and tables that have the items.
const LISTS: [&[u8]; 2] = [b"\"items\"", b"\"rows\""];

/// A part of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What precedes the items, with the bracket.
    Head(Vec<u8>),
    Item(Vec<u8>),
    /// What follows the items, from the bracket on.
    Tail(Vec<u8>),
}

/// Splits the pieces of a list into parts. Has a piece and an item in memory.
pub(crate) struct Splitter {
    pieces: Pieces,
    buffer: Vec<u8>,
    /// Where the current part begins.
    begin: usize,
    /// Where the bytes begin that were not looked at.
    next: usize,
    stage: Stage,
    depth: usize,
    is_text: bool,
    is_escape: bool,
    /// Where the last text begins and ends.
    text: (usize, usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    Items,
    Tail,
    Ended,
}

impl Splitter {
    pub(crate) fn new(pieces: Pieces) -> Self {
        Self {
            pieces,
            buffer: Vec::new(),
            begin: 0,
            next: 0,
            stage: Stage::Head,
            depth: 0,
            is_text: false,
            is_escape: false,
            text: (0, 0),
        }
    }

    /// Returns the bytes of the current part up to `end`, and begins the next part at `begin`.
    fn cut(&mut self, end: usize, begin: usize) -> Vec<u8> {
        let part = self.buffer[self.begin..end].to_vec();
        self.begin = begin;
        part
    }

    /// Looks at the next byte. Returns the part that it ends.
    fn step(&mut self) -> Option<Part> {
        let at = self.next;
        let byte = self.buffer[at];
        self.next += 1;
        if self.is_text {
            if self.is_escape {
                self.is_escape = false;
            } else if byte == b'\\' {
                self.is_escape = true;
            } else if byte == b'"' {
                self.is_text = false;
                self.text.1 = at + 1;
            }
            return None;
        }
        match byte {
            b'"' => {
                self.is_text = true;
                self.text.0 = at;
            }
            b'[' if self.stage == Stage::Head
                && self.depth == 1
                && LISTS.contains(&&self.buffer[self.text.0..self.text.1]) =>
            {
                self.stage = Stage::Items;
                self.depth = 0;
                return Some(Part::Head(self.cut(at + 1, at + 1)));
            }
            b'{' | b'[' => self.depth += 1,
            b',' if self.stage == Stage::Items && self.depth == 0 => {
                return Some(Part::Item(self.cut(at, at + 1)));
            }
            b']' if self.stage == Stage::Items && self.depth == 0 => {
                self.stage = Stage::Tail;
                let item = self.cut(at, at);
                return (!item.is_empty()).then_some(Part::Item(item));
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        None
    }
}

impl Iterator for Splitter {
    type Item = Result<Part, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while self.next < self.buffer.len() && self.stage != Stage::Tail {
                if let Some(part) = self.step() {
                    return Some(Ok(part));
                }
            }
            match self.pieces.next() {
                _ if self.stage == Stage::Ended => return None,
                Some(Ok(piece)) => {
                    self.buffer.drain(..self.begin);
                    self.next = self.next.saturating_sub(self.begin);
                    self.text = (
                        self.text.0.saturating_sub(self.begin),
                        self.text.1.saturating_sub(self.begin),
                    );
                    self.begin = 0;
                    self.buffer.extend_from_slice(&piece);
                }
                Some(Err(error)) => {
                    self.stage = Stage::Ended;
                    return Some(Err(error));
                }
                None if self.stage == Stage::Tail => {
                    self.stage = Stage::Ended;
                    let end = self.buffer.len();
                    return Some(Ok(Part::Tail(self.cut(end, end))));
                }
                None => {
                    self.stage = Stage::Ended;
                    return Some(Err(internal("a list has no end")));
                }
            }
        }
    }
}
