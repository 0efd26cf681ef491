//! What `--help` prints.

use std::fmt::{self, Write};

use crate::flags::{self, Flag, Section};

/// The help page.
///
/// FL-5: each flag stands at the start of a line with only blanks before its dashes; envtest runs
/// `etcd --help` and looks for `^\s*--unsafe-no-fsync\b` before it passes that flag.
pub(crate) fn text() -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page);
    page
}

fn write_page(page: &mut impl Write) -> fmt::Result {
    page.write_str(
        "revstore, an in-memory server that behaves like one etcd node.\n\
         \n\
         Usage: revstore [flags]\n\
         \n\
         Flags start with one dash or two, and take their value as '--flag value' or\n\
         '--flag=value', booleans only as '--flag' or '--flag=value'. Every flag is also a\n\
         variable, --max-txn-ops for example ETCD_MAX_TXN_OPS. A flag beats its variable.\n",
    )?;
    for Section { title, flags } in flags::SECTIONS {
        write!(page, "\n{title}:\n")?;
        for flag in *flags {
            write_flag(page, flag)?;
        }
    }
    page.write_str("\n  --help\n    Print this page and exit.\n")
}

fn write_flag(page: &mut impl Write, flag: &Flag) -> fmt::Result {
    if flag.help.is_empty() {
        return flag
            .names()
            .try_for_each(|name| writeln!(page, "  --{name}"));
    }
    writeln!(
        page,
        "  --{} '{}'\n    {}",
        flag.name, flag.default, flag.help
    )?;
    let former = flag.names().filter(|name| name != flag.name);
    former
        .into_iter()
        .try_for_each(|name| writeln!(page, "  --{name}\n    The former name of --{}.", flag.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags that a harness finds by matching `^\s*--flag\b`.
    fn listed() -> Vec<String> {
        let page = text();
        let flags = page
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("--"));
        flags
            .map(|line| line.split(' ').next().unwrap_or(line).to_owned())
            .collect()
    }

    fn check(flag: &str) {
        let count = listed().iter().filter(|listed| *listed == flag).count();
        assert_eq!(count, 1, "{flag}");
    }

    #[test]
    fn fl_5_every_flag_starts_a_line_once() {
        check("unsafe-no-fsync");
        check("experimental-watch-progress-notify-interval");
        check("start-revision");
        check("help");
        flags::all()
            .flat_map(Flag::names)
            .for_each(|name| check(&name));
    }

    #[test]
    fn nothing_else_looks_like_a_flag() {
        for name in listed() {
            assert!(name == "help" || flags::find(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn ignored_flags_have_a_heading() {
        assert!(text().contains(flags::IGNORED));
    }
}
