//! Completion scripts.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use revstore_host::config::ConfigError;

use crate::{parse, printed};

fn script(line: &str) -> Result<String, ConfigError> {
    printed(parse(&format!("completion {line}"), &[]))
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
    let page = printed(parse("--help", &[])).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("  --"));
    let names: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names.len(), 26, "{names:?}");
    for (shell, before) in [("bash", "--"), ("fish", "-l "), ("zsh", "'--")] {
        let script = script(shell).unwrap();
        for name in &names {
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
