//! Options of a server inside a program.

mod builder;
mod client;
mod event_ttl;
#[path = "../client/exchange.rs"]
mod exchange;
mod load;
mod policy;
mod service_accounts;

type TestResult = Result<(), Box<dyn std::error::Error>>;
