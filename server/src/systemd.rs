//! The readiness protocol of systemd: messages to the socket in `NOTIFY_SOCKET`.

use std::{
    env,
    ffi::OsStr,
    io,
    os::unix::{ffi::OsStrExt as _, net::UnixDatagram},
};

use tracing::{error, info, warn};

/// Reports that the server is ready, if a supervisor waits for it. A failure is only logged.
pub(crate) fn notify_ready() {
    let Some(socket) = socket() else { return };
    info!("notifying init daemon");
    match send(&socket, "READY=1") {
        Ok(()) => info!("successfully notified init daemon"),
        Err(error) => error!(%error, "failed to notify systemd for readiness"),
    }
}

/// Reports that the server stops. etcd does not report this.
pub(crate) fn notify_stopping() {
    if let Some(Err(error)) = socket().map(|socket| send(&socket, "STOPPING=1")) {
        warn!(%error, "failed to notify systemd of the stop");
    }
}

fn socket() -> Option<std::ffi::OsString> {
    env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty())
}

/// Sends a message to a socket: a path, or an abstract name after `@`.
fn send(name: &OsStr, message: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A supervisor that does not read must not block the server.
    socket.set_nonblocking(true)?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => send_abstract(&socket, name, message)?,
        None => socket.send_to(message.as_bytes(), name)?,
    };
    Ok(())
}

#[cfg(target_os = "linux")]
fn send_abstract(socket: &UnixDatagram, name: &[u8], message: &str) -> io::Result<usize> {
    use std::os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr};
    socket.send_to_addr(message.as_bytes(), &SocketAddr::from_abstract_name(name)?)
}

#[cfg(not(target_os = "linux"))]
fn send_abstract(_: &UnixDatagram, _: &[u8], _: &str) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
