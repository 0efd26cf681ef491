//! How long a server takes from exec to the first answered Put.
//!
//! ```sh
//! cargo build --release -p revstore
//! cargo run --release -p revstore --example startup
//! cargo run --release -p revstore --example startup -- /usr/bin/etcd
//! cargo run --release -p revstore --example startup -- /usr/bin/etcd --election-timeout=50 --heartbeat-interval=10
//! ```
//!
//! Each start is a fresh process on a free port with an empty data directory. A start is over when a
//! client that was told the port has connected and has one Put answered. The process is killed then:
//! how it stops is another matter.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::{
    env,
    error::Error,
    ffi::OsString,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use revstore_proto::etcdserverpb::{PutRequest, kv_client::KvClient};
use tokio::runtime::{self, Runtime};
use tonic::transport::Endpoint;

/// Starts that are measured.
const STARTS: usize = 20;
/// How long a start may take before it counts as failed.
const DEADLINE: Duration = Duration::from_secs(30);
/// Between two attempts to connect: short beside a start, long beside an attempt.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let program = arguments
        .next()
        .map_or_else(built_beside, |it| Ok(it.into()))?;
    let flags: Vec<OsString> = arguments.collect();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;

    // One more in front, which reads the program from the disk.
    start(&program, &flags, &runtime)?;
    let mut times = (0..STARTS)
        .map(|_| start(&program, &flags, &runtime))
        .collect::<Result<Vec<_>, _>>()?;
    times.sort_unstable();
    let (min, max) = (times[0], times[STARTS - 1]);
    let median = (times[STARTS / 2 - 1] + times[STARTS / 2]) / 2;
    println!(
        "{}: exec to first answered Put, {STARTS} starts: min {min:.1?}, median {median:.1?}, \
         max {max:.1?}",
        program.display()
    );
    Ok(())
}

/// The server of the same build.
fn built_beside() -> Result<PathBuf, Box<dyn Error>> {
    let example = env::current_exe()?;
    let directory = example.parent().and_then(Path::parent);
    let program = directory.ok_or("no directory of builds")?.join("revstore");
    if program.exists() {
        Ok(program)
    } else {
        let hint = "is missing: cargo build --release -p revstore";
        Err(format!("{} {hint}", program.display()).into())
    }
}

/// Starts once; returns how long it took.
fn start(
    program: &Path,
    flags: &[OsString],
    runtime: &Runtime,
) -> Result<Duration, Box<dyn Error>> {
    let data = tempfile::tempdir()?;
    let address = free_address()?;
    let begin = Instant::now();
    let child = Command::new(program)
        .arg(format!("--listen-client-urls=http://{address}"))
        .arg(format!("--advertise-client-urls=http://{address}"))
        .arg("--listen-peer-urls=http://127.0.0.1:0")
        .arg("--data-dir")
        .arg(data.path().join("data"))
        .args(flags)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut server = Killed(child);
    while TcpStream::connect(address).is_err() {
        if let Some(status) = server.0.try_wait()? {
            return Err(format!("it ended with {status}").into());
        }
        if begin.elapsed() > DEADLINE {
            return Err("it does not take connections".into());
        }
        thread::sleep(POLL_INTERVAL);
    }
    runtime.block_on(put(address))?;
    Ok(begin.elapsed())
}

async fn put(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let channel = Endpoint::new(format!("http://{address}"))?
        .connect()
        .await?;
    let put = PutRequest {
        key: "key".into(),
        value: "value".into(),
        ..PutRequest::default()
    };
    KvClient::new(channel).put(put).await?;
    Ok(())
}

/// A port that was free a moment ago.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
