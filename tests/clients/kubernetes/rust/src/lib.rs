//! No library: the tests are in `tests/suite`.
