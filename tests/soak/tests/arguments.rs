//! The arguments of the program.

use std::process::Command;

#[test]
fn a_server_that_does_not_start_is_an_error_that_names_it() {
    let server = "/does/not/exist/revstore";
    let soak = Command::new(env!("CARGO_BIN_EXE_revstore-soak"))
        .args(["--minutes", "0.01", "--server", server])
        .output();
    let soak = soak.expect("the program is built");
    assert_eq!(soak.status.code(), Some(1));
    let error = String::from_utf8_lossy(&soak.stderr);
    assert!(error.contains(server), "{error}");
}
