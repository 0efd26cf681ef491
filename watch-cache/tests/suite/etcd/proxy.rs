//! A TCP proxy between a source and its server.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A TCP proxy with one address, whose server can be replaced, and which can stop to forward.
pub(crate) struct Proxy {
    pub(crate) url: String,
    target: Arc<Mutex<Option<SocketAddr>>>,
    /// Notified when the server is replaced. Connections to the previous server then end.
    moved: watch::Sender<()>,
    /// Whether nothing is forwarded. Connections stay open, and new ones are accepted.
    is_frozen: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn open(server: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = Arc::new(Mutex::new(server));
        let (moved, is_frozen) = (watch::Sender::new(()), watch::Sender::new(false));
        let (current, ends, freezes) = (target.clone(), moved.clone(), is_frozen.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let address = *current.lock().unwrap();
                let (mut end, freeze) = (ends.subscribe(), freezes.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = forward(client, address, freeze) => {}
                        _ = end.changed() => {}
                    }
                });
            }
        });
        Self {
            url,
            target,
            moved,
            is_frozen,
        }
    }

    pub(crate) fn move_to(&self, server: Option<SocketAddr>) {
        *self.target.lock().unwrap() = server;
        self.moved.send_replace(());
    }

    /// Stops to forward.
    pub(crate) fn freeze(&self) {
        self.is_frozen.send_replace(true);
    }

    /// Forwards again, over new connections. Earlier ones stay frozen.
    pub(crate) fn thaw(&self) {
        self.is_frozen.send_replace(false);
    }
}

/// Forwards until the connection ends. Holds it open when the proxy is frozen.
async fn forward(
    mut client: TcpStream,
    address: Option<SocketAddr>,
    mut is_frozen: watch::Receiver<bool>,
) {
    let frozen = async {
        // The proxy may end first.
        let _ = is_frozen.wait_for(|is_frozen| *is_frozen).await;
    };
    let copied = async {
        let mut server = TcpStream::connect(address?).await.ok()?;
        let mut end = std::pin::pin!(tokio::io::copy_bidirectional(&mut client, &mut server));
        (&mut end).await.ok()
    };
    let mut copied = std::pin::pin!(copied);
    tokio::select! {
        biased;
        () = frozen => {}
        _ = &mut copied => return,
    }
    // `copied` holds both connections.
    std::future::pending::<()>().await;
}
