//! Other inputs of the Kubernetes API than bodies: protobuf, options of deletions, selectors, continue tokens, schemas and
//! fields of managers. The function is that of `apiserver/tests/inputs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../apiserver/tests/inputs/check.rs"]
mod check;

fuzz_target!(|input: &[u8]| check::check(input));
