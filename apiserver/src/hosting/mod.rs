//! A server in the process of its etcd.
//!
//! envtest starts two processes: an etcd, and a kube-apiserver over it. If both are this program, the objects need not go
//! from one to the other over a socket: the process under the name `kube-apiserver`, the *guest*, asks that under the name
//! `etcd`, the *host*, to run the server over its store. What others see is the same: the objects are in the etcd, they
//! outlive the guest, and the server ends with the guest, however that ends.
//!
//! The host listens on a Unix socket in the abstract namespace, whose name has the address of its clients. Both have to
//! be processes of the same user with the same files. If anything is not as expected, the guest serves itself, over the network.
//!
//! | file | contents |
//! |---|---|
//! | `host.rs` | `Host`, which runs servers for guests |
//! | `guest.rs` | `HostedServer`, a server that a host runs for this process |
//! | `connection.rs` | messages between them |
//! | `message.rs` | what they say |
//! | `place.rs` | what names of files mean to a process |

mod connection;
mod guest;
mod host;
mod message;
mod place;

use std::net::SocketAddr;

pub(crate) use guest::{HostedServer, Hosting, HostingError};
pub(crate) use host::Host;

/// Returns the name of the socket of a host whose clients connect to this address. Only Linux has such names.
fn socket_of(clients: SocketAddr) -> String {
    format!("\0revstore-etcd/{clients}")
}
