//! Runs the scripts that libFuzzer generates: any requests to any method, through all layers except
//! the network. `grpc/tests/requests` runs scripts from a fixed seed with the same code.

#![no_main]

#[path = "../../grpc/tests/requests/consistency.rs"]
mod consistency;
#[path = "../../grpc/tests/requests/open_call.rs"]
mod open_call;
#[path = "../../grpc/tests/requests/runner.rs"]
mod runner;
#[path = "../../grpc/tests/requests/script.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|script: &[u8]| runner::run(script));
