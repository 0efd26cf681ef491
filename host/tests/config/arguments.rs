//! The command line.

use crate::{AUTO_TLS, NAME, parse, printed, served};

/// Checks the values of two flags, or the error.
fn check(line: &str, expected: Result<(&str, bool), &str>) {
    let actual = served(parse(line, &[]))
        .map(|(values, _)| (values.get(&NAME), values.get(&AUTO_TLS)))
        .map_err(|error| format!("{error}; exit {}", error.exit_code()));
    let expected = expected.map(|(name, auto_tls)| (name.to_owned(), auto_tls));
    assert_eq!(actual, expected.map_err(str::to_owned), "{line:?}");
}

#[test]
fn fl_1_one_dash_or_two_and_value_after_blank_or_equals_sign() {
    check("", Ok(("default", false)));
    for line in [
        "-name a",
        "--name a",
        "-name=a",
        "--name=a",
        "--name=b -name a",
    ] {
        check(line, Ok(("a", false)));
    }
    check("--name -a", Ok(("-a", false)));
    check("--name=a=b", Ok(("a=b", false)));
    check("--name=", Ok(("", false)));
    check("--name a --", Ok(("a", false)));
}

#[test]
fn fl_1_booleans_never_take_the_next_argument() {
    check("--auto-tls", Ok(("default", true)));
    check("-auto-tls=T --name a", Ok(("a", true)));
    check("--auto-tls --auto-tls=false", Ok(("default", false)));
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
        let page = printed(parse(line, &[])).unwrap();
        assert!(page.starts_with("A server.\n"), "{line}: {page}");
    }
    check(
        "--bogus --help",
        Err("flag provided but not defined: -bogus; exit 2"),
    );
    check("--name --help", Ok(("--help", false)));
}

#[test]
fn flags_of_another_program_cause_one_warning_each() {
    for line in [
        "--other-switch --other-value -name --name a",
        "--other-switch=false --other-value=x --name=a --other-value=",
    ] {
        check(line, Ok(("a", false)));
        let (_, warnings) = served(parse(line, &[])).unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
    // This program has the flag, too.
    check("--auto-tls --name a", Ok(("a", true)));
    check(
        "--other-switch true",
        Err("'true' is not a valid flag; exit 1"),
    );
    check(
        "--other-value",
        Err("flag needs an argument: -other-value; exit 2"),
    );
}
