//! Server-side applies, and the fields of their managers. The function is that of `apiserver/tests/inputs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../apiserver/tests/inputs/apply.rs"]
mod apply;

fuzz_target!(|input: &[u8]| apply::check(input));
