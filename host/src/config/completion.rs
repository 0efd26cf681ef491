//! Completion scripts for shells.
//!
//! Each script lists the flags with two dashes and, where a flag has suggestions, its values.

use std::ffi::OsString;

use super::{ConfigError, Declaration, FlagSet, ValueKind};

/// The first argument that asks for a script. The second is the name of a shell.
pub(super) const COMMAND: &str = "completion";

/// Returns the script for the shell that `arguments` name.
pub(super) fn run<C>(
    flags: &FlagSet<C>,
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<String, ConfigError> {
    let shell = arguments.next().unwrap_or_default();
    match (shell.to_str(), arguments.next()) {
        (Some("bash"), None) => Ok(bash(flags)),
        (Some("fish"), None) => Ok(fish(flags)),
        (Some("zsh"), None) => Ok(zsh(flags)),
        _ => {
            let shell = shell.to_string_lossy();
            let message = format!("{COMMAND} needs one shell: bash, fish or zsh (got {shell:?})");
            Err(ConfigError::new(message))
        }
    }
}

fn bash<C>(flags: &FlagSet<C>) -> String {
    let program = flags.program;
    let names = join_names(flags, |_, name| format!("--{name}\n"));
    let values = join_names(flags, |flag, name| match flag.suggestions {
        [] => String::new(),
        values => {
            let values = values.join(" ");
            format!(
                "    --{name}) COMPREPLY=($(compgen -W '{values}' -- \"$current\")); return ;;\n"
            )
        }
    });
    // Without a match, bash completes file names.
    format!(
        r#"_{program}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}}
    case ${{COMP_WORDS[COMP_CWORD-1]}} in
{values}    esac
    [[ $current == -* ]] || return
    COMPREPLY=($(compgen -W '{names}' -- "$current"))
}}
complete -o default -F _{program} {program}
"#
    )
}

fn fish<C>(flags: &FlagSet<C>) -> String {
    let program = flags.program;
    join_names(flags, |flag, name| {
        let value = match flag.kind {
            ValueKind::Bool => String::new(),
            ValueKind::Path => " -r -F".to_owned(),
            _ => format!(" -x -a '{}'", flag.suggestions.join(" ")),
        };
        let help = flag
            .description()
            .replace('\\', "\\\\")
            .replace('\'', "\\'");
        format!("complete -c {program} -l {name}{value} -d '{help}'\n")
    })
}

fn zsh<C>(flags: &FlagSet<C>) -> String {
    let program = flags.program;
    let arguments = join_names(flags, |flag, name| {
        let value = match flag.kind {
            ValueKind::Bool => String::new(),
            ValueKind::Path => ":file:_files".to_owned(),
            _ => format!(":value:({})", flag.suggestions.join(" ")),
        };
        let equals = if flag.kind == ValueKind::Bool {
            ""
        } else {
            "="
        };
        let help = flag
            .description()
            .replace('\\', "\\\\")
            .replace('\'', "'\\''");
        let help = help.replace('[', "\\[").replace(']', "\\]");
        format!(" \\\n        '--{name}{equals}[{help}]{value}'")
    });
    format!(
        r#"#compdef {program}
_{program}() {{
    _arguments{arguments}
}}
if [[ ${{funcstack[1]}} == _{program} ]]; then _{program} "$@"; else compdef _{program} {program}; fi
"#
    )
}

/// Returns the texts for all names of all flags, one after the other.
fn join_names<C>(flags: &FlagSet<C>, text: impl Fn(&Declaration, String) -> String) -> String {
    let text = &text;
    let flags = flags.flags();
    flags
        .flat_map(|flag| flag.names().map(move |name| text(flag, name)))
        .collect()
}
