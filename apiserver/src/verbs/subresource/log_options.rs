//! The options of requests for the logs of pods.

use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Query;
use revstore_watch_cache::status::{ResourceName, Status, StatusCause};

/// Checks the options in a query. Corresponds to `ValidatePodLogOptions`.
///
/// # Errors
/// 400 for a number or time that cannot be read, 422 for one that is not allowed.
pub(super) fn check(query: &Query, pod: &str) -> Result<(), RequestError> {
    let since_seconds = number(query, "sinceSeconds")?;
    let since_time = query.first("sinceTime");
    since_time.map_or(Ok(()), check_time)?;
    let tail_lines = number(query, "tailLines")?;
    let limit_bytes = number(query, "limitBytes")?;
    let mut causes = Vec::new();
    if let Some(lines) = tail_lines.filter(|lines| *lines < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(StatusCause::invalid("tailLines", lines, detail));
    }
    if let Some(bytes) = limit_bytes.filter(|bytes| *bytes < 1) {
        let detail = "must be greater than 0";
        causes.push(StatusCause::invalid("limitBytes", bytes, detail));
    }
    match (since_seconds, since_time) {
        (Some(_), Some(_)) => {
            let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            causes.push(StatusCause::forbidden("[]", detail));
        }
        (Some(seconds), None) if seconds < 1 => {
            let detail = "must be greater than 0";
            causes.push(StatusCause::invalid("sinceSeconds", seconds, detail));
        }
        _ => {}
    }
    if query.first("stream").is_some() {
        // As without the feature gate PodLogsQuerySplitStreams.
        causes.push(StatusCause::forbidden("stream", "may not be specified"));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let kind = ResourceName::new("", "PodLogOptions");
    Err(Status::invalid(&kind, pod, causes).into())
}

/// Returns the value of an option that is an integer.
fn number(query: &Query, name: &str) -> Result<Option<i64>, RequestError> {
    let Some(text) = query.first(name) else {
        return Ok(None);
    };
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_number => Ok(Some(number)),
        _ => {
            let problem = if is_number {
                "value out of range"
            } else {
                "invalid syntax"
            };
            let message = format!("strconv.ParseInt: parsing {text:?}: {problem}");
            Err(RequestError::BadRequest(message))
        }
    }
}

fn check_time(text: &str) -> Result<(), RequestError> {
    if ["", "null"].contains(&text) {
        return Ok(());
    }
    revstore_kinds::check_time(text).map_err(RequestError::BadRequest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_as_by_kube_apiserver() {
        let negative = "must be greater than or equal to 0";
        let both = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        for (query, code, message) in [
            ("tailLines=0&limitBytes=1&sinceSeconds=1&follow=true", 0, ""),
            ("sinceTime=2026-01-02T03:04:05%2B01:00&tailLines=5", 0, ""),
            (
                "tailLines=-1",
                422,
                &*format!(
                    "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: {negative}"
                ),
            ),
            (
                "limitBytes=0",
                422,
                "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=0",
                422,
                "PodLogOptions \"p\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=5&sinceTime=2026-01-02T03:04:05Z",
                422,
                &*format!("PodLogOptions \"p\" is invalid: []: Forbidden: {both}"),
            ),
            (
                "stream=Stdout",
                422,
                "PodLogOptions \"p\" is invalid: stream: Forbidden: may not be specified",
            ),
            (
                "tailLines=x",
                400,
                "strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            (
                "tailLines=99999999999999999999",
                400,
                "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
            ),
            (
                "sinceTime=yesterday",
                400,
                "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
            ),
        ] {
            let checked = check(&Query::parse(query), "p");
            let found = checked.map_or_else(
                |error| (error.status().code, error.status().message),
                |()| (0, String::new()),
            );
            assert_eq!(found, (code, message.to_owned()), "{query}");
        }
    }
}
