//! The command line, read by the rules of Go's flag package (FL-1).
//!
//! A parser of our own, and not clap: here `-name` and `--name` are the same, a boolean never takes
//! the next argument, any other flag always does, dashes or not, and the first argument that is
//! not a flag ends it all. To rewrite such a line into one for clap, the rewriting pass must know
//! every flag and whether it takes a value; what it has then done is the parsing. clap would look
//! the names up a second time, and its messages, exit codes and help page would all have to be
//! replaced, since harnesses depend on etcd's (FL-5, FL-7). What is left is the loop below.

use std::ffi::OsString;

use crate::{draft::Draft, error::ConfigError, flags};

/// How the command line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It asks for help; what came before was in order.
    Help,
    /// All of it is in the draft.
    Done,
}

/// Reads the arguments, without the program's name, into the draft. The last of several values
/// for a flag counts.
pub(crate) fn read(
    arguments: impl IntoIterator<Item = OsString>,
    draft: &mut Draft,
) -> Result<End, ConfigError> {
    let mut arguments = arguments.into_iter().map(|argument| {
        argument
            .into_string()
            .map_err(|argument| ConfigError::BadSyntax {
                argument: argument.to_string_lossy().into_owned(),
            })
    });
    while let Some(argument) = arguments.next().transpose()? {
        let Some(body) = argument.strip_prefix('-').filter(|body| !body.is_empty()) else {
            return Err(ConfigError::StrayArgument { argument });
        };
        let body = body.strip_prefix('-').unwrap_or(body);
        if body.is_empty() {
            // Two dashes end the flags, and nothing may follow them.
            return match arguments.next().transpose()? {
                Some(argument) => Err(ConfigError::StrayArgument { argument }),
                None => Ok(End::Done),
            };
        }
        if body.starts_with(['-', '=']) {
            return Err(ConfigError::BadSyntax { argument });
        }

        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let Some(flag) = flags::find(name) else {
            if matches!(name, "help" | "h") {
                return Ok(End::Help);
            }
            return Err(ConfigError::UnknownFlag {
                flag: name.to_owned(),
            });
        };
        let name = name.to_owned();
        if flag.is_bool() {
            let value = value.unwrap_or_else(|| "true".to_owned());
            flag.set(draft, &value)
                .map_err(|reason| ConfigError::BadBoolean {
                    flag: name,
                    value,
                    reason,
                })?;
            continue;
        }
        let value = match value {
            Some(value) => value,
            None => match arguments.next().transpose()? {
                Some(value) => value,
                None => return Err(ConfigError::MissingValue { flag: name }),
            },
        };
        flag.set(draft, &value)
            .map_err(|reason| ConfigError::BadValue {
                flag: name,
                value,
                reason,
            })?;
    }
    Ok(End::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<(End, &str, bool), &str>) {
        let mut draft = Draft::default();
        let actual = read(
            line.split(' ').filter(|a| !a.is_empty()).map(Into::into),
            &mut draft,
        )
        .map(|end| (end, draft.name.as_str(), draft.auto_tls))
        .map_err(|error| format!("{error}; exit {}", error.exit_code()));
        assert_eq!(actual, expected.map_err(str::to_owned), "{line:?}");
    }

    #[test]
    fn fl_1_one_dash_or_two_and_value_after_blank_or_equals_sign() {
        check("", Ok((End::Done, "default", false)));
        for line in [
            "-name a",
            "--name a",
            "-name=a",
            "--name=a",
            "--name=b -name a",
        ] {
            check(line, Ok((End::Done, "a", false)));
        }
        check("--name -a", Ok((End::Done, "-a", false)));
        check("--name=a=b", Ok((End::Done, "a=b", false)));
        check("--name=", Ok((End::Done, "", false)));
        check("--name a --", Ok((End::Done, "a", false)));
    }

    #[test]
    fn fl_1_booleans_never_take_the_next_argument() {
        check("--auto-tls", Ok((End::Done, "default", true)));
        check("-auto-tls=T --name a", Ok((End::Done, "a", true)));
        check(
            "--auto-tls --auto-tls=false",
            Ok((End::Done, "default", false)),
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
    fn fl_5_help_counts_where_it_stands() {
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
        check("--name --help", Ok((End::Done, "--help", false)));
    }
}
