//! Declarations of flags.

use std::{marker::PhantomData, path::PathBuf};

use super::{ConfigError, GoDuration, value};
use crate::net::EndpointUrl;

/// A flag with values of type `T`, declared with [`flags!`](crate::flags).
#[derive(Debug)]
pub struct Flag<T> {
    /// The properties that do not depend on the type.
    pub declaration: Declaration,
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
    /// The form of the values.
    pub kind: ValueKind,
    /// Checks that a text is a value.
    pub check: fn(&Self, &str) -> Result<(), ConfigError>,
    /// The default, as a user would write it.
    pub default: &'static str,
    /// The text in the help page; empty for a flag without effect.
    pub help: &'static str,
    /// Values that shell completions suggest.
    pub suggestions: &'static [&'static str],
}

/// The form of the values of a flag, where a source of values or a shell completion depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A boolean. Only these flags take no separate argument.
    Bool,
    /// A duration in Go's syntax; in a file also a number of nanoseconds.
    Duration,
    /// A path.
    Path,
    /// A list of URLs. An empty list does not replace another value.
    Urls,
    /// Any other form.
    Text,
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
    /// The form of the values.
    const KIND: ValueKind;

    /// Parses a value.
    ///
    /// # Errors
    /// The text is not a value of this type.
    fn parse(text: &str) -> Result<Self, ConfigError>;
}

impl<T: FlagValue> Flag<T> {
    /// A flag with a declaration that [`Declaration::of`] made for `T`.
    pub const fn new(declaration: Declaration) -> Self {
        let value = PhantomData;
        Self { declaration, value }
    }
}

impl Declaration {
    /// A flag with values of type `T` and without effect.
    pub const fn of<T: FlagValue>(name: &'static str, former_prefix: &'static str) -> Self {
        Self {
            name,
            former_prefix,
            file_key: None,
            kind: T::KIND,
            check: |_, text| T::parse(text).map(drop),
            default: "",
            help: "",
            suggestions: &[],
        }
    }

    /// A flag without effect whose value is one of a few words.
    pub const fn one_of(words: &'static [&'static str], name: &'static str) -> Self {
        Self {
            suggestions: words,
            check: |flag, text| match flag.suggestions {
                words if words.contains(&text) => Ok(()),
                words => {
                    let words = words.join(", ");
                    Err(ConfigError::new(format!("must be one of: {words}")))
                }
            },
            ..Self::of::<String>(name, "")
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
}

/// Implements [`FlagValue`] for types with their kinds and parsers.
macro_rules! flag_value {
    ($($type:ty, $kind:ident, $parse:expr;)*) => {$(
        impl FlagValue for $type {
            const KIND: ValueKind = ValueKind::$kind;

            fn parse(text: &str) -> Result<Self, ConfigError> {
                $parse(text)
            }
        }
    )*};
}

flag_value! {
    bool, Bool, value::boolean;
    i64, Text, value::int;
    u64, Text, value::uint;
    u32, Text, |text| u32::try_from(value::uint(text)?).map_err(|_| ConfigError::range());
    // Go's flag package replaces the reason why a text is not a duration.
    GoDuration, Duration, |text| GoDuration::parse(text).map_err(|_| ConfigError::syntax());
    String, Text, |text: &str| Ok(text.to_owned());
    // An empty text is no path.
    Option<PathBuf>, Path, |text: &str| Ok((!text.is_empty()).then(|| text.into()));
    Vec<String>, Text, |text| Ok(value::parts(text).map(str::to_owned).collect());
    Vec<EndpointUrl>, Urls, |text: &str| match text {
        "" => Ok(Self::new()),
        text => Ok(EndpointUrl::parse_list(text)?),
    };
}

/// Declares flags by sections of the help page: a constant [`Flag<T>`](crate::config::Flag) for each
/// flag that has an effect, and a table of all flags.
///
/// A flag has a name, a default, a help text and, if need be, other fields of
/// [`Declaration`](crate::config::Declaration). At the end of a section, `@accept TYPE,
/// FORMER_PREFIX: NAME, ..;` and `@one_of WORDS: NAME;` declare flags without effect.
/// ```
/// use revstore_host::config::{GoDuration, Values};
///
/// revstore_host::flags! {
///     static SECTIONS;
///
///     "Limits" {
///         TIMEOUT: GoDuration = "timeout", "5s", "The time limit of a request.";
///         MODE: String = "mode", "fast", "The mode.", suggestions: &["fast", "safe"];
///     }
///     "Accepted without effect" {
///         @accept bool, "experimental-": "eager", "lazy";
///         @one_of ["always", "never"]: "color";
///     }
/// }
///
/// assert_eq!(Values::default().get(&TIMEOUT), GoDuration(5_000_000_000));
/// assert_eq!(MODE.declaration.suggestions, ["fast", "safe"]);
/// assert_eq!(SECTIONS[1].flags.len(), 3);
/// ```
#[macro_export]
macro_rules! flags {
    ($vis:vis static $table:ident; $($title:literal {
        $($name:ident: $type:ty = $flag:literal, $default:literal, $help:literal
            $(, $field:ident: $value:expr)*;)*
        $(@accept $kind:ty, $prefix:literal: $($accepted:literal),+;)*
        $(@one_of [$($word:literal),+]: $choice:literal;)*
    })*) => {
        $($($vis const $name: $crate::config::Flag<$type> =
            $crate::config::Flag::new($crate::config::Declaration {
                default: $default,
                help: $help,
                $($field: $value,)*
                ..$crate::config::Declaration::of::<$type>($flag, "")
            });)*)*
        $vis static $table: &[$crate::config::Section] = &[$($crate::config::Section {
            title: $title,
            flags: &[
                $(&$name.declaration,)*
                $($(&$crate::config::Declaration::of::<$kind>($accepted, $prefix),)+)*
                $(&$crate::config::Declaration::one_of(&[$($word),+], $choice),)*
            ],
        },)*];
    };
}
