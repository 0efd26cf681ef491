//! The target of a request: scope and selector, resolved to keys and a filter.

use bytes::Bytes;
use revstore_engine::Revision;

use crate::api::continue_token::ContinueToken;
use crate::api::keys::{self, ObjectRef, Scope, Span};
use crate::api::status::RequestError;
use crate::encode::object::Reader;
use crate::selector::{FieldPlace, Filter, Selector};

/// What a request is about, once its options are read.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// What decides in the end.
    pub(crate) filter: Filter,
    /// The keys to look at; all that pass the filter are among them.
    pub(crate) scan: Span,
    /// What continue tokens are relative to.
    pub(crate) prefix: Bytes,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

impl Target {
    /// Reads what scope and selector say. If `narrow`, a name or a namespace that the selector
    /// demands narrows the keys to look at (WC-227).
    pub(crate) fn new(
        reader: &Reader,
        scope: &Scope,
        selector: &Selector,
        narrow: bool,
    ) -> Result<Self, RequestError> {
        let layout = &reader.layout;
        let span = layout.span_of(scope)?;
        let filter = Filter::new(span.clone(), selector, &*reader.kind)?;
        let (mut namespace, mut name) = match scope {
            Scope::All => (None, None),
            Scope::Namespace(namespace) => (Some(namespace.clone()), None),
            Scope::Object(object) => (object.namespace.clone(), Some(object.name.clone())),
        };
        let wanted = |place| filter.wanted_field(place).map(str::to_owned);
        if layout.is_namespaced() {
            namespace = namespace.or_else(|| wanted(FieldPlace::Namespace));
        }
        name = name.or_else(|| wanted(FieldPlace::Name));
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

    /// The keys to look at from a continue token on. A token never widens them (WC-229).
    pub(crate) fn scan_from(&self, start: Option<&str>) -> Span {
        match start {
            None => self.scan.clone(),
            Some(start) => {
                let start = [&self.prefix, start.as_bytes()].concat();
                self.filter.span.from(start.into())
            }
        }
    }

    /// The token of the page behind `last`.
    pub(crate) fn token(&self, last: &[u8], at: Option<Revision>) -> Result<String, RequestError> {
        let start = keys::after(last);
        let relative = start.strip_prefix(&*self.prefix);
        let start = relative.and_then(|start| std::str::from_utf8(start).ok());
        let start = start.ok_or_else(|| {
            RequestError::Internal("a key cannot be written into a continue token".into())
        })?;
        Ok(ContinueToken {
            at,
            start: start.to_owned(),
        }
        .encode())
    }
}
