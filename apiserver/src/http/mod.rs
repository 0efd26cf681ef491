//! HTTP: from a request to a verb on a resource, and from its result to an answer.

mod accept;
mod answer;
mod exchange;
mod handler;
mod limits;
mod paths;
mod reader;
mod request_info;
mod service;
pub(crate) mod websocket;
mod write_checks;

pub(crate) use accept::{Accepted, Form, MEDIA_TYPES, Media, Offer, Route, media_type};
pub(crate) use answer::{Answer, Body, Chunks, InTurns, gzip, status_value};
pub(crate) use exchange::Exchange;
pub(crate) use handler::{
    CREATED, Front, Random, method_not_allowed, read_body, verb_not_supported,
};
pub(crate) use limits::Limits;
pub(crate) use request_info::{RequestInfo, Target};
pub(crate) use service::ConnectionService;
