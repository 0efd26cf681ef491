//! The command line, parsed by the rules of Go's flag package.

use std::ffi::OsString;

use super::{ConfigError, FlagSet, Kind, Values, set::HELP};

/// Reads the arguments, without the program's name, into `values`, up to a request for help.
///
/// `-name` and `--name` are the same flag. A boolean takes a value only after `=`, any other flag
/// also from the next argument, even if that begins with a dash.
pub(super) fn read<C>(
    flags: &FlagSet<C>,
    arguments: impl Iterator<Item = OsString>,
    values: &mut Values,
) -> Result<(), ConfigError> {
    // For example the `false` of `--auto-tls false`.
    let stray = |argument| {
        Err(ConfigError::new(format!(
            "'{argument}' is not a valid flag"
        )))
    };
    let mut arguments = arguments.map(|argument| {
        let text = argument.into_string();
        text.or_else(|text| usage(format!("bad flag syntax: {}", text.to_string_lossy())))
    });
    while let Some(argument) = arguments.next().transpose()? {
        let Some(body) = argument.strip_prefix('-').filter(|body| !body.is_empty()) else {
            return stray(argument);
        };
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.is_empty() {
            // Two dashes end the flags; another argument after them is an error.
            return arguments.next().transpose()?.map_or(Ok(()), stray);
        }
        if body.starts_with(['-', '=']) {
            return usage(format!("bad flag syntax: {argument}"));
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        if matches!(name, "help" | "h") {
            return values.set(HELP.declaration(), "true");
        }
        let Some(flag) = flags.flags().find(|flag| flag.has_name(name)) else {
            return usage(format!("flag provided but not defined: -{name}"));
        };
        let is_bool = flag.kind == Kind::Bool;
        let value = match value {
            None if is_bool => "true".to_owned(),
            None => match arguments.next().transpose()? {
                Some(value) => value,
                None => return usage(format!("flag needs an argument: -{name}")),
            },
            Some(value) => value,
        };
        if let Err(reason) = values.set(flag, &value) {
            return usage(if is_bool {
                format!("invalid boolean value {value:?} for -{name}: {reason}")
            } else {
                format!("invalid value {value:?} for flag -{name}: {reason}")
            });
        }
    }
    Ok(())
}

fn usage<T>(message: String) -> Result<T, ConfigError> {
    Err(ConfigError::usage(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::{AUTO_TLS, FLAGS, NAME};

    fn check(line: &str, expected: Result<(bool, &str, bool), &str>) {
        let mut values = Values::default();
        let arguments = line.split(' ').filter(|a| !a.is_empty());
        let actual = read(&FLAGS, arguments.map(Into::into), &mut values)
            .map(|()| (values.get(&HELP), values.get(&NAME), values.get(&AUTO_TLS)))
            .map_err(|error| format!("{error}; exit {}", error.exit_code()));
        let expected = expected.map(|(help, name, auto_tls)| (help, name.to_owned(), auto_tls));
        assert_eq!(actual, expected.map_err(str::to_owned), "{line:?}");
    }

    #[test]
    fn fl_1_one_dash_or_two_and_value_after_blank_or_equals_sign() {
        check("", Ok((false, "default", false)));
        for line in [
            "-name a",
            "--name a",
            "-name=a",
            "--name=a",
            "--name=b -name a",
        ] {
            check(line, Ok((false, "a", false)));
        }
        check("--name -a", Ok((false, "-a", false)));
        check("--name=a=b", Ok((false, "a=b", false)));
        check("--name=", Ok((false, "", false)));
        check("--name a --", Ok((false, "a", false)));
    }

    #[test]
    fn fl_1_booleans_never_take_the_next_argument() {
        check("--auto-tls", Ok((false, "default", true)));
        check("-auto-tls=T --name a", Ok((false, "a", true)));
        check("--auto-tls --auto-tls=false", Ok((false, "default", false)));
        check("--auto-tls true", Err("'true' is not a valid flag; exit 1"));
    }

    #[test]
    fn fl_7_unknown_flags_and_bad_values_exit_2() {
        check(
            "--bogus",
            Err("flag provided but not defined: -bogus; exit 2"),
        );
        check(
            "--bogus=1",
            Err("flag provided but not defined: -bogus; exit 2"),
        );
        check("--name", Err("flag needs an argument: -name; exit 2"));
        check("---name", Err("bad flag syntax: ---name; exit 2"));
        check("-=a", Err("bad flag syntax: -=a; exit 2"));
        check(
            "--max-txn-ops=x",
            Err("invalid value \"x\" for flag -max-txn-ops: parse error; exit 2"),
        );
        check(
            "--auto-tls=maybe",
            Err("invalid boolean value \"maybe\" for -auto-tls: parse error; exit 2"),
        );
    }

    #[test]
    fn fl_7_stray_arguments_exit_1() {
        check("stray --bogus", Err("'stray' is not a valid flag; exit 1"));
        check("-", Err("'-' is not a valid flag; exit 1"));
        check("--name a -- b", Err("'b' is not a valid flag; exit 1"));
    }

    #[test]
    fn fl_5_help_ends_the_command_line() {
        for line in [
            "-h",
            "--h",
            "-help",
            "--help",
            "--help=x",
            "--name a --help --bogus",
        ] {
            check(
                line,
                Ok((
                    true,
                    if line.contains("name") {
                        "a"
                    } else {
                        "default"
                    },
                    false,
                )),
            );
        }
        check(
            "--bogus --help",
            Err("flag provided but not defined: -bogus; exit 2"),
        );
        check("--name --help", Ok((false, "--help", false)));
    }
}
