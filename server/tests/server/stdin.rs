//! Tests of `--exit-with-stdin`, with which a program starts a server that ends with it.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
};

use crate::support::{ANY_PORT, get};

/// Starts a server with pipes as its standard input, output and error.
fn start(program: &mut Command) -> Child {
    program
        .args(ANY_PORT)
        .arg("--exit-with-stdin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    program.spawn().unwrap()
}

fn revstore() -> Command {
    Command::new(env!("CARGO_BIN_EXE_revstore"))
}

/// Returns the words after `revstore ready`.
fn ready(server: &mut Child) -> Vec<String> {
    let mut line = String::new();
    let mut output = BufReader::new(server.stdout.as_mut().unwrap());
    output.read_line(&mut line).unwrap();
    let urls = line.strip_prefix("revstore ready ").expect(&line);
    urls.split_whitespace().map(str::to_owned).collect()
}

fn is_served(url: &str) -> bool {
    let address = url.strip_prefix("http://").unwrap();
    get(address.parse().unwrap(), "/health").status == 200
}

#[test]
fn the_ready_line_has_the_urls_and_the_end_of_standard_input_stops_the_server() {
    let mut server = start(revstore().arg("--control-listen-url=http://127.0.0.1:0"));
    let urls = ready(&mut server);
    assert_eq!(urls.len(), 2, "{urls:?}");
    assert!(is_served(&urls[0]));
    // What arrives has no effect.
    let mut input = server.stdin.take().unwrap();
    input.write_all(&vec![b'x'; 100_000]).unwrap();
    assert!(is_served(&urls[0]));
    drop(input);
    let output = server.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains(r#""signal":"end of standard input""#), "{log}");
    assert!(output.stdout.is_empty(), "one line only");
}

#[test]
fn the_ready_line_does_not_depend_on_the_log() {
    let mut server = start(revstore().args(["--log-level=error", "--log-outputs=/dev/null"]));
    let urls = ready(&mut server);
    assert_eq!(urls.len(), 1, "without control: {urls:?}");
    assert!(is_served(&urls[0]));
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_server_ends_with_a_process_that_is_killed() {
    // `sleep` holds the write end of the server's standard input, and is killed without a chance to close it.
    let mut holder = Command::new("sleep");
    let mut holder = holder.arg("600").stdout(Stdio::piped()).spawn().unwrap();
    let pipe = holder.stdout.take().unwrap();
    let mut program = revstore();
    program.args(ANY_PORT).arg("--exit-with-stdin");
    let mut server = program
        .stdin(pipe)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(is_served(&ready(&mut server)[0]));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn an_input_that_has_ended_already_stops_the_server_at_once() {
    let mut program = revstore();
    program.args(ANY_PORT).arg("--exit-with-stdin");
    let output = program.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("end of standard input"), "{log}");
}
