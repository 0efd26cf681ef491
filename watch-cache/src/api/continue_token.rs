//! Continue tokens: where a list in pages goes on (WC-228, WC-229).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use revstore_engine::Revision;
use serde::{Deserialize, Serialize};

use crate::api::status::RequestError;

const VERSION: &str = "meta.k8s.io/v1";
/// "At the latest revision" in a token.
const LATEST: i64 = -1;

/// A continue token, decoded. Clients treat the text as opaque; its form is fixed all the same
/// because tools decode it.
///
/// ```
/// use revstore_engine::Revision;
/// use revstore_watch_cache::ContinueToken;
/// let token = ContinueToken { at: Some(Revision(7)), start: "ns/a\0".into() };
/// assert_eq!(ContinueToken::decode(&token.encode())?, token);
/// # Ok::<(), revstore_watch_cache::RequestError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of the whole list; the latest one if none is pinned, which makes the list
    /// inconsistent (L3).
    pub at: Option<Revision>,
    /// Where to start, relative to the prefix of the request.
    pub start: String,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

impl ContinueToken {
    /// The text of the token.
    ///
    /// # Panics
    /// Never: strings and numbers always become JSON.
    pub fn encode(&self) -> String {
        let wire = Wire {
            v: VERSION.into(),
            rv: self.at.map_or(LATEST, |revision| revision.0),
            start: self.start.clone(),
        };
        let json = serde_json::to_vec(&wire).expect("strings and numbers become JSON");
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Reads a token.
    ///
    /// # Errors
    /// 400 with the text of WC-229 if it is none, or if it would lead outside of its prefix.
    pub fn decode(text: &str) -> Result<Self, RequestError> {
        let invalid =
            |why: &str| RequestError::BadRequest(format!("invalid continue token: {why}"));
        let unreadable = |why: String| invalid(&format!("continue key is not valid: {why}"));
        let json = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| unreadable(error.to_string()))?;
        let wire: Wire =
            serde_json::from_slice(&json).map_err(|error| unreadable(error.to_string()))?;
        if wire.v != VERSION {
            return Err(unreadable(format!(
                "server does not recognize this encoded version {}",
                wire.v
            )));
        }
        if wire.rv == 0 {
            return Err(unreadable(format!(
                "incorrect encoded start resourceVersion (version {VERSION})"
            )));
        }
        if wire.start.is_empty() {
            return Err(unreadable(format!(
                "encoded start key empty (version {VERSION})"
            )));
        }
        if !is_clean(&wire.start) {
            return Err(unreadable(wire.start));
        }
        // Only -1 means the latest; what lies below it cannot be read at.
        let at = (wire.rv != LATEST).then_some(Revision(wire.rv));
        if at.is_some_and(|at| at < Revision(0)) {
            return Err(unreadable(format!(
                "incorrect encoded start resourceVersion (version {VERSION})"
            )));
        }
        Ok(Self {
            at,
            start: wire.start,
        })
    }
}

/// Whether no segment of the path could lead out of the prefix it is appended to.
fn is_clean(path: &str) -> bool {
    !path.starts_with('/')
        && path.split('/').enumerate().all(|(at, segment)| {
            segment != "." && segment != ".." && (at == 0 || !segment.is_empty())
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
    fn wc_229_bad_tokens_are_refused_with_these_texts() {
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
    fn wc_228_the_text_is_base64url_of_this_json() {
        let token = ContinueToken {
            at: None,
            start: "ns/a\0".into(),
        };
        assert_eq!(
            URL_SAFE_NO_PAD.decode(token.encode()).unwrap(),
            br#"{"v":"meta.k8s.io/v1","rv":-1,"start":"ns/a\u0000"}"#
        );
    }
}
