//! The command line, parsed by the rules of Go's flag package.

use std::ffi::OsString;

use super::{ConfigError, FlagSet, Kind, Values};

/// The end of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A valid command line up to a request for help.
    Help,
    /// All arguments are read.
    Complete,
}

/// Reads the arguments, without the program's name, into `values`.
///
/// `-name` and `--name` are the same flag. A boolean takes a value only after `=`, any other flag
/// also from the next argument, even if that begins with a dash.
pub(super) fn read(
    flags: &FlagSet,
    arguments: impl Iterator<Item = OsString>,
    values: &mut Values,
) -> Result<End, ConfigError> {
    let mut arguments = arguments.map(|argument| {
        argument
            .into_string()
            .map_err(|argument| bad_syntax(&argument.to_string_lossy()))
    });
    while let Some(argument) = arguments.next().transpose()? {
        let Some(body) = argument.strip_prefix('-').filter(|body| !body.is_empty()) else {
            return Err(stray(&argument));
        };
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.is_empty() {
            // Two dashes end the flags; another argument after them is an error.
            return match arguments.next().transpose()? {
                Some(argument) => Err(stray(&argument)),
                None => Ok(End::Complete),
            };
        }
        if body.starts_with(['-', '=']) {
            return Err(bad_syntax(&argument));
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let Some(flag) = flags.find(name) else {
            if matches!(name, "help" | "h") {
                return Ok(End::Help);
            }
            let message = format!("flag provided but not defined: -{name}");
            return Err(ConfigError::usage(message));
        };
        if flag.kind == Kind::Bool {
            let value = value.as_deref().unwrap_or("true");
            values.set(flag, value).map_err(|reason| {
                let message = format!("invalid boolean value {value:?} for -{name}: {reason}");
                ConfigError::usage(message)
            })?;
            continue;
        }
        let Some(value) = value.map(Ok).or_else(|| arguments.next()).transpose()? else {
            return Err(ConfigError::usage(format!(
                "flag needs an argument: -{name}"
            )));
        };
        values.set(flag, &value).map_err(|reason| {
            ConfigError::usage(format!(
                "invalid value {value:?} for flag -{name}: {reason}"
            ))
        })?;
    }
    Ok(End::Complete)
}

fn bad_syntax(argument: &str) -> ConfigError {
    ConfigError::usage(format!("bad flag syntax: {argument}"))
}

/// An argument that is not a flag, such as the `false` of `--auto-tls false`.
fn stray(argument: &str) -> ConfigError {
    ConfigError::new(format!("'{argument}' is not a valid flag"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::{AUTO_TLS, FLAGS, NAME};

    fn check(line: &str, expected: Result<(End, &str, bool), &str>) {
        let mut values = Values::default();
        let arguments = line.split(' ').filter(|a| !a.is_empty());
        let actual = read(&FLAGS, arguments.map(Into::into), &mut values)
            .map(|end| (end, values.get(&NAME), values.get(&AUTO_TLS)))
            .map_err(|error| format!("{error}; exit {}", error.exit_code()));
        let expected = expected.map(|(end, name, auto_tls)| (end, name.to_owned(), auto_tls));
        assert_eq!(actual, expected.map_err(str::to_owned), "{line:?}");
    }

    #[test]
    fn fl_1_one_dash_or_two_and_value_after_blank_or_equals_sign() {
        check("", Ok((End::Complete, "default", false)));
        for line in [
            "-name a",
            "--name a",
            "-name=a",
            "--name=a",
            "--name=b -name a",
        ] {
            check(line, Ok((End::Complete, "a", false)));
        }
        check("--name -a", Ok((End::Complete, "-a", false)));
        check("--name=a=b", Ok((End::Complete, "a=b", false)));
        check("--name=", Ok((End::Complete, "", false)));
        check("--name a --", Ok((End::Complete, "a", false)));
    }

    #[test]
    fn fl_1_booleans_never_take_the_next_argument() {
        check("--auto-tls", Ok((End::Complete, "default", true)));
        check("-auto-tls=T --name a", Ok((End::Complete, "a", true)));
        check(
            "--auto-tls --auto-tls=false",
            Ok((End::Complete, "default", false)),
        );
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
                    End::Help,
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
        check("--name --help", Ok((End::Complete, "--help", false)));
    }
}
