//! Tests of the messages to systemd.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::Command,
};

use crate::support::{ANY_PORT, ServerProcess, WAIT_TIMEOUT, display, get};

/// Starts a server with this `NOTIFY_SOCKET`.
fn start(notify_socket: &str) -> ServerProcess {
    let mut command = Command::new("/usr/bin/env");
    command
        .arg(format!("NOTIFY_SOCKET={notify_socket}"))
        .arg(env!("CARGO_BIN_EXE_revstore"))
        .args(ANY_PORT);
    ServerProcess::spawn(&mut command)
}

fn receive(socket: &UnixDatagram) -> io::Result<String> {
    socket.set_read_timeout(Some(WAIT_TIMEOUT))?;
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

fn check_messages(socket: &UnixDatagram, name: &str) {
    let mut process = start(name);
    assert_eq!(receive(socket).unwrap(), "READY=1");
    let address = process.address_of("client");
    assert_eq!(get(address, "/health").status, 200);
    process.wait_for_line("successfully notified init daemon");
    process.signal("TERM");
    assert_eq!(receive(socket).unwrap(), "STOPPING=1");
}

#[test]
fn the_start_and_the_stop_are_reported_to_a_path_or_an_abstract_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    check_messages(&socket, &display(&path));

    let name = format!("revstore-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    check_messages(&socket, &format!("@{name}"));
}

#[test]
fn a_socket_that_is_missing_or_full_does_not_stop_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let full = directory.path().join("full");
    let _socket = UnixDatagram::bind(&full).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"x", &full).is_ok() {}
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let missing = directory.path().join("missing");
    let long = format!("/{}", "x".repeat(500));
    for name in [display(&full), display(&file), display(&missing), long] {
        let mut process = start(&name);
        process.wait_for_line("failed to notify systemd for readiness");
        let address = process.address_of("client");
        assert_eq!(get(address, "/health").status, 200, "{name}");
        process.signal("TERM");
        process.wait();
    }
}
