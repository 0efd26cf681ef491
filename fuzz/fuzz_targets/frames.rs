//! Runs the scripts that libFuzzer generates on connections in memory: frames of HTTP/2 and messages of HTTP/1.1.
//! `host/tests/frames` runs scripts from a fixed seed with the same code.

#![no_main]

#[path = "../../host/tests/frames/runner.rs"]
mod runner;
#[path = "../../host/tests/frames/script.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|script: &[u8]| runner::run(script));
