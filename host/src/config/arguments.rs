//! The command line, parsed by the rules of Go's flag package.

use std::ffi::OsString;

use super::{ConfigError, FlagSet, ValueKind, Values, set::HELP};

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
    let arguments = arguments.map(|argument| {
        let text = argument.into_string();
        text.or_else(|text| usage(format!("bad flag syntax: {}", text.to_string_lossy())))
    });
    let mut arguments = arguments.peekable();
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
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        if matches!(name, "help" | "h") {
            return values.set(&HELP.declaration, "true");
        }
        let Some(flag) = flags.flags().find(|flag| flag.has_name(name)) else {
            let program = flags.foreign.program;
            let Some(takes_value) = flags.foreign.takes_value(name) else {
                if !flags.foreign.accepts_others {
                    return usage(format!("flag provided but not defined: -{name}"));
                }
                let is_value = |next: &Result<String, _>| {
                    next.as_ref().is_ok_and(|next| !next.starts_with('-'))
                };
                if value.is_none() {
                    arguments.next_if(is_value);
                }
                values.warn_once(format!("--{name} has no effect: it is not known"));
                continue;
            };
            if takes_value && value.is_none() && arguments.next().transpose()?.is_none() {
                return usage(format!("flag needs an argument: -{name}"));
            }
            values.warn_once(format!(
                "--{name} has no effect: it is a flag of {program} that is not implemented"
            ));
            continue;
        };
        let is_bool = flag.kind == ValueKind::Bool;
        let value = match value {
            Some(value) => value.to_owned(),
            None if is_bool => "true".to_owned(),
            None => match arguments.next().transpose()? {
                Some(value) => value,
                None => return usage(format!("flag needs an argument: -{name}")),
            },
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
