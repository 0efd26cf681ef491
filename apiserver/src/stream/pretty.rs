//! Compact JSON, indented for people.

use bytes::Bytes;
use revstore_watch_cache::RequestError;

use super::Pieces;

/// Indents pieces by two spaces for each level, as Go does.
pub(crate) struct PrettyPieces {
    /// `None` at the end.
    pieces: Option<Pieces>,
    depth: usize,
    place: Place,
    /// Whether an object or array has begun, and nothing is in it yet.
    is_open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    Text,
    /// Behind a backslash.
    Escape,
}

/// Returns a whole value of compact JSON, indented. The members of objects keep their order.
pub(crate) fn indented(json: &[u8]) -> Vec<u8> {
    PrettyPieces::new(Box::new(std::iter::empty())).write(json)
}

impl PrettyPieces {
    pub(crate) fn new(pieces: Pieces) -> Self {
        Self {
            pieces: Some(pieces),
            depth: 0,
            place: Place::Outside,
            is_open: false,
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }

    fn write(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len() * 2);
        for &byte in piece {
            match (self.place, byte) {
                (Place::Escape, _) => self.place = Place::Text,
                (Place::Text, b'\\') => self.place = Place::Escape,
                (Place::Text, b'"') => self.place = Place::Outside,
                (Place::Text, _) => {}
                (Place::Outside, b' ' | b'\n' | b'\r' | b'\t') => continue,
                (Place::Outside, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    if !std::mem::take(&mut self.is_open) {
                        self.new_line(&mut out);
                    }
                }
                (Place::Outside, b',') => {
                    out.push(b',');
                    self.new_line(&mut out);
                    continue;
                }
                (Place::Outside, b':') => {
                    out.extend_from_slice(b": ");
                    continue;
                }
                (Place::Outside, _) => {
                    if std::mem::take(&mut self.is_open) {
                        self.new_line(&mut out);
                    }
                    match byte {
                        b'"' => self.place = Place::Text,
                        b'{' | b'[' => {
                            self.depth += 1;
                            self.is_open = true;
                        }
                        _ => {}
                    }
                }
            }
            out.push(byte);
        }
        out
    }
}

impl Iterator for PrettyPieces {
    type Item = Result<Bytes, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.pieces.as_mut()?.next() {
            Some(Ok(piece)) => Some(Ok(self.write(&piece).into())),
            Some(Err(error)) => {
                self.pieces = None;
                Some(Err(error))
            }
            None => {
                self.pieces = None;
                Some(Ok(Bytes::from_static(b"\n")))
            }
        }
    }
}
