//! Completion scripts for shells.
//!
//! Each script lists the flags with two dashes and, where a flag has suggestions, its values.

use std::{
    ffi::OsString,
    fmt::{self, Write},
};

use super::{ConfigError, Declaration, FlagSet, Kind};

/// The first argument that asks for a script. The second is the name of a shell.
pub(super) const COMMAND: &str = "completion";

/// Returns the script for the shell that `arguments` name.
pub(super) fn run<C>(
    flags: &FlagSet<C>,
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<String, ConfigError> {
    let shell = arguments.next().unwrap_or_default();
    let write = match (shell.to_str(), arguments.next()) {
        (Some("bash"), None) => bash,
        (Some("fish"), None) => fish,
        (Some("zsh"), None) => zsh,
        _ => {
            let shell = shell.to_string_lossy();
            let message = format!("{COMMAND} needs one shell: bash, fish or zsh (got {shell:?})");
            return Err(ConfigError::new(message));
        }
    };
    let mut script = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut script, flags);
    Ok(script)
}

fn bash<C>(script: &mut String, flags: &FlagSet<C>) -> fmt::Result {
    let program = flags.program;
    write!(
        script,
        "_{program}() {{\n    local current=${{COMP_WORDS[COMP_CWORD]}}\n    \
         case ${{COMP_WORDS[COMP_CWORD-1]}} in\n"
    )?;
    for (flag, name) in names(flags).filter(|(flag, _)| !flag.suggestions.is_empty()) {
        let values = flag.suggestions.join(" ");
        writeln!(
            script,
            "    --{name}) COMPREPLY=($(compgen -W '{values}' -- \"$current\")); return ;;"
        )?;
    }
    let flags: Vec<String> = names(flags).map(|(_, name)| format!("--{name}")).collect();
    // Without a match, bash completes file names.
    write!(
        script,
        "    esac\n    [[ $current == -* ]] || return\n    \
         COMPREPLY=($(compgen -W '{}' -- \"$current\"))\n}}\n\
         complete -o default -F _{program} {program}\n",
        flags.join("\n")
    )
}

fn fish<C>(script: &mut String, flags: &FlagSet<C>) -> fmt::Result {
    let program = flags.program;
    for (flag, name) in names(flags) {
        let value = match flag.kind {
            Kind::Bool => String::new(),
            Kind::Path => " -r -F".to_owned(),
            _ => format!(" -x -a '{}'", flag.suggestions.join(" ")),
        };
        let help = flag.help.replace('\\', "\\\\").replace('\'', "\\'");
        writeln!(script, "complete -c {program} -l {name}{value} -d '{help}'")?;
    }
    Ok(())
}

fn zsh<C>(script: &mut String, flags: &FlagSet<C>) -> fmt::Result {
    let program = flags.program;
    write!(
        script,
        "#compdef {program}\n_{program}() {{\n    _arguments"
    )?;
    for (flag, name) in names(flags) {
        let (equals, value) = match flag.kind {
            Kind::Bool => ("", String::new()),
            Kind::Path => ("=", ":file:_files".to_owned()),
            _ => ("=", format!(":value:({})", flag.suggestions.join(" "))),
        };
        let help = flag.help.replace('\\', "\\\\").replace('\'', "'\\''");
        let help = help.replace('[', "\\[").replace(']', "\\]");
        write!(script, " \\\n        '--{name}{equals}[{help}]{value}'")?;
    }
    write!(
        script,
        "\n}}\nif [[ ${{funcstack[1]}} == _{program} ]]; then _{program} \"$@\"; \
         else compdef _{program} {program}; fi\n"
    )
}

fn names<C>(flags: &FlagSet<C>) -> impl Iterator<Item = (&'static Declaration, String)> + use<C> {
    let flags = flags.flags();
    flags.flat_map(|flag| flag.names().map(move |name| (flag, name)))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use super::*;
    use crate::config::testing::FLAGS;

    fn script(line: &str) -> Result<String, ConfigError> {
        run(&FLAGS, line.split_whitespace().map(Into::into))
    }

    /// What bash prints when it runs these lines; `None` if there is no bash.
    fn bash_output(option: &str, lines: &str) -> Option<String> {
        let mut bash = Command::new("bash")
            .arg(option)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut stdin = bash.stdin.take().unwrap();
        stdin.write_all(lines.as_bytes()).unwrap();
        drop(stdin);
        let output = bash.wait_with_output().unwrap();
        assert!(output.status.success(), "{lines}");
        Some(String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn every_script_contains_every_flag() {
        for (shell, before) in [("bash", "--"), ("fish", "-l "), ("zsh", "'--")] {
            let script = script(shell).unwrap();
            for name in FLAGS.flags().flat_map(Declaration::names) {
                let flag = format!("{before}{name}");
                let mut found = script.match_indices(&flag);
                let is_whole = |(at, _)| {
                    let rest = &script[at + flag.len()..];
                    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-')
                };
                assert!(found.any(is_whole), "{shell} {flag}");
            }
        }
    }

    #[test]
    fn bash_parses_its_script() {
        bash_output("-n", &script("bash").unwrap());
    }

    #[test]
    fn bash_completes_flags_and_values() {
        let script = script("bash").unwrap();
        let complete = |words: &str, expected: &str| {
            let lines = format!(
                "{script}\nCOMP_WORDS=({words}); COMP_CWORD=$(({} - 1))\n_server\n\
                 echo \"${{COMPREPLY[@]}}\"",
                words.split(' ').count()
            );
            if let Some(output) = bash_output("-s", &lines) {
                assert_eq!(output.trim(), expected, "{words}");
            }
        };
        complete("server --na", "--name");
        complete("server --initial-cluster-state n", "new");
        complete(
            "server --name a --exp",
            "--experimental-watch-progress-notify-interval \
            --experimental-initial-corrupt-check",
        );
    }

    #[test]
    fn descriptions_are_quoted() {
        let fish = script("fish").unwrap();
        assert!(
            fish.contains(r"-d 'The \'name\' [of this member].'"),
            "{fish}"
        );
        let zsh = script("zsh").unwrap();
        let expected = r"'--name=[The '\''name'\'' \[of this member\].]:value:()'";
        assert!(zsh.contains(expected), "{zsh}");
    }

    #[test]
    fn an_unknown_shell_is_an_error() {
        for (line, shell) in [("", ""), ("tcsh", "tcsh"), ("bash zsh", "bash")] {
            let error = script(line).unwrap_err();
            let expected = format!("completion needs one shell: bash, fish or zsh (got {shell:?})");
            assert_eq!((error.exit_code(), error.to_string()), (1, expected));
        }
    }
}
