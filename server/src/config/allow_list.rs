//! Host names and origins that HTTP requests may have.

use std::collections::BTreeSet;

use revstore_host::{
    config::{ConfigError, FlagValue, ValueKind},
    net::EndpointUrl,
};

/// The value that allows everything.
const ALL: &str = "*";

/// The names that a restriction allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowList {
    /// All names.
    #[default]
    All,
    /// Only these names, compared byte by byte. The empty set allows none.
    Only(BTreeSet<String>),
}

impl AllowList {
    /// Returns whether a name is allowed.
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// The value of `--host-whitelist`. As in etcd, blanks around a name are part of it, and the empty text is
/// a list of one empty name, which only requests without a host have.
#[derive(PartialEq)]
pub(super) struct Hosts(pub(super) AllowList);

impl FlagValue for Hosts {
    const KIND: ValueKind = ValueKind::Names;

    fn parse(text: &str) -> Result<Self, ConfigError> {
        let names: BTreeSet<String> = text.split(',').map(str::to_owned).collect();
        Ok(Self(if names.contains(ALL) {
            AllowList::All
        } else {
            AllowList::Only(names)
        }))
    }
}

/// The value of `--cors`: `*` or URLs, each with a port.
#[derive(PartialEq)]
pub(super) struct Origins(pub(super) AllowList);

impl FlagValue for Origins {
    const KIND: ValueKind = ValueKind::Urls;

    fn parse(text: &str) -> Result<Self, ConfigError> {
        if text == ALL {
            return Ok(Self(AllowList::All));
        }
        let urls = EndpointUrl::parse_list(text)?;
        let urls = urls.iter().map(ToString::to_string);
        Ok(Self(AllowList::Only(urls.collect())))
    }
}
