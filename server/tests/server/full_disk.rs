//! A test of `--persist` on a file system that is really full.
//!
//! The file system is one in memory, mounted in a user namespace, so that the test needs no rights. Where the system does
//! not permit this, the test prints `NOT RUN` and passes.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use revstore_proto::etcdserverpb::{PutRequest, kv_client::KvClient};
use tempfile::TempDir;
use tonic::{Code, Status, transport::Channel};

use crate::{
    persist::{arguments, range},
    support::{ServerProcess, block_on, connect, display, get},
};

/// The size of the file system, and that of a file whose removal frees space. The store has the rest, and is written again
/// as a whole when there is space.
const DISK_BYTES: usize = 8 << 20;
const BALLAST_BYTES: usize = 5 << 20;
const VALUE_BYTES: usize = 100 << 10;

/// A small file system, mounted where only processes see it that [`enter`](Self::enter) starts.
#[derive(Debug)]
struct SmallDisk {
    /// A process that keeps the namespace until its standard input ends.
    keeper: Child,
    dir: TempDir,
}

impl SmallDisk {
    /// Mounts a file system, if the system permits it; otherwise the reason.
    fn mount() -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let mount = format!(
            "mount -t tmpfs -o size={DISK_BYTES} tmpfs {} && echo mounted && exec cat",
            display(dir.path())
        );
        let mut keeper = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let mut output = BufReader::new(keeper.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line == "mounted\n" {
            return Ok(Self { keeper, dir });
        }
        let mut error = String::new();
        let mut stderr = keeper.stderr.take().unwrap();
        stderr.read_to_string(&mut error).unwrap();
        keeper.wait().unwrap();
        Err(error)
    }

    /// Returns the path of a file for processes outside.
    fn outside(&self, name: &str) -> PathBuf {
        let dir = display(self.dir.path());
        Path::new(&format!("/proc/{}/root{dir}", self.keeper.id())).join(name)
    }

    /// Starts a server with its data on the file system.
    fn start(&self) -> ServerProcess {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.keeper.id().to_string()])
            .args(["--user", "--mount", "--preserve-credentials"])
            .arg(env!("CARGO_BIN_EXE_revstore"))
            .args(arguments(&self.dir.path().join("data"), &[]));
        ServerProcess::spawn(&mut command)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

async fn put(channel: &Channel, key: usize) -> Result<(), Status> {
    let put = PutRequest {
        key: format!("{key:04}").into(),
        value: vec![b'v'; VALUE_BYTES].into(),
        ..PutRequest::default()
    };
    KvClient::new(channel.clone()).put(put).await.map(drop)
}

/// Returns the number of the keys, which are consecutive.
async fn keys(channel: &Channel) -> usize {
    range(channel, "\0", 0).await.unwrap().len()
}

#[test]
fn fl_17_on_a_full_disk_writes_fail_until_there_is_space() {
    let disk = match SmallDisk::mount() {
        Ok(disk) => disk,
        Err(reason) => {
            eprintln!("NOT RUN: cannot mount a small file system: {reason}");
            return;
        }
    };
    let ballast = disk.outside("ballast");
    let mut file = File::create(&ballast).unwrap();
    file.write_all(&vec![0; BALLAST_BYTES]).unwrap();
    drop(file);
    let mut process = disk.start();
    let address = process.address_of("client");
    let acknowledged = block_on(async {
        let channel = connect(address).await;
        let mut acknowledged = 0;
        let full = loop {
            match put(&channel, acknowledged).await {
                Ok(()) => acknowledged += 1,
                Err(full) => break full,
            }
        };
        assert!(acknowledged > 0);
        assert_eq!(full.code(), Code::ResourceExhausted, "{full}");
        assert!(full.message().contains("cannot persist"), "{full}");
        let refused = put(&channel, 0).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        // The first put that failed is executed.
        assert_eq!(keys(&channel).await, acknowledged + 1);
        let readyz = get(address, "/readyz?verbose");
        assert_eq!(readyz.status, 503);
        assert!(
            readyz.body.contains("[-]persist failed: cannot persist:"),
            "{}",
            readyz.body
        );
        acknowledged
    });
    process.wait_for_line("writes fail until the data directory can be written again");
    fs::remove_file(&ballast).unwrap();
    process.wait_for_line("\"msg\":\"the data directory can be written again");
    block_on(async {
        let channel = connect(address).await;
        put(&channel, acknowledged + 1).await.unwrap();
        assert_eq!(get(address, "/readyz").status, 200);
    });
    process.signal("KILL");
    process.wait();
    let mut process = disk.start();
    let address = process.address_of("client");
    block_on(async {
        let channel = connect(address).await;
        assert_eq!(keys(&channel).await, acknowledged + 2);
    });
}
