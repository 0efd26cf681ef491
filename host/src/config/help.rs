//! The help page.

use super::{Declaration, FlagSet, Section, set::COMMON_SECTIONS};

/// Returns the text that `--help` prints.
///
/// Each flag stands at the start of a line, with only blanks before its dashes: programs search the
/// page for a flag before they use it.
pub(super) fn page<C>(flags: &FlagSet<C>) -> String {
    let (about, program) = (flags.about, flags.program);
    let sections = COMMON_SECTIONS.iter().chain(flags.sections);
    let sections: String = sections.map(section_text).collect();
    format!(
        "{about}{sections}\n\
         Shell completions: '{program} completion bash', 'fish' or 'zsh' prints a script.\n"
    )
}

fn section_text(Section { title, flags }: &Section) -> String {
    let flags: Vec<String> = flags.iter().map(|flag| flag_text(flag)).collect();
    format!("\n{title}:\n{}", flags.concat())
}

fn flag_text(flag: &Declaration) -> String {
    let (name, default, help) = (flag.name, flag.default, flag.description());
    let former = match flag.former_prefix {
        "" => String::new(),
        prefix => format!("  --{prefix}{name}\n    The former name of --{name}.\n"),
    };
    format!("  --{name} '{default}'\n    {help}\n{former}")
}
