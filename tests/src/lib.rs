//! Tests across the crates: conformance, real clients, faults.
