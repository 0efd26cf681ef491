//! Conversion of custom resources between versions by webhooks.

mod converter;
mod review;
mod storage;
mod watch;

use serde_json::Value;

pub(crate) use converter::Converter;
pub(crate) use storage::ConvertingStorage;
pub(crate) use watch::ConvertedWatch;

use crate::webhook::{Endpoint, EndpointError};

/// The conversion of a definition by a webhook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conversion {
    endpoint: Result<Endpoint, EndpointError>,
    /// The versions of `ConversionReview` that the webhook accepts.
    review_versions: Vec<String>,
}

impl Conversion {
    /// Reads `spec.conversion` of a definition. Returns `None` if no webhook converts.
    pub(crate) fn parse(conversion: Option<&Value>) -> Option<Self> {
        let conversion = conversion?;
        if conversion.get("strategy").and_then(Value::as_str) != Some("Webhook") {
            return None;
        }
        let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
        let versions = webhook.get("conversionReviewVersions");
        let versions = versions.and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            endpoint: Endpoint::parse(webhook.get("clientConfig").unwrap_or(&Value::Null)),
            review_versions: versions
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        })
    }
}
