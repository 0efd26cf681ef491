//! Plays what the fuzzer finds as `grpc/tests/requests` plays what a seed makes: any requests to any
//! method, through everything but the network.

#![no_main]

#[path = "../../grpc/tests/requests/exchange.rs"]
mod exchange;
#[path = "../../grpc/tests/requests/node.rs"]
mod node;
#[path = "../../grpc/tests/requests/script.rs"]
mod script;
#[path = "../../grpc/tests/requests/whole.rs"]
mod whole;

libfuzzer_sys::fuzz_target!(|script: &[u8]| node::play(script));
