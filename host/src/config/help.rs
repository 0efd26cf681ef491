//! The help page.

use std::fmt::{self, Write};

use super::{Declaration, FlagSet, Section, set::COMMON_SECTIONS};

/// Returns the text that `--help` prints.
///
/// Each flag stands at the start of a line, with only blanks before its dashes: programs search the
/// page for a flag before they use it.
pub(super) fn text<C>(flags: &FlagSet<C>) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut page, flags);
    page
}

fn write_page<C>(page: &mut String, flags: &FlagSet<C>) -> fmt::Result {
    page.write_str(flags.about)?;
    for Section { title, flags } in COMMON_SECTIONS.iter().chain(flags.sections) {
        write!(page, "\n{title}:\n")?;
        flags.iter().try_for_each(|flag| write_flag(page, flag))?;
    }
    let program = flags.program;
    write!(
        page,
        "\nShell completions: '{program} completion bash', 'fish' or 'zsh' prints a script.\n"
    )
}

fn write_flag(page: &mut String, flag: &Declaration) -> fmt::Result {
    let Declaration {
        name,
        default,
        help,
        ..
    } = flag;
    if help.is_empty() {
        return flag
            .names()
            .try_for_each(|name| writeln!(page, "  --{name}"));
    }
    writeln!(page, "  --{name} '{default}'\n    {help}")?;
    let mut former = flag.names().filter(|other| other != name);
    former.try_for_each(|former| writeln!(page, "  --{former}\n    The former name of --{name}."))
}
