//! TCP keep-alive (LI-11) of revstore and, if it is installed, of a real etcd, as Linux reports it.

#![cfg(target_os = "linux")]

use std::fs;
use std::net::TcpStream;

use revstore_tests::server::{Options, Servers};
use revstore_tests::{on_every_server, poll};

on_every_server! { needs: []; li_11_an_idle_connection_is_probed_after_30_seconds }

/// The timer of a socket in `/proc/net/tcp` that sends keep-alive probes.
const KEEPALIVE_TIMER: &str = "02";

/// The time until the first probe, in the unit of `/proc/net/tcp`, hundredths of a second.
const PROBE_AFTER: u64 = 30 * 100;

/// Returns the timer of the connection between two ports of this machine, at the side of `local`, and the time
/// until it ends.
fn timer(local: u16, remote: u16) -> Option<(String, u64)> {
    let (local, remote) = (format!(":{local:04X}"), format!(":{remote:04X}"));
    let sockets = fs::read_to_string("/proc/net/tcp").ok()?;
    let mut sockets = sockets.lines().map(|line| line.split_whitespace());
    sockets.find_map(|mut fields| {
        let (from, to) = (fields.nth(1)?, fields.next()?);
        let (timer, time) = fields.nth(2)?.split_once(':')?;
        let time = u64::from_str_radix(time, 16).ok()?;
        (from.ends_with(&local) && to.ends_with(&remote)).then(|| (timer.to_owned(), time))
    })
}

fn li_11_an_idle_connection_is_probed_after_30_seconds(servers: &Servers) {
    let server = servers.fresh(&Options::default());
    // The client sends nothing, so no HTTP/2 ping would find its end.
    let client = TcpStream::connect(server.address()).expect("the server listens");
    let port = client.local_addr().expect("an address").port();
    // etcd sets its time after it has accepted the connection.
    let found = poll::until(poll::LIMIT, || {
        let (timer, time) = timer(server.address().port(), port)?;
        (timer == KEEPALIVE_TIMER && time <= PROBE_AFTER).then_some(())
    });
    assert!(
        found.is_some(),
        "{:?}",
        timer(server.address().port(), port)
    );
}
