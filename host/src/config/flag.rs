//! Declarations of flags.

use std::{marker::PhantomData, path::PathBuf};

use super::{EndpointUrl, GoDuration, ValueError, value};

/// A flag with values of type `T`. Declared with [`flags!`](crate::flags).
#[derive(Debug)]
pub struct Flag<T> {
    declaration: Declaration,
    value: PhantomData<fn() -> T>,
}

/// The properties of a flag that do not depend on the type of its values.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    pub(super) name: &'static str,
    pub(super) former_prefix: &'static str,
    pub(super) file_key: &'static str,
    pub(super) kind: Kind,
    pub(super) default: &'static str,
    pub(super) help: &'static str,
    pub(super) suggestions: &'static [&'static str],
    pub(super) in_environment: bool,
    pub(super) in_file: bool,
}

/// The type of the values of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean: the only kind of flag that takes no separate argument.
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
    /// A comma-separated list of URLs. Setting an empty list has no effect.
    Urls,
    /// One of a few words.
    Word(&'static [&'static str]),
}

/// A type of values that flags have.
pub trait FlagValue: Sized {
    /// The kind of these flags.
    const KIND: Kind;

    /// Parses a value.
    ///
    /// # Errors
    /// The text is not a value of this type.
    fn parse(text: &str) -> Result<Self, ValueError>;
}

/// Flags that stand under one heading in the help page.
#[derive(Debug)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// The flags, in the order of the help page.
    pub flags: &'static [&'static Declaration],
}

impl<T: FlagValue> Flag<T> {
    /// A flag with its name without dashes, its default as a user would write it and its line in
    /// the help page.
    pub const fn new(name: &'static str, default: &'static str, help: &'static str) -> Self {
        let mut declaration = Declaration::without_effect(name, T::KIND);
        declaration.default = default;
        declaration.help = help;
        Self {
            declaration,
            value: PhantomData,
        }
    }

    /// Accepts `prefix` before the name, too: a former name of the flag.
    #[must_use]
    pub const fn former_prefix(mut self, prefix: &'static str) -> Self {
        self.declaration.former_prefix = prefix;
        self
    }

    /// Accepts `key` instead of the name in the [mapping](super::FlagSet::file_mapping) of a file.
    #[must_use]
    pub const fn file_key(mut self, key: &'static str) -> Self {
        self.declaration.file_key = key;
        self
    }

    /// Suggests these values in shell completions.
    #[must_use]
    pub const fn suggest(mut self, values: &'static [&'static str]) -> Self {
        self.declaration.suggestions = values;
        self
    }

    /// Ignores the flag in files.
    #[must_use]
    pub const fn not_in_file(mut self) -> Self {
        self.declaration.in_file = false;
        self
    }

    /// Ignores the flag in files and in the environment.
    #[must_use]
    pub const fn command_line_only(mut self) -> Self {
        self.declaration.in_environment = false;
        self.not_in_file()
    }

    /// The name of the flag, without dashes.
    pub const fn name(&self) -> &'static str {
        self.declaration.name
    }

    /// The default.
    ///
    /// # Panics
    /// If the default is not a value of this type, which is an error in the declaration.
    pub fn default_value(&self) -> T {
        T::parse(self.declaration.default).expect("the default is a value of the flag")
    }

    /// The declaration of the flag.
    pub const fn declaration(&self) -> &Declaration {
        &self.declaration
    }
}

impl Declaration {
    /// A flag whose values are checked and have no effect.
    pub const fn without_effect(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            former_prefix: "",
            file_key: "",
            kind,
            default: "",
            help: "",
            suggestions: match kind {
                Kind::Word(words) => words,
                _ => &[],
            },
            in_environment: true,
            in_file: true,
        }
    }

    /// Accepts `prefix` before the name, too; nothing if it is empty.
    #[must_use]
    pub const fn former_prefix(mut self, prefix: &'static str) -> Self {
        self.former_prefix = prefix;
        self
    }

    /// The former name of the flag, if it has one, and its name.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let prefix = Some(self.former_prefix).filter(|prefix| !prefix.is_empty());
        let former = prefix.map(|prefix| format!("{prefix}{}", self.name));
        former.into_iter().chain([self.name.to_owned()])
    }

    pub(super) fn has_name(&self, name: &str) -> bool {
        let rest = name.strip_prefix(self.former_prefix);
        name == self.name || rest == Some(self.name)
    }
}

impl Kind {
    /// Checks that a text is a value of this kind.
    pub(super) fn check(self, text: &str) -> Result<(), ValueError> {
        match self {
            Self::Bool => bool::parse(text).map(drop),
            Self::Int => i64::parse(text).map(drop),
            Self::Uint => u64::parse(text).map(drop),
            Self::Uint32 => u32::parse(text).map(drop),
            // Go's flag package does not pass on why a text is not a duration.
            Self::Duration => GoDuration::parse(text).map_or(Err(ValueError::SYNTAX), |_| Ok(())),
            Self::Urls => Vec::<EndpointUrl>::parse(text).map(drop),
            Self::Word(words) if !words.contains(&text) => Err(ValueError::new(format!(
                "must be one of: {}",
                words.join(", ")
            ))),
            Self::Text | Self::Path | Self::List | Self::Word(_) => Ok(()),
        }
    }
}

/// Implements [`FlagValue`] for a type with this kind and parser.
macro_rules! flag_value {
    ($($type:ty, $kind:ident, $parse:expr;)*) => {$(
        impl FlagValue for $type {
            const KIND: Kind = Kind::$kind;

            fn parse(text: &str) -> Result<Self, ValueError> {
                $parse(text)
            }
        }
    )*};
}

flag_value! {
    bool, Bool, value::boolean;
    i64, Int, value::int;
    u64, Uint, value::uint;
    u32, Uint32, |text| u32::try_from(value::uint(text)?).map_err(|_| ValueError::RANGE);
    GoDuration, Duration, GoDuration::parse;
    String, Text, |text: &str| Ok(text.to_owned());
    Option<PathBuf>, Path, |text: &str| Ok((!text.is_empty()).then(|| text.into()));
    Vec<String>, List, |text| Ok(value::parts(text).map(str::to_owned).collect());
    Vec<EndpointUrl>, Urls, |text: &str| match text {
        "" => Ok(Self::new()),
        text => EndpointUrl::parse_list(text),
    };
}

/// Declares flags: a constant [`Flag<T>`](crate::config::Flag) for each flag that has an effect and
/// a table of all flags by [`Section`](crate::config::Section), from which the command line, the
/// environment, the file, the help page and the shell completions follow.
///
/// `@accept KIND, FORMER_PREFIX: NAME, ..;` declares flags that are accepted without effect.
/// ```
/// use revstore_host::config::{Flag, GoDuration, Kind, Section, Values};
///
/// revstore_host::flags! {
///     static SECTIONS;
///
///     "Limits" {
///         TIMEOUT: GoDuration = Flag::new("timeout", "5s", "The time limit of a request.");
///     }
///     "Accepted without effect" {
///         @accept Kind::Bool, "experimental-": "fast", "safe";
///     }
/// }
///
/// assert_eq!(Values::default().get(&TIMEOUT), GoDuration::parse("5s")?);
/// assert_eq!(SECTIONS[1].flags.len(), 2);
/// # Ok::<(), revstore_host::config::ValueError>(())
/// ```
#[macro_export]
macro_rules! flags {
    ($vis:vis static $table:ident; $($title:literal {
        $($name:ident: $type:ty = $flag:expr;)*
        $(@accept $kind:expr, $prefix:literal: $($accepted:literal),+;)*
    })*) => {
        $($($vis const $name: $crate::config::Flag<$type> = $flag;)*)*
        $vis static $table: &[$crate::config::Section] = &[$($crate::config::Section {
            title: $title,
            flags: &[
                $($name.declaration(),)*
                $($(
                    &$crate::config::Declaration::without_effect($accepted, $kind)
                        .former_prefix($prefix),
                )+)*
            ],
        },)*];
    };
}
