//! Continue tokens: the revision and the start key of the next page of a list (WC-228, WC-229).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use revstore_engine::Revision;
use serde::{Deserialize, Serialize};

use crate::api::status::RequestError;

/// The value of `v`: the version of the encoding.
const VERSION: &str = "meta.k8s.io/v1";
/// The value of `rv` that means "at the latest revision".
const LATEST: i64 = -1;

/// A decoded continue token. Clients treat its text as opaque; the format is that of Kubernetes,
/// because some tools decode it.
///
/// ```
/// use revstore_engine::Revision;
/// use revstore_watch_cache::api::ContinueToken;
/// let token = ContinueToken { revision: Some(Revision(7)), start: "ns/a\0".into() };
/// assert_eq!(ContinueToken::decode(&token.encode())?, token);
/// # Ok::<(), revstore_watch_cache::RequestError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of all pages of the list. `None` means the latest revision; the pages then have
    /// different revisions, so the list is inconsistent.
    pub revision: Option<Revision>,
    /// The start key of the page, relative to the key prefix of the request.
    pub start: String,
}

/// The JSON object inside a token.
#[derive(Serialize, Deserialize)]
struct TokenJson {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

impl ContinueToken {
    /// Returns the text of the token: the base64url encoding of a JSON object.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the serialization of strings and numbers does not fail"
    )]
    pub fn encode(&self) -> String {
        let token = TokenJson {
            v: VERSION.into(),
            rv: self.revision.map_or(LATEST, |revision| revision.0),
            start: self.start.clone(),
        };
        let json = serde_json::to_vec(&token)
            .expect("the serialization of strings and numbers does not fail");
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Parses a token.
    ///
    /// # Errors
    /// [`RequestError::BadRequest`] if the text is not the encoding of a token, if its revision is
    /// neither positive nor -1, or if its start key is empty or contains `.`, `..`, an empty segment
    /// or a leading `/`. Such a key could leave the key prefix of a request.
    // WC-229.
    pub fn decode(text: &str) -> Result<Self, RequestError> {
        let invalid = |reason: String| {
            let text = format!("invalid continue token: continue key is not valid: {reason}");
            RequestError::BadRequest(text)
        };
        let json = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| invalid(error.to_string()))?;
        let token: TokenJson =
            serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))?;
        if token.v != VERSION {
            return Err(invalid(format!(
                "server does not recognize this encoded version {}",
                token.v
            )));
        }
        if token.rv == 0 {
            return Err(invalid(format!(
                "incorrect encoded start resourceVersion (version {VERSION})"
            )));
        }
        if token.start.is_empty() {
            return Err(invalid(format!(
                "encoded start key empty (version {VERSION})"
            )));
        }
        if !stays_below_prefix(&token.start) {
            return Err(invalid(token.start));
        }
        // Only -1 means the latest revision; other negative numbers are invalid.
        let revision = (token.rv != LATEST).then_some(Revision(token.rv));
        if revision.is_some_and(|revision| revision < Revision(0)) {
            return Err(invalid(format!(
                "incorrect encoded start resourceVersion (version {VERSION})"
            )));
        }
        Ok(Self {
            revision,
            start: token.start,
        })
    }
}

/// Returns whether the path stays below the prefix to which it is appended.
fn stays_below_prefix(path: &str) -> bool {
    !path.starts_with('/')
        && path.split('/').enumerate().all(|(index, segment)| {
            segment != "." && segment != ".." && (index == 0 || !segment.is_empty())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        let error = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(json)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("invalid continue token: {expected}")),
            "{text}"
        );
    }

    #[test]
    fn wc_229_invalid_tokens_return_the_error_texts_of_kubernetes() {
        check("{", "continue key is not valid: ");
        check(
            r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        );
        check(
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#,
            "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)",
        );
        check(
            r#"{"v":"v9","rv":1,"start":"a"}"#,
            "continue key is not valid: server does not recognize this encoded version v9",
        );
        check(
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/a"}"#,
            "continue key is not valid: ../secrets/a",
        );
        check(
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/abs"}"#,
            "continue key is not valid: /abs",
        );
        assert!(ContinueToken::decode("!").is_err());
    }

    #[test]
    fn wc_228_a_token_is_the_base64url_encoding_of_json() {
        let token = ContinueToken {
            revision: None,
            start: "ns/a\0".into(),
        };
        assert_eq!(
            URL_SAFE_NO_PAD.decode(token.encode()).unwrap(),
            br#"{"v":"meta.k8s.io/v1","rv":-1,"start":"ns/a\u0000"}"#
        );
    }
}
