//! Declarations of flags.

use std::{marker::PhantomData, path::PathBuf};

use super::{ConfigError, GoDuration, value};
use crate::net::EndpointUrl;

/// A flag with values of type `T`, declared with [`flags!`](crate::flags).
#[derive(Debug)]
pub struct Flag<T> {
    declaration: Declaration,
    value: PhantomData<fn() -> T>,
}

/// The properties of a flag that do not depend on the type of its values.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// The name, without dashes.
    pub name: &'static str,
    /// If not empty, a prefix with which the flag has another, former name.
    pub former_prefix: &'static str,
    /// A key instead of the name in the [mapping](super::FlagSet::file_mapping) of a file.
    pub file_key: Option<&'static str>,
    /// The type of the values.
    pub kind: Kind,
    /// The default, as a user would write it.
    pub default: &'static str,
    /// The text in the help page; empty for a flag without effect.
    pub help: &'static str,
    /// Values that shell completions suggest.
    pub suggestions: &'static [&'static str],
}

/// The type of the values of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean. Only these flags take no separate argument.
    Bool,
    /// A signed number of 64 bits.
    Int,
    /// An unsigned number of 64 bits.
    Uint,
    /// An unsigned number of 32 bits.
    Uint32,
    /// A duration in Go's syntax; in a file also a number of nanoseconds.
    Duration,
    /// Any text.
    Text,
    /// A path; empty for none.
    Path,
    /// A comma-separated list.
    List,
    /// A comma-separated list of URLs. An empty list does not replace another value.
    Urls,
    /// One of a few words.
    Word(&'static [&'static str]),
}

/// Flags under one heading of the help page.
#[derive(Debug)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// The flags, in the order of the help page.
    pub flags: &'static [&'static Declaration],
}

/// A type that the values of flags have.
pub trait FlagValue: Sized {
    /// The kind of the flags.
    const KIND: Kind;

    /// Parses a value.
    ///
    /// # Errors
    /// The text is not a value of this type.
    fn parse(text: &str) -> Result<Self, ConfigError>;
}

impl<T: FlagValue> Flag<T> {
    /// A flag with this declaration, whose kind becomes that of `T`.
    pub const fn new(mut declaration: Declaration) -> Self {
        declaration.kind = T::KIND;
        let value = PhantomData;
        Self { declaration, value }
    }

    /// The declaration.
    pub const fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// The name, without dashes.
    pub const fn name(&self) -> &'static str {
        self.declaration.name
    }

    /// The default.
    ///
    /// # Panics
    /// If the declared default is not a value of the flag.
    pub fn default_value(&self) -> T {
        T::parse(self.declaration.default).expect("the default is a value of the flag")
    }
}

impl Declaration {
    /// A flag without effect.
    pub const fn accepted(name: &'static str, former_prefix: &'static str, kind: Kind) -> Self {
        let suggestions = match kind {
            Kind::Word(words) => words,
            _ => &[],
        };
        let (file_key, default, help) = (None, "", "");
        Self {
            name,
            former_prefix,
            file_key,
            kind,
            default,
            help,
            suggestions,
        }
    }

    /// The names of the flag: the former name, if it has one, and its name.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let former = format!("{}{}", self.former_prefix, self.name);
        let former = (!self.former_prefix.is_empty()).then_some(former);
        former.into_iter().chain([self.name.to_owned()])
    }

    pub(super) fn has_name(&self, name: &str) -> bool {
        name == self.name || name.strip_prefix(self.former_prefix) == Some(self.name)
    }

    /// Checks that a text is a value of the flag.
    pub(super) fn check(&self, text: &str) -> Result<(), ConfigError> {
        match self.kind {
            Kind::Bool => bool::parse(text).map(drop),
            Kind::Int => i64::parse(text).map(drop),
            Kind::Uint => u64::parse(text).map(drop),
            Kind::Uint32 => u32::parse(text).map(drop),
            // Go's flag package replaces the reason why a text is not a duration.
            Kind::Duration => {
                GoDuration::parse(text).map_or(Err(ConfigError::syntax()), |_| Ok(()))
            }
            Kind::Urls => Vec::<EndpointUrl>::parse(text).map(drop),
            Kind::Word(words) if !words.contains(&text) => {
                let words = words.join(", ");
                Err(ConfigError::new(format!("must be one of: {words}")))
            }
            Kind::Text | Kind::Path | Kind::List | Kind::Word(_) => Ok(()),
        }
    }
}

/// Implements [`FlagValue`] for types with their kinds and parsers.
macro_rules! flag_value {
    ($($type:ty, $kind:ident, $parse:expr;)*) => {$(
        impl FlagValue for $type {
            const KIND: Kind = Kind::$kind;

            fn parse(text: &str) -> Result<Self, ConfigError> {
                $parse(text)
            }
        }
    )*};
}

flag_value! {
    bool, Bool, value::boolean;
    i64, Int, value::int;
    u64, Uint, value::uint;
    u32, Uint32, |text| u32::try_from(value::uint(text)?).map_err(|_| ConfigError::range());
    GoDuration, Duration, GoDuration::parse;
    String, Text, |text: &str| Ok(text.to_owned());
    Option<PathBuf>, Path, |text: &str| Ok((!text.is_empty()).then(|| text.into()));
    Vec<String>, List, |text| Ok(value::parts(text).map(str::to_owned).collect());
    Vec<EndpointUrl>, Urls, |text: &str| match text {
        "" => Ok(Self::new()),
        text => Ok(EndpointUrl::parse_list(text)?),
    };
}

/// Declares flags by sections of the help page: a constant [`Flag<T>`](crate::config::Flag) for each
/// flag that has an effect, and a table of all flags.
///
/// A flag has a name, a default, a help text and, if need be, other fields of
/// [`Declaration`](crate::config::Declaration). `@accept KIND, FORMER_PREFIX: NAME, ..;` declares
/// flags without effect, at the end of a section.
/// ```
/// use revstore_host::config::{GoDuration, Kind, Values};
///
/// revstore_host::flags! {
///     static SECTIONS;
///
///     "Limits" {
///         TIMEOUT: GoDuration = "timeout", "5s", "The time limit of a request.";
///         MODE: String = "mode", "fast", "The mode.", suggestions: &["fast", "safe"];
///     }
///     "Accepted without effect" {
///         @accept Kind::Bool, "experimental-": "eager", "lazy";
///     }
/// }
///
/// assert_eq!(Values::default().get(&TIMEOUT), GoDuration(5_000_000_000));
/// assert_eq!(MODE.declaration().suggestions, ["fast", "safe"]);
/// assert_eq!(SECTIONS[1].flags.len(), 2);
/// ```
#[macro_export]
macro_rules! flags {
    ($vis:vis static $table:ident; $($title:literal {
        $($name:ident: $type:ty = $flag:literal, $default:literal, $help:literal
            $(, $field:ident: $value:expr)*;)*
        $(@accept $kind:expr, $prefix:literal: $($accepted:literal),+;)*
    })*) => {
        $($($vis const $name: $crate::config::Flag<$type> =
            $crate::config::Flag::new($crate::config::Declaration {
                default: $default,
                help: $help,
                $($field: $value,)*
                ..$crate::config::Declaration::accepted($flag, "", $crate::config::Kind::Text)
            });)*)*
        $vis static $table: &[$crate::config::Section] = &[$($crate::config::Section {
            title: $title,
            flags: &[
                $($name.declaration(),)*
                $($(&$crate::config::Declaration::accepted($accepted, $prefix, $kind),)+)*
            ],
        },)*];
    };
}
