//! The gate of the ports: it knows the open connections.

use revstore_control::{fault::Removal, open::ConnectionCommands};
use revstore_host::net::{ConnectionGate, ConnectionHandle};

use super::stage::Stage;

/// The gate of the ports of a server with control.
#[derive(Debug)]
pub(super) struct Gate(pub(super) Stage);

impl ConnectionGate for Gate {
    fn admit(&self, connection: ConnectionHandle) -> Option<u64> {
        let interceptor = self.0.interceptor();
        let revision = self.0.engine().current_revision().0;
        if interceptor.rules.refuses(revision) {
            return None;
        }
        interceptor.open.activity().touch();
        let address = connection.address().map(|it| it.to_string());
        let since = interceptor.delays.now();
        Some((interceptor.open).connected(address, since, Box::new(Commands(connection))))
    }

    fn ended(&self, connection: u64) {
        self.0.interceptor().open.disconnected(connection);
    }
}

/// The commands to a connection of a port.
#[derive(Debug)]
struct Commands(ConnectionHandle);

impl ConnectionCommands for Commands {
    fn go_away(&self) {
        self.0.go_away();
    }

    fn black_hole(&self, rule: Removal) {
        self.0.black_hole(rule);
    }

    fn close(&self) {
        self.0.close();
    }

    fn reset(&self) {
        self.0.reset();
    }
}
