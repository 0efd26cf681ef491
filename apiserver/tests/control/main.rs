//! Servers under control, as their clients and those of control see them.

#[path = "../client/mod.rs"]
mod client;
mod clock;
mod faults;
mod fixture;
mod history;
mod replay;
mod store;
#[path = "../../../server/tests/server/ctl/table.rs"]
mod table;
mod verbs;
mod watches;
