//! The media type and the form of an answer, which a client chooses with the header `Accept`.

pub(crate) mod media_type;

use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};
use revstore_watch_cache::RequestError;
use revstore_watch_cache::api::Query;
use revstore_watch_cache::encode::MetaVersion;
use revstore_watch_cache::status::{Reason, Status, StatusDetails};

/// The names of the media types, in the order in which errors list them.
pub(crate) const MEDIA_TYPES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// The names of the media types of lists and watches, in the order in which errors list them.
const COLLECTION_TYPES: [&str; 5] = [
    MEDIA_TYPES[0],
    MEDIA_TYPES[1],
    MEDIA_TYPES[2],
    STREAM_TYPES[0],
    STREAM_TYPES[1],
];

/// The names of the media types of watches.
const STREAM_TYPES: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// The maximum number of media types in an `Accept` header that are looked at.
const CLAUSES_MAX: usize = 4096;

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Media {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

/// What an answer shows of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// All of them.
    #[default]
    Whole,
    /// The metadata of one object (`PartialObjectMetadata`).
    Metadata,
    /// The metadata of a list of objects (`PartialObjectMetadataList`).
    MetadataList,
    /// Rows of a table.
    Table,
    /// The aggregated form of discovery.
    AggregatedDiscovery,
}

/// The media type and the form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) media: Media,
    pub(crate) form: Form,
    /// The version of metadata and tables.
    pub(crate) meta_version: MetaVersion,
    /// Whether JSON is indented for people.
    pub(crate) pretty: bool,
}

impl Media {
    pub(crate) fn content_type(self) -> &'static str {
        MEDIA_TYPES[self as usize]
    }
}

/// What an endpoint can answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer<'a> {
    pub(crate) forms: &'a [Form],
    /// Whether protobuf is available; without it a client that prefers protobuf gets JSON.
    pub(crate) protobuf: bool,
    /// What the route answers, at the endpoints of built-in resources: there media types that are not available are
    /// refused before forms are looked at.
    pub(crate) route: Option<Route>,
}

/// The kind of a route of a built-in resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// JSON, whatever its parameters ask for.
    Json,
    /// Objects.
    Object,
    /// Lists and watches.
    Collection,
}

impl Route {
    fn media_types(self) -> &'static [&'static str] {
        match self {
            Self::Json => &MEDIA_TYPES[..1],
            Self::Object => &MEDIA_TYPES,
            Self::Collection => &COLLECTION_TYPES,
        }
    }

    /// Checks that the route answers one of the media types that a client accepts.
    ///
    /// # Errors
    /// 406.
    fn check(self, accept: &str) -> Result<(), RequestError> {
        check_types(self.media_types(), accept)
    }
}

/// Checks that a client accepts one of some media types.
///
/// # Errors
/// 406.
fn check_types(types: &[&str], accept: &str) -> Result<(), RequestError> {
    let mut clauses = accept.split(',').take(CLAUSES_MAX);
    let is_available = clauses.any(|clause| {
        let media = clause.split(';').next().unwrap_or_default().trim();
        media == "*/*" || types.contains(&media)
    });
    if is_available {
        return Ok(());
    }
    let message = format!(
        "406: Not Acceptable\n\nAvailable representations: {}",
        types.join(", ")
    );
    Err(Status::failure(Reason::NotAcceptable, message)
        .with_details(StatusDetails::default())
        .into())
}

impl Accepted {
    /// Chooses the first media type that a client accepts and that is on offer. Corresponds to
    /// `NegotiateMediaTypeOptions`.
    ///
    /// # Errors
    /// 406.
    // WC-404.
    pub(crate) fn negotiate(
        headers: &HeaderMap,
        query: &Query,
        offer: Offer<'_>,
    ) -> Result<Self, RequestError> {
        let pretty = is_pretty(headers, query);
        let text = text_of(headers);
        if text.is_empty() {
            return Ok(Self {
                pretty,
                ..Self::default()
            });
        }
        if let Some(route) = offer.route {
            route.check(&text)?;
        }
        for clause in &Clause::parse_all(&text) {
            let Some(media) = clause.media() else {
                continue;
            };
            if media == Media::Protobuf && !offer.protobuf {
                continue;
            }
            let form = clause.form().filter(|form| offer.forms.contains(form));
            // Rows have no protobuf.
            let form = form.filter(|form| (media, *form) != (Media::Protobuf, Form::Table));
            if let Some(form) = form {
                return Ok(Self {
                    media,
                    form,
                    meta_version: clause.meta_version(),
                    pretty: pretty && media == Media::Json,
                });
            }
        }
        Err(Status::not_acceptable(&MEDIA_TYPES).into())
    }

    /// Checks that a watch can have the media type.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn check_stream(self) -> Result<(), RequestError> {
        if self.media == Media::Yaml {
            return Err(Status::not_acceptable(&STREAM_TYPES).into());
        }
        Ok(())
    }

    /// Checks that a client accepts JSON, of an endpoint that answers nothing else.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn json(headers: &HeaderMap, query: &Query) -> Result<Self, RequestError> {
        let text = text_of(headers);
        if !text.is_empty() {
            Route::Json.check(&text)?;
        }
        Ok(Self {
            pretty: is_pretty(headers, query),
            ..Self::default()
        })
    }

    /// Checks that a client accepts the only media type of an endpoint.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn only(headers: &HeaderMap, media_type: &str) -> Result<(), RequestError> {
        match text_of(headers) {
            text if text.is_empty() => Ok(()),
            text => check_types(&[media_type], &text),
        }
    }

    /// Returns which of some media types a client accepts first, of an endpoint that has no other forms of its answer.
    pub(crate) fn first_of(headers: &HeaderMap, types: &[&str]) -> Option<usize> {
        let text = text_of(headers);
        if text.is_empty() {
            return Some(0);
        }
        let clauses = Clause::parse_all(&text);
        clauses
            .iter()
            .find_map(|clause| types.iter().position(|known| clause.covers(known)))
    }

    /// Chooses the media type of an error: that of the client, or JSON.
    pub(crate) fn of_error(headers: &HeaderMap, query: &Query) -> Self {
        let offer = Offer {
            forms: &[Form::Whole],
            protobuf: true,
            route: None,
        };
        Self::negotiate(headers, query, offer).unwrap_or_default()
    }
}

/// Returns the header `Accept`, or an empty text.
fn text_of(headers: &HeaderMap) -> String {
    let value = headers.get(ACCEPT).map(http::HeaderValue::as_bytes);
    String::from_utf8_lossy(value.unwrap_or_default())
        .trim()
        .to_owned()
}

/// Returns whether a client wants indented JSON: it says so, or a person reads its output.
fn is_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(pretty) = query.flag("pretty") {
        return pretty;
    }
    let agent = headers.get(USER_AGENT).map(http::HeaderValue::as_bytes);
    let people = [&b"curl/"[..], b"Wget/", b"Mozilla/5.0"];
    agent.is_some_and(|agent| people.iter().any(|prefix| agent.starts_with(prefix)))
}

/// One media type of an `Accept` header.
#[derive(Debug)]
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().filter(|media| !media.is_empty())?;
        let mut parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let mut quality = 1.0;
        parameters.retain(|(name, value)| {
            if *name == "q" {
                quality = value.parse().unwrap_or_default();
            }
            *name != "q"
        });
        Some(Self {
            media,
            parameters,
            quality,
        })
    }

    /// Parses a header, at most [`CLAUSES_MAX`] of its media types, those first that the client prefers.
    fn parse_all(text: &'a str) -> Vec<Self> {
        let clauses = text.split(',').take(CLAUSES_MAX);
        let mut clauses: Vec<Self> = clauses.filter_map(Self::parse).collect();
        // The sort is stable: the order of the client decides among equals.
        clauses.sort_by(|a, b| {
            let by_quality = b.quality.total_cmp(&a.quality);
            by_quality.then(a.wildcards().cmp(&b.wildcards()))
        });
        clauses
    }

    /// Returns whether a media type is one that this one names, perhaps with wildcards.
    fn covers(&self, media: &str) -> bool {
        if self.media == "*" {
            return true;
        }
        let (asked, known) = (self.media.split_once('/'), media.split_once('/'));
        asked.zip(known).is_some_and(|((a, b), (c, d))| {
            let covers = |asked: &str, known| ["*", known].contains(&asked.trim());
            covers(a, c) && covers(b, d)
        })
    }

    /// Returns how many parts of the media type are left open.
    fn wildcards(&self) -> usize {
        self.media.matches('*').count()
    }

    fn media(&self) -> Option<Media> {
        match self.media {
            "application/json" | "*" | "*/*" | "application/*" => Some(Media::Json),
            "application/yaml" => Some(Media::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Media::Protobuf),
            _ => None,
        }
    }

    fn parameter(&self, name: &str) -> &'a str {
        let mut parameters = self.parameters.iter();
        let found = parameters.rfind(|(known, _)| *known == name);
        found.map_or("", |(_, value)| *value)
    }

    /// Returns the form that the parameters ask for, or `None` if there is no such form.
    fn form(&self) -> Option<Form> {
        let kind = self.parameter("as");
        match (kind, self.parameter("g"), self.parameter("v")) {
            ("", "", "") => Some(Form::Whole),
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Some(Form::Table),
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Some(Form::Metadata),
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => {
                Some(Form::MetadataList)
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                Some(Form::AggregatedDiscovery)
            }
            _ => None,
        }
    }

    /// Returns the version of the metadata or the table that the parameters ask for.
    fn meta_version(&self) -> MetaVersion {
        match (self.parameter("g"), self.parameter("v")) {
            ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
            _ => MetaVersion::V1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Offer<'static> = Offer {
        forms: &[Form::Whole, Form::Table, Form::Metadata],
        protobuf: true,
        route: Some(Route::Object),
    };

    fn negotiate(accept: &str, offer: Offer<'_>) -> Result<(Media, Form), String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        let accepted = Accepted::negotiate(&headers, &Query::default(), offer);
        accepted
            .map(|accepted| (accepted.media, accepted.form))
            .map_err(|error| error.status().message)
    }

    #[test]
    fn the_first_acceptable_type_on_offer_is_chosen() {
        let without_protobuf = Offer {
            protobuf: false,
            ..ALL
        };
        for (accept, offer, expected) in [
            ("", ALL, (Media::Json, Form::Whole)),
            ("*/*", ALL, (Media::Json, Form::Whole)),
            (
                "text/html, application/json;q=0.8",
                ALL,
                (Media::Json, Form::Whole),
            ),
            (
                "application/json; charset=utf-8",
                ALL,
                (Media::Json, Form::Whole),
            ),
            (
                "application/yaml;q=0.1, application/json;q=0.2",
                ALL,
                (Media::Json, Form::Whole),
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                ALL,
                (Media::Protobuf, Form::Whole),
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                without_protobuf,
                (Media::Json, Form::Whole),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                ALL,
                (Media::Json, Form::Table),
            ),
            (
                "application/json;as=Nope;v=v1;g=meta.k8s.io,application/yaml",
                ALL,
                (Media::Yaml, Form::Whole),
            ),
        ] {
            assert_eq!(negotiate(accept, offer), Ok(expected), "{accept}");
        }
    }

    #[test]
    fn the_first_of_the_types_of_an_endpoint_is_chosen() {
        let types = ["application/json", "application/x@v1+protobuf"];
        for (accept, expected) in [
            ("", Some(0)),
            ("*/*", Some(0)),
            ("*", Some(0)),
            ("application/*", Some(0)),
            ("application/x@v1+protobuf", Some(1)),
            ("application/json;q=0.5, application/x@v1+protobuf", Some(1)),
            ("*/*, application/x@v1+protobuf", Some(1)),
            ("text/plain", None),
            ("text/plain, application/json;q=0.1", Some(0)),
            ("json", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(Accepted::first_of(&headers, &types), expected, "{accept}");
        }
    }

    #[test]
    fn nothing_acceptable_is_an_error_with_the_types_on_offer() {
        let types = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        assert_eq!(
            negotiate("text/html", ALL),
            Err(format!(
                "406: Not Acceptable\n\nAvailable representations: {types}"
            ))
        );
        let unknown_form = "application/json;as=Nope;v=v1;g=meta.k8s.io";
        let expected = format!("only the following media types are accepted: {types}");
        assert_eq!(negotiate(unknown_form, ALL), Err(expected.clone()));
        let custom = Offer { route: None, ..ALL };
        assert_eq!(negotiate("text/html", custom), Err(expected));
    }
}
