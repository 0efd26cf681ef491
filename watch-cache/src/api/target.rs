//! The target of a request: scope and selector, resolved to keys and a filter.

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::continue_token::ContinueToken;
use crate::api::keys::{self, KeySpan, ObjectRef, Scope};
use crate::api::status::RequestError;
use crate::encode::object::ObjectDecoder;
use crate::selector::{ObjectFilter, ResolvedField, Selector};

/// The scope and the selector of a request, resolved for the key layout and the kind of its resource.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The filter that decides whether an object matches.
    pub(crate) filter: ObjectFilter,
    /// The keys to examine. They include the keys of all objects that match the filter.
    pub(crate) scan: KeySpan,
    /// The key prefix to which continue tokens are relative.
    pub(crate) prefix: Bytes,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

impl Target {
    /// Resolves a scope and a selector. If `narrow` is set, a name or a namespace that the selector
    /// requires reduces the keys to examine (WC-227).
    pub(crate) fn new(
        decoder: &ObjectDecoder,
        scope: &Scope,
        selector: &Selector,
        narrow: bool,
    ) -> Result<Self, RequestError> {
        let layout = &decoder.layout;
        let span = layout.span_of(scope)?;
        let filter = ObjectFilter::new(span.clone(), selector, decoder)?;
        let (mut namespace, mut name) = match scope {
            Scope::All => (None, None),
            Scope::Namespace(namespace) => (Some(namespace.clone()), None),
            Scope::Object(object) => (object.namespace.clone(), Some(object.name.clone())),
        };
        let required = |field| filter.required_field(field).map(str::to_owned);
        if layout.is_namespaced() {
            namespace = namespace.or_else(|| required(ResolvedField::Namespace));
        }
        name = name.or_else(|| required(ResolvedField::Name));
        let narrower = match (&namespace, &name) {
            _ if !narrow => None,
            (Some(namespace), None) => layout.span_of(&Scope::Namespace(namespace.clone())).ok(),
            (namespace, Some(name)) => layout
                .span_of(&Scope::Object(ObjectRef {
                    namespace: namespace.clone(),
                    name: name.clone(),
                }))
                .ok(),
            (None, None) => None,
        };
        Ok(Self {
            scan: narrower.unwrap_or(span),
            prefix: layout.request_prefix(scope)?,
            filter,
            namespace,
            name,
        })
    }

    /// Returns the keys to examine, from the start key of a continue token on. A token never adds
    /// keys to those of the scope (WC-229).
    pub(crate) fn scan_from(&self, start: Option<&str>) -> KeySpan {
        match start {
            None => self.scan.clone(),
            Some(start) => {
                let start = [&self.prefix, start.as_bytes()].concat();
                self.filter.span.from(start.into())
            }
        }
    }

    /// Returns the continue token of the page after the key `last`.
    pub(crate) fn token(&self, last: &[u8], revision: Revision) -> Result<String, RequestError> {
        let start = keys::after(last);
        let relative = start.strip_prefix(&*self.prefix);
        let start = relative.and_then(|start| std::str::from_utf8(start).ok());
        let start = start.ok_or_else(|| {
            RequestError::Internal("a key is not UTF-8 and cannot be in a continue token".into())
        })?;
        Ok(ContinueToken {
            revision: Some(revision),
            start: start.to_owned(),
        }
        .encode())
    }
}
