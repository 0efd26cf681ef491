//! Tests of the command line: output and exit codes of the binary.

use std::{
    path::Path,
    process::{Command, Output},
};

fn revstore(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_revstore"))
        .args(line.split_whitespace())
        .env_clear()
        .output()
        .expect("the binary runs")
}

fn check(line: &str, exit_code: i32, stdout: &str, stderr: &str) {
    let output = revstore(line);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(exit_code), "{line}: {err}");
    assert!(
        out.contains(stdout) && out.is_empty() == stdout.is_empty(),
        "{line}: {out}"
    );
    assert!(
        err.contains(stderr) && err.is_empty() == stderr.is_empty(),
        "{line}: {err}"
    );
}

#[test]
fn fl_5_help_goes_to_stdout_and_exits_0() {
    check("--help", 0, "\n  --unsafe-no-fsync 'false'\n", "");
}

#[test]
fn fl_6_version_goes_to_stdout_and_exits_0() {
    check(
        "--version",
        0,
        "etcd Version: 3.5.30\nrevstore Version: ",
        "",
    );
    assert!(revstore("--version").stdout.starts_with(b"etcd Version: "));
}

#[test]
fn fl_7_errors_go_to_stderr() {
    check("--bogus", 2, "", "flag provided but not defined: -bogus\n");
    check(
        "--max-txn-ops=x",
        2,
        "",
        "invalid value \"x\" for flag -max-txn-ops: parse error\n",
    );
    check("stray", 1, "", "'stray' is not a valid flag\n");
    check(
        "--auto-compaction-mode=x",
        1,
        "",
        "unknown auto-compaction-mode \"x\"\n",
    );
}

#[test]
fn a_data_directory_that_cannot_be_created_is_an_error() {
    // The parent is a file, so the directory cannot be created.
    let path = Path::new(env!("CARGO_BIN_EXE_revstore")).join("data");
    let line = format!("--data-dir={}", path.display());
    check(&line, 1, "", "cannot create the data directory ");
}
