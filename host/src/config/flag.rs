//! Declarations of flags.

use std::{borrow::Cow, marker::PhantomData, path::PathBuf};

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
    /// The form of the values.
    pub kind: ValueKind,
    /// Checks that a text is a value.
    pub check: fn(&Self, &str) -> Result<(), ConfigError>,
    /// Returns whether two texts are the same value.
    pub is_same: fn(&str, &str) -> bool,
    /// Whether the program does what the values ask for.
    pub support: Support,
    /// The default, as a user would write it.
    pub default: &'static str,
    /// The text in the help page. For a flag without effect it is made of [`support`](Self::support).
    pub help: &'static str,
    /// Values that shell completions suggest.
    pub suggestions: &'static [&'static str],
}

/// Whether a program does what the values of a flag ask for.
///
/// Every flag is declared with one of these, so that no value is ignored without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The program reads the value.
    Full,
    /// The flag has no effect. Values other than these cause a warning, because they ask for a behavior
    /// that the program does not have.
    NoEffect {
        /// The values without a warning. The first is the default.
        silent: &'static [&'static str],
        /// The reason, as the end of the sentence "has no effect: ...".
        reason: &'static str,
    },
    /// Values other than these are an error.
    Only {
        /// The values that are accepted. The first is the default.
        accepted: &'static [&'static str],
        /// The reason why other values are an error.
        reason: &'static str,
    },
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
    /// A list of URLs. An empty list does not replace another value, and neither does a URL that is in
    /// the list already.
    Urls,
    /// A list of names. In a file, an empty list does not replace another value.
    Names,
    /// Texts, one on a line. A flag that is given again adds one.
    Repeated,
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
pub trait FlagValue: Sized + PartialEq {
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
    /// A flag with values of type `T`.
    pub const fn of<T: FlagValue>(name: &'static str, former_prefix: &'static str) -> Self {
        Self {
            name,
            former_prefix,
            kind: T::KIND,
            check: |_, text| T::parse(text).map(drop),
            is_same: |a, b| T::parse(a) == T::parse(b),
            support: Support::Full,
            default: "",
            help: "",
            suggestions: &[],
        }
    }

    /// Restricts the values to a few words, unless there are none.
    #[must_use]
    pub const fn one_of(mut self, words: &'static [&'static str]) -> Self {
        if !words.is_empty() {
            self.suggestions = words;
            self.check = |flag, text| match flag.suggestions {
                words if words.contains(&text) => Ok(()),
                words => {
                    let words = words.join(", ");
                    Err(ConfigError::new(format!("must be one of: {words}")))
                }
            };
        }
        self
    }

    /// The text for the help page and for shell completions.
    pub(super) fn description(&self) -> Cow<'static, str> {
        match self.support {
            Support::Full => self.help.into(),
            Support::NoEffect { reason, .. } => format!("Has no effect: {reason}.").into(),
            Support::Only { accepted, reason } => {
                let accepted = quoted(accepted);
                format!("Only {accepted} is supported: {reason}.").into()
            }
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

/// Lists values for a message, each in quotation marks.
pub(super) fn quoted(values: &[&str]) -> String {
    let values = values.iter().map(|value| match *value {
        "" => "the empty text".to_owned(),
        value => format!("'{value}'"),
    });
    values.collect::<Vec<_>>().join(" or ")
}

/// A single URL, or none for an empty value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneUrl(pub Option<EndpointUrl>);

impl FlagValue for OneUrl {
    const KIND: ValueKind = ValueKind::Text;

    fn parse(text: &str) -> Result<Self, ConfigError> {
        match text {
            "" => Ok(Self(None)),
            text => Ok(Self(Some(EndpointUrl::parse(text)?))),
        }
    }
}

/// The values of a flag that can be given several times, in their order. In a variable or a file they are lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repeated(pub Vec<String>);

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
    Repeated, Repeated, |text: &str| match text {
        "" => Ok(Self::default()),
        text => Ok(Self(text.lines().map(str::to_owned).collect())),
    };
    Vec<EndpointUrl>, Urls, |text: &str| match text {
        "" => Ok(Self::new()),
        text => Ok(EndpointUrl::parse_list(text)?),
    };
}

/// Declares flags by sections of the help page: a constant [`Flag<T>`](crate::config::Flag) for each
/// flag that has an effect, and a table of all flags.
///
/// A flag has a name, a default, a help text and, if need be, other fields of
/// [`Declaration`](crate::config::Declaration). At the end of a section, `@no_effect REASON { .. }` and
/// `@only REASON { .. }` declare flags with the other kinds of [`Support`](crate::config::Support), each as
/// its name, in parentheses the prefix of its former name, its type, its default, further values that cause
/// no warning or error, and after `in` the words that are values.
/// ```
/// use revstore_host::config::{GoDuration, Support, Values};
///
/// revstore_host::flags! {
///     static SECTIONS;
///
///     "Limits" {
///         TIMEOUT: GoDuration = "timeout", "5s", "The time limit of a request.";
///         MODE: String = "mode", "fast", "The mode.", suggestions: &["fast", "safe"];
///     }
///     "Without effect" {
///         @no_effect "this program does everything at once" {
///             "eager" ("experimental-"): bool = "true";
///             "delay": GoDuration = "0s" | "1ns";
///         }
///         @only "this program has no screen" {
///             "color": String = "never" in ["always", "never"];
///         }
///     }
/// }
///
/// assert_eq!(Values::default().get(&TIMEOUT), GoDuration(5_000_000_000));
/// assert_eq!(MODE.declaration.suggestions, ["fast", "safe"]);
/// let color = SECTIONS[1].flags[2];
/// assert!(matches!(color.support, Support::Only { accepted: ["never"], .. }));
/// ```
#[macro_export]
macro_rules! flags {
    ($vis:vis static $table:ident; $($title:literal {
        $($name:ident: $type:ty = $flag:literal, $default:literal, $help:literal
            $(, $field:ident: $value:expr)*;)*
        $(@no_effect $idle:literal {
            $($idle_flag:literal $(($idle_prefix:literal))?: $idle_type:ty =
                $idle_default:literal $(| $silent:literal)* $(in [$($idle_word:literal),+])?;)+
        })*
        $(@only $reason:literal {
            $($only_flag:literal $(($only_prefix:literal))?: $only_type:ty =
                $only_default:literal $(| $accepted:literal)* $(in [$($only_word:literal),+])?;)+
        })*
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
                $($(&$crate::config::Declaration {
                    default: $idle_default,
                    support: $crate::config::Support::NoEffect {
                        silent: &[$idle_default $(, $silent)*],
                        reason: $idle,
                    },
                    ..$crate::config::Declaration::of::<$idle_type>(
                        $idle_flag, concat!($($idle_prefix)?)
                    ).one_of(&[$($($idle_word),+)?])
                },)+)*
                $($(&$crate::config::Declaration {
                    default: $only_default,
                    support: $crate::config::Support::Only {
                        accepted: &[$only_default $(, $accepted)*],
                        reason: $reason,
                    },
                    ..$crate::config::Declaration::of::<$only_type>(
                        $only_flag, concat!($($only_prefix)?)
                    ).one_of(&[$($($only_word),+)?])
                },)+)*
            ],
        },)*];
    };
}
