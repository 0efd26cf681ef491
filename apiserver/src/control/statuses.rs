//! The errors of faults, as clients of a Kubernetes API get them.

use revstore_control::fault::{Action, Failure, Preset};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Expired;
use revstore_watch_cache::status::{Reason, ResourceName, Status};

use crate::http::{RequestInfo, Target};

/// Returns the error that an action answers with, before the request is executed, which is for the object with this name.
pub(super) fn status_of(action: &Action, info: &RequestInfo, name: &str) -> Option<Status> {
    match action {
        Action::Error(failure) => Some(failure_status(failure)),
        Action::Preset(preset) => Some(preset_status(*preset)),
        Action::Http {
            status,
            retry_after,
        } => {
            let answer = http_status(*status, info, name);
            Some(match (retry_after, *status) {
                (Some(seconds), _) => answer.with_retry_after(*seconds),
                _ => answer,
            })
        }
        _ => None,
    }
}

/// Returns an error with a given text.
pub(super) fn failure_status(failure: &Failure) -> Status {
    with_code(failure.http_status(), failure.text.clone())
}

/// Returns an error of etcd as kube-apiserver passes it on: with its text. Too many requests are those of this server.
fn preset_status(preset: Preset) -> Status {
    let text = match preset {
        Preset::TooManyRequests => {
            let message = "Too many requests, please try again later.";
            return Status::too_many_requests(message, 1);
        }
        Preset::NoLeader => "etcdserver: no leader",
        Preset::LeaderChanged => "etcdserver: leader changed",
        Preset::Timeout => "etcdserver: request timed out",
        Preset::NoSpace => "etcdserver: mvcc: database space exceeded",
        Preset::Corrupt => "etcdserver: corrupt cluster",
        Preset::AuthRevision => "etcdserver: revision of auth store is old",
    };
    Status::unclassified(text)
}

/// Returns the error with a status of HTTP, in the words of kube-apiserver where it has some.
fn http_status(status: u16, info: &RequestInfo, name: &str) -> Status {
    let none = Target::default();
    let target = info.target.as_ref().unwrap_or(&none);
    let resource = ResourceName::new(&*target.group, &*target.resource);
    match status {
        401 => Status::unauthorized(),
        404 => Status::not_found(&resource, name),
        409 if info.verb == "create" => Status::already_exists(&resource, name),
        409 => {
            let detail = "the object has been modified; please apply your changes to the latest version and try again";
            Status::conflict(&resource, name, detail)
        }
        410 => {
            let expired = match info.verb {
                "get" => Expired::Get,
                "watch" => Expired::Watch,
                _ => Expired::List,
            };
            RequestError::Expired(expired).status()
        }
        429 => with_code(429, "Too many requests, please try again later."),
        503 => Status::service_unavailable("the server is currently unable to handle the request"),
        504 => Status::timeout("request did not complete within the allotted timeout"),
        _ => with_code(
            status,
            format!("the server has answered with the status {status}, as a fault rule wants it"),
        ),
    }
}

/// Returns an error with a code, the reason that Kubernetes has for it, and a text.
fn with_code(code: u16, message: impl Into<String>) -> Status {
    let reason = match code {
        400 => Reason::BadRequest,
        401 => Reason::Unauthorized,
        403 => Reason::Forbidden,
        404 => Reason::NotFound,
        405 => Reason::MethodNotAllowed,
        406 => Reason::NotAcceptable,
        409 => Reason::Conflict,
        410 => Reason::Expired,
        413 => Reason::RequestEntityTooLarge,
        415 => Reason::UnsupportedMediaType,
        422 => Reason::Invalid,
        429 => Reason::TooManyRequests,
        500 => Reason::InternalError,
        503 => Reason::ServiceUnavailable,
        504 => Reason::Timeout,
        _ => {
            let mut status = Status::unclassified(message);
            status.code = code;
            return status;
        }
    };
    Status::failure(reason, message)
}
