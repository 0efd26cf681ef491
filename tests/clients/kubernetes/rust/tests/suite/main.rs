//! kube-rs with the server under test, which the variable `APISERVER` names.

mod access;
mod custom;
mod objects;
mod server;
mod watches;
