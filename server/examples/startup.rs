//! Measures the time from the start of a server process to the response to its first Put.
//!
//! ```sh
//! cargo build --release -p revstore
//! cargo run --release -p revstore --example startup
//! cargo run --release -p revstore --example startup -- /usr/bin/etcd
//! cargo run --release -p revstore --example startup -- /usr/bin/etcd --election-timeout=50 --heartbeat-interval=10
//! ```
//!
//! Each start is a new process on a free port with an empty data directory. A start is complete when a client
//! has connected to that port and has received the response to one Put. The process is then killed. Stopping
//! is not measured.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

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

/// The number of measured starts.
const STARTS: usize = 20;
/// The time limit of a start.
const DEADLINE: Duration = Duration::from_secs(30);
/// The delay between two attempts to connect: shorter than a start, longer than an attempt.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let program = arguments
        .next()
        .map_or_else(server_of_this_build, |it| Ok(it.into()))?;
    let flags: Vec<OsString> = arguments.collect();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;

    // An unmeasured start reads the program from the disk.
    start(&program, &flags, &runtime)?;
    let mut times = (0..STARTS)
        .map(|_| start(&program, &flags, &runtime))
        .collect::<Result<Vec<_>, _>>()?;
    times.sort_unstable();
    let (min, max) = (times[0], times[STARTS - 1]);
    let median = (times[STARTS / 2 - 1] + times[STARTS / 2]) / 2;
    println!(
        "{}: exec to first Put response, {STARTS} starts: min {min:.1?}, median {median:.1?}, \
         max {max:.1?}",
        program.display()
    );
    Ok(())
}

/// Returns the path of the server from the same build.
fn server_of_this_build() -> Result<PathBuf, Box<dyn Error>> {
    let example = env::current_exe()?;
    let directory = example.parent().and_then(Path::parent);
    let program = directory
        .ok_or_else(|| format!("{} is not in a build directory", example.display()))?
        .join("revstore");
    if program.exists() {
        Ok(program)
    } else {
        let hint = "is missing: cargo build --release -p revstore";
        Err(format!("{} {hint}", program.display()).into())
    }
}

/// Starts the server once and returns the time.
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
    let mut server = KillOnDrop(child);
    while TcpStream::connect(address).is_err() {
        if let Some(status) = server.0.try_wait()? {
            return Err(format!("the server exited with {status}").into());
        }
        if begin.elapsed() > DEADLINE {
            return Err(format!("{address} accepts no connection within {DEADLINE:?}").into());
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

/// Returns a loopback address with a port that is free at the time of the call.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// A process that is killed when it is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
