//! The parameters of a query string, and the options of a request in them, as kube-apiserver parses and
//! refuses them.

use std::time::Duration;

use percent_encoding::percent_decode;

use crate::api::options::{GetOptions, ListOptions, WatchOptions};
use crate::api::status::RequestError;
use crate::selector::{FieldSelector, LabelSelector, Selector};

/// The parameters of a query string, in their order.
///
/// A parameter with a malformed escape sequence or with a semicolon is ignored, as by kube-apiserver. `+`
/// is a space. Bytes that are not UTF-8 become U+FFFD.
///
/// ```
/// use revstore_watch_cache::api::Query;
/// let query = Query::parse("limit=5&labelSelector=app%3Dweb&pretty&continue=%zz");
/// assert_eq!(query.first("labelSelector"), Some("app=web"));
/// assert_eq!(query.first("pretty"), Some(""));
/// assert_eq!(query.first("continue"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// Parses the part of a URL after `?`.
    pub fn parse(text: &str) -> Self {
        let parameters = text
            .split('&')
            .filter(|parameter| !parameter.is_empty() && !parameter.contains(';'))
            .filter_map(|parameter| {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                Some((unescape(name)?, unescape(value)?))
            })
            .collect();
        Self { parameters }
    }

    /// Returns the first value of a parameter. A parameter without `=` has the empty value.
    pub fn first(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        let (_, value) = parameters.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// Returns all values of a parameter.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let named = self
            .parameters
            .iter()
            .filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Sets a parameter to one value, in place of its former values.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.parameters.retain(|(known, _)| known != name);
        self.parameters.push((name.to_owned(), value.into()));
    }

    /// Returns a flag: any value but `false` and `0` sets it, also the empty one. `None` if the parameter
    /// is absent.
    pub fn flag(&self, name: &str) -> Option<bool> {
        let value = self.first(name)?;
        Some(!(value.eq_ignore_ascii_case("false") || value == "0"))
    }

    /// Returns an integer, or `None` if the parameter is absent.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if the value is not a decimal `i64`, also if it is empty.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, RequestError> {
        self.first(name).map(parse_integer).transpose()
    }
}

/// Decodes the escape sequences of a name or a value. Returns `None` if one is malformed.
fn unescape(text: &str) -> Option<String> {
    let mut sequences = text.split('%').skip(1).map(str::as_bytes);
    let is_escape = |bytes: &[u8]| bytes.len() >= 2 && bytes[..2].iter().all(u8::is_ascii_hexdigit);
    if !sequences.all(is_escape) {
        return None;
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode(spaced.as_bytes()).decode_utf8_lossy();
    Some(decoded.into_owned())
}

fn parse_integer(text: &str) -> Result<i64, RequestError> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let reason = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        RequestError::BadRequest(format!("strconv.ParseInt: parsing \"{text}\": {reason}"))
    })
}

/// The options of a GET of a collection, which lists it or watches it.
///
/// ```
/// use revstore_watch_cache::api::{CollectionOptions, Query};
/// let query = Query::parse("watch=1&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=300");
/// let CollectionOptions::Watch(options) = CollectionOptions::from_query(&query)? else {
///     panic!("`watch` is set");
/// };
/// assert_eq!(options.resource_version, "7");
/// # Ok::<(), revstore_watch_cache::RequestError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectionOptions {
    /// The collection is listed.
    List(ListOptions),
    /// The collection is watched.
    Watch(WatchOptions),
}

impl CollectionOptions {
    /// Reads the options from the parameters of a request. Unknown parameters are ignored. Options that
    /// exclude each other fail later, when the list or the watch starts.
    ///
    /// `timeoutSeconds` is the timeout of a watch, which ends at once if it is negative; 0 is unset.
    /// Lists ignore it.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if a number or a selector is malformed.
    pub fn from_query(query: &Query) -> Result<Self, RequestError> {
        let text = |name| query.first(name).unwrap_or_default().to_owned();
        // In the order of kube-apiserver, which reports the first error: numbers, then selectors.
        let timeout = query.integer("timeoutSeconds")?;
        let limit = query.integer("limit")?.unwrap_or_default();
        let selector = Selector {
            labels: LabelSelector::parse(query.first("labelSelector").unwrap_or_default())?,
            fields: FieldSelector::parse(query.first("fieldSelector").unwrap_or_default())?,
        };
        if query.flag("watch").unwrap_or_default() {
            return Ok(Self::Watch(WatchOptions {
                resource_version: text("resourceVersion"),
                resource_version_match: text("resourceVersionMatch"),
                continue_token: text("continue"),
                allow_bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
                send_initial_events: query.flag("sendInitialEvents"),
                timeout: timeout
                    .filter(|seconds| *seconds != 0)
                    .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default())),
                selector,
            }));
        }
        Ok(Self::List(ListOptions {
            resource_version: text("resourceVersion"),
            resource_version_match: text("resourceVersionMatch"),
            limit,
            continue_token: text("continue"),
            send_initial_events: query.flag("sendInitialEvents"),
            selector,
        }))
    }
}

impl GetOptions {
    /// Reads the options from the parameters of a request. Unknown parameters are ignored.
    pub fn from_query(query: &Query) -> Self {
        Self {
            resource_version: query
                .first("resourceVersion")
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CollectionOptions, Query};
    use crate::api::options::{GetOptions, ListOptions, WatchOptions};
    use std::time::Duration;

    fn list(query: &str) -> ListOptions {
        match CollectionOptions::from_query(&Query::parse(query)).unwrap() {
            CollectionOptions::List(options) => options,
            watch @ CollectionOptions::Watch(_) => panic!("{query}: {watch:?}"),
        }
    }

    fn watch(query: &str) -> WatchOptions {
        match CollectionOptions::from_query(&Query::parse(query)).unwrap() {
            CollectionOptions::Watch(options) => options,
            list @ CollectionOptions::List(_) => panic!("{query}: {list:?}"),
        }
    }

    #[test]
    fn queries_are_parsed_as_by_net_url() {
        let query = Query::parse("a=1&b&&a=2&c=x+y%20z%2B&d=%zz&e=%4&%66=g&h;i=1&j=k=l&=m&n=%ff");
        for (name, first) in [
            ("a", Some("1")),
            ("b", Some("")),
            ("c", Some("x y z+")),
            ("d", None),
            ("e", None),
            ("f", Some("g")),
            ("h", None),
            ("i", None),
            ("j", Some("k=l")),
            ("", Some("m")),
            ("n", Some("\u{fffd}")),
        ] {
            assert_eq!(query.first(name), first, "{name}");
        }
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(Query::parse(""), Query::default());
    }

    #[test]
    fn flags_are_set_by_any_value_but_false_and_0() {
        for (text, flag) in [
            ("", None),
            ("watch", Some(true)),
            ("watch=", Some(true)),
            ("watch=no", Some(true)),
            ("watch=1&watch=0", Some(true)),
            ("watch=FALSE", Some(false)),
            ("watch=0", Some(false)),
        ] {
            assert_eq!(Query::parse(text).flag("watch"), flag, "{text}");
        }
    }

    #[test]
    fn options_are_read_from_queries() {
        assert_eq!(
            list("watch=false&timeoutSeconds=5&nonsense=1"),
            ListOptions::default()
        );
        let options = list(
            "limit=-1&continue=t&resourceVersion=7&resourceVersionMatch=Exact&sendInitialEvents=0\
             &labelSelector=a%3Db&fieldSelector=metadata.name%3Dx",
        );
        assert_eq!(
            (
                options.limit,
                options.continue_token.as_str(),
                options.resource_version.as_str()
            ),
            (-1, "t", "7")
        );
        assert_eq!(options.resource_version_match, "Exact");
        assert_eq!(options.send_initial_events, Some(false));
        assert_eq!(options.selector.labels.requirements.len(), 1);
        assert_eq!(options.selector.fields.requirements.len(), 1);
        assert_eq!(
            GetOptions::from_query(&Query::parse("resourceVersion=0")).resource_version,
            "0"
        );
        for (text, timeout) in [
            ("watch", None),
            ("watch&timeoutSeconds=0", None),
            ("watch&timeoutSeconds=-3", Some(Duration::ZERO)),
            ("watch&timeoutSeconds=3", Some(Duration::from_secs(3))),
        ] {
            assert_eq!(watch(text).timeout, timeout, "{text}");
        }
        assert!(watch("watch&allowWatchBookmarks").allow_bookmarks);
    }

    #[test]
    fn malformed_numbers_and_selectors_are_refused_with_400() {
        for (text, message) in [
            ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax"),
            (
                "limit=abc",
                "strconv.ParseInt: parsing \"abc\": invalid syntax",
            ),
            (
                "limit=1.5",
                "strconv.ParseInt: parsing \"1.5\": invalid syntax",
            ),
            (
                "timeoutSeconds=9223372036854775808",
                "strconv.ParseInt: parsing \"9223372036854775808\": value out of range",
            ),
            (
                "limit=x&labelSelector=%3D",
                "strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            (
                "labelSelector=a,,b",
                "found ',', expected: identifier after ','",
            ),
            (
                "watch&fieldSelector=a",
                "invalid selector: 'a'; can't understand 'a'",
            ),
        ] {
            let error = CollectionOptions::from_query(&Query::parse(text)).unwrap_err();
            assert_eq!(
                (error.code(), error.to_string().as_str()),
                (400, message),
                "{text}"
            );
        }
    }
}
