//! The rules of the built-in kinds: defaults, validation, and what updates may not change.
