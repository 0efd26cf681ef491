//! The table of all verbs of control in their faces, and what must hold for each. It is that of several servers, whose tests
//! include this file.

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Output;
use std::time::Duration;

use revstore::ClockMode;
use revstore::control::fault::{Action, Preset, Rule, Selector, Trigger};
use revstore::control::journal::Filter;
use revstore::control::open::WatchCommand;
use revstore::control::proto::control_client::ControlClient;
use revstore::control::proto::{self, wait_request::Condition as Waited};
use revstore::control::store::{DumpForm, RestoreOptions};
use revstore::control::{AlarmName, Condition, Control, ControlError};
use revstore::engine::{LeaseId, Revision};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// A server with a port of control.
pub(crate) trait Tested {
    fn control(&self) -> &Control;
    /// Returns the URL of the port of control.
    fn url(&self) -> &str;
    /// Returns what verbs change.
    fn state(&self) -> String;
}

/// Runs the command line with the URL of a port of control and a line of arguments.
pub(crate) type Run = fn(&str, &str) -> Output;

/// The files that the verbs read and write.
pub(crate) struct Files {
    dump: Vec<u8>,
    snapshot: Vec<u8>,
    dir: tempfile::TempDir,
}

impl Files {
    /// Writes a dump of a server, and this snapshot of an etcd.
    pub(crate) fn new(server: &impl Tested, snapshot: Vec<u8>) -> Self {
        let mut dump = Vec::new();
        let control = server.control();
        control.dump(DumpForm::Text, &mut dump).expect("a dump");
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("dump"), &dump).expect("a file");
        fs::write(dir.path().join("snapshot"), &snapshot).expect("a file");
        Self {
            dump,
            snapshot,
            dir,
        }
    }

    /// Returns a command line with the directory in the place of `DIR`.
    fn line(&self, line: &str) -> String {
        line.replace("DIR", &self.dir.path().display().to_string())
    }
}

/// Gives a server what the verbs are about: a rule and a checkpoint, besides the lease 5, which the caller has granted.
pub(crate) fn prepare(control: &Control) {
    control.add_fault(rule()).expect("a rule");
    control.checkpoint("a").expect("a checkpoint");
}

/// Returns a rule about no request of the tests.
fn rule() -> Rule {
    Rule {
        selector: Selector {
            user: Some("nobody".to_owned()),
            ..Selector::default()
        },
        trigger: Trigger::Next(1),
        action: Action::Preset(Preset::NoLeader),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

type Refused = Result<(), ControlError>;

/// One verb in its faces.
struct Verb {
    method: &'static str,
    /// Command lines.
    lines: &'static [&'static str],
    /// The body of the JSON form; a file if it is none.
    body: Option<Value>,
    rust: fn(&Control, &Files) -> Refused,
    grpc: fn(&str, &Files) -> Result<(), Status>,
}

macro_rules! verb {
    ($method:ident, $call:ident, $lines:expr, $body:tt, $request:expr, $rust:expr) => {
        Verb {
            method: stringify!($method),
            lines: &$lines,
            body: Some(json!($body)),
            rust: $rust,
            grpc: |url, _| block_on(async { client(url).await.$call($request).await.map(drop) }),
        }
    };
}

async fn client(url: &str) -> ControlClient<Channel> {
    let endpoint = Endpoint::new(url.to_owned()).expect("a URL");
    ControlClient::new(endpoint.connect().await.expect("a connection"))
}

/// Returns a request for all watches.
fn all() -> proto::WatchRequest {
    proto::WatchRequest::default()
}

fn chunks(file: &[u8]) -> impl tokio_stream::Stream<Item = proto::StoreFileChunk> + use<> {
    let chunks: Vec<_> = file.chunks(1_000).map(<[u8]>::to_vec).collect();
    tokio_stream::iter(
        chunks
            .into_iter()
            .map(|data| proto::StoreFileChunk { data: data.into() }),
    )
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn verbs() -> Vec<Verb> {
    use WatchCommand::{Bookmark, CancelCompacted, Cut, Hold, Release};
    use proto::fault_add_request::Action::Preset as RequestedPreset;
    vec![
        verb!(ClockSet, clock_set, ["clock manual", "clock system", "clock auto"], {"mode": "manual"},
            proto::ClockSetRequest { mode: "manual".into() },
            |it, _| { it.set_clock(ClockMode::Manual); Ok(()) }),
        verb!(ClockAdvance, clock_advance, ["clock advance 1s", "clock advance --to-next"], {"by": "1s"},
            proto::ClockAdvanceRequest { by: "1s".into(), to_next: false },
            |it, _| it.advance(Duration::from_secs(1)).map(drop)),
        verb!(
            ClockPending,
            clock_pending,
            ["clock pending"],
            {},
            proto::ClockPendingRequest::default(),
            |it, _| {
                it.pending();
                Ok(())
            }
        ),
        verb!(FaultAdd, fault_add, ["fault add --next 1 --preset timeout"], {"preset": "timeout"},
            proto::FaultAddRequest { action: Some(RequestedPreset("timeout".into())), ..Default::default() },
            |it, _| it.add_fault(rule()).map(drop)),
        verb!(
            FaultList,
            fault_list,
            ["fault list"],
            {},
            proto::FaultListRequest {},
            |it, _| {
                it.faults();
                Ok(())
            }
        ),
        verb!(FaultClear, fault_clear, ["fault clear 1"], {"id": 1}, proto::FaultClearRequest { id: Some(1) },
            |it, _| it.clear_faults(None).map(drop)),
        verb!(WatchHold, watch_hold, ["watch hold"], {}, all(), |it, _| it
            .watch(None, Hold)
            .map(drop)),
        verb!(
            WatchRelease,
            watch_release,
            ["watch release"],
            {},
            all(),
            |it, _| it.watch(None, Release).map(drop)
        ),
        verb!(WatchCut, watch_cut, ["watch cut"], {}, all(), |it, _| it
            .watch(None, Cut)
            .map(drop)),
        verb!(
            WatchCancelCompacted,
            watch_cancel_compacted,
            ["watch cancel-compacted"],
            {},
            all(),
            |it, _| it.watch(None, CancelCompacted).map(drop)
        ),
        verb!(
            WatchBookmark,
            watch_bookmark,
            ["watch bookmark"],
            {},
            all(),
            |it, _| it.watch(None, Bookmark).map(drop)
        ),
        verb!(
            JournalRead,
            journal_read,
            ["journal", "journal --requests"],
            {},
            proto::JournalReadRequest::default(),
            |it, _| {
                it.journal(&Filter::default(), 0);
                Ok(())
            }
        ),
        verb!(
            Watches,
            watches,
            ["watches"],
            {},
            proto::WatchesRequest {},
            |it, _| {
                it.watches();
                Ok(())
            }
        ),
        verb!(
            Connections,
            connections,
            ["connections"],
            {},
            proto::ConnectionsRequest {},
            |it, _| {
                it.connections();
                Ok(())
            }
        ),
        verb!(StoreCheckpoint, store_checkpoint, ["store checkpoint b"], {"name": "b"},
            proto::StoreCheckpointRequest { name: "b".into() },
            |it, _| it.checkpoint("b").map(drop)),
        verb!(StoreRestore, store_restore, ["store restore a"], {"name": "a"},
            proto::StoreRestoreRequest { name: "a".into(), ..Default::default() },
            |it, _| it.restore("a", RestoreOptions::default()).map(drop)),
        verb!(
            StoreReset,
            store_reset,
            ["store reset"],
            {},
            proto::StoreResetRequest::default(),
            |it, _| it.reset(false).map(drop)
        ),
        verb!(StoreJump, store_jump, ["store jump 100000"], {"revision": 100_000},
            proto::StoreJumpRequest { revision: 100_000 },
            |it, _| it.jump(Revision(100_000)).map(drop)),
        verb!(
            StoreFork,
            store_fork,
            ["store fork"],
            {},
            proto::StoreForkRequest {},
            |it, _| it.fork().map(drop)
        ),
        verb!(
            StoreForks,
            store_forks,
            ["store forks"],
            {},
            proto::StoreForksRequest {},
            |it, _| {
                it.forks();
                Ok(())
            }
        ),
        verb!(StoreDrop, store_drop, ["store drop a"], {"id": "a"},
            proto::StoreDropRequest { id: "a".into() },
            |it, _| it.drop_copy("a")),
        verb!(
            StoreDump,
            store_dump,
            ["store dump DIR/new", "store dump --binary -"],
            {},
            proto::StoreDumpRequest::default(),
            |it, _| it.dump(DumpForm::Binary, &mut Vec::new()).map(drop)
        ),
        Verb {
            method: "StoreLoad",
            lines: &["store load DIR/dump"],
            body: None,
            rust: |it, files| it.load(&files.dump).map(drop),
            grpc: |url, files| {
                let chunks = chunks(&files.dump);
                block_on(async { client(url).await.store_load(chunks).await.map(drop) })
            },
        },
        Verb {
            method: "StoreImport",
            lines: &["store import DIR/snapshot"],
            body: None,
            rust: |it, files| it.import(&files.snapshot).map(drop),
            grpc: |url, files| {
                let chunks = chunks(&files.snapshot);
                block_on(async { client(url).await.store_import(chunks).await.map(drop) })
            },
        },
        verb!(
            StoreCompact,
            store_compact,
            ["store compact"],
            {},
            proto::StoreCompactRequest::default(),
            |it, _| it.compact(None).map(drop)
        ),
        verb!(
            Leases,
            leases,
            ["leases"],
            {},
            proto::LeasesRequest::default(),
            |it, _| {
                it.leases(10);
                Ok(())
            }
        ),
        verb!(Expire, expire, ["expire 5"], {"id": "5"},
            proto::ExpireRequest { id: "5".into(), number: 0 },
            |it, _| it.expire(LeaseId::new(5).expect("an id")).map(drop)),
        verb!(Alarm, alarm, ["alarm raise corrupt"], {"action": "raise", "name": "corrupt"},
            proto::AlarmRequest { action: "raise".into(), name: "corrupt".into() },
            |it, _| it.alarm(AlarmName::Corrupt, true).map(drop)),
        verb!(
            TermNew,
            term_new,
            ["term new"],
            {},
            proto::TermNewRequest {},
            |it, _| it.new_term().map(drop)
        ),
        verb!(Wait, wait, ["wait --revision 2 --timeout 5s"], {"min_revision": 2},
            proto::WaitRequest { condition: Some(Waited::MinRevision(2)), timeout: String::new() },
            |it, _| block_on(it.wait(Condition::Revision(Revision(2)), None)).map(drop)),
    ]
}

/// Sends a request of the JSON form. Returns the status of HTTP and the rest of the response.
fn post(url: &str, method: &str, body: &[u8]) -> (u16, String) {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let head = format!(
        "POST /control/v1/{method} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("a reader");
    stream.write_all(body).expect("a reader");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.get(9..12).and_then(|status| status.parse().ok());
    (status.expect("a status"), response)
}

/// Checks that each verb has the same effect in all faces. The server refuses some of the methods.
pub(crate) fn check_effects<S: Tested>(
    prepared: impl Fn() -> S,
    files: &Files,
    run: Run,
    refused: &[&str],
) {
    for verb in verbs() {
        let method = verb.method;
        let is_refused = refused.contains(&method);
        let in_rust = prepared();
        let done = (verb.rust)(in_rust.control(), files);
        match done {
            Err(ControlError::Refused(_)) if is_refused => {}
            done => assert_eq!((done, is_refused), (Ok(()), false), "{method}"),
        }
        let expected = in_rust.state();

        let server = prepared();
        let done = (verb.grpc)(server.url(), files);
        let code = done.map_or_else(|status| status.code(), |()| Code::Ok);
        let expected_code = if is_refused {
            Code::FailedPrecondition
        } else {
            Code::Ok
        };
        assert_eq!(code, expected_code, "{method} over gRPC");
        assert_eq!(server.state(), expected, "{method} over gRPC");

        let server = prepared();
        let body = match (&verb.body, method) {
            (Some(body), _) => body.to_string().into_bytes(),
            (None, "StoreImport") => files.snapshot.clone(),
            (None, _) => files.dump.clone(),
        };
        let (status, response) = post(server.url(), method, &body);
        let expected_status = if is_refused { 400 } else { 200 };
        assert_eq!(status, expected_status, "{method}: {response}");
        assert_eq!(server.state(), expected, "{method} in JSON");

        for (number, line) in verb.lines.iter().enumerate() {
            for form in ["table", "json"] {
                let server = prepared();
                let line = files.line(&format!("-w {form} {line}"));
                let output = run(server.url(), &line);
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                if is_refused {
                    assert_eq!(output.status.code(), Some(1), "{line}: {error}");
                    assert_eq!(error.lines().count(), 1, "{line}: {error}");
                } else {
                    assert_eq!((output.status.code(), &*error), (Some(0), ""), "{line}");
                }
                if number == 0 {
                    assert_eq!(server.state(), expected, "{line}");
                }
                let is_dump = line.ends_with('-');
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                for object in text.lines().filter(|_| form == "json" && !is_dump) {
                    let object: Value = serde_json::from_str(object).expect("JSON");
                    assert!(object.is_object(), "{line}: {object}");
                }
            }
        }
    }
}

/// Checks that each verb refuses what it does not know, and changes nothing then.
pub(crate) fn check_refusals(server: &impl Tested, files: &Files, run: Run) {
    let url = server.url();
    let before = server.state();
    // A port that was closed could be that of another test by now.
    let closed = "unix:///nothing/control.sock";
    for verb in verbs() {
        let method = verb.method;
        let body = br#"{"nonsense": 1}"#;
        let (status, response) = post(url, method, body);
        assert_eq!(status, 400, "{method}: {response}");
        assert!(response.contains("\"code\":3"), "{method}: {response}");
        let (status, _) = post(url, &format!("{method}?a=b"), b"{}");
        assert_eq!(status, 400, "{method}");
        for line in verb.lines {
            let line = files.line(line);
            let output = run(url, &format!("{line} --nonsense"));
            assert_eq!(output.status.code(), Some(2), "{line}");
            let output = run(closed, &line);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{line}: {error}");
            assert_eq!(error.lines().count(), 1, "{line}: {error}");
        }
    }
    assert_eq!(server.state(), before, "nothing has changed");
}

/// Returns the lines of help with commands below some words: those without commands of their own.
fn leaves(run: Run, words: &str, found: &mut BTreeSet<String>) {
    let help = run("http://127.0.0.1:1", &format!("{words} --help"));
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let Some((_, commands)) = help.split_once("\nCommands:\n") else {
        found.insert(words.trim().to_owned());
        return;
    };
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        // Deeper lines are the rest of a description.
        let Some(line) = line
            .strip_prefix("  ")
            .filter(|line| !line.starts_with(' '))
        else {
            continue;
        };
        let name = line.split_whitespace().next().expect("a name");
        if name != "help" {
            leaves(run, &format!("{words} {name}"), found);
        }
    }
}

/// The verbs of the command line that do not use the port, which have tests of their own.
const WITHOUT_PORT: [&str; 1] = ["journal replay"];

/// Checks that the table has all methods of the port and all verbs of the command line that use it.
pub(crate) fn check_table(server: &impl Tested, run: Run) {
    let (_, response) = post(server.url(), "Nothing", b"");
    let (_, methods) = response
        .split_once("the methods are ")
        .expect("the methods");
    let methods: BTreeSet<_> = methods
        .split('"')
        .next()
        .expect("a text")
        .split(", ")
        .collect();
    let table: BTreeSet<_> = verbs().iter().map(|verb| verb.method).collect();
    assert_eq!(table, methods);

    let mut commands = BTreeSet::new();
    leaves(run, "", &mut commands);
    assert!(commands.len() >= methods.len(), "{commands:?}");
    let lines: Vec<_> = verbs().iter().flat_map(|verb| verb.lines).collect();
    for command in &commands {
        if WITHOUT_PORT.contains(&command.as_str()) {
            continue;
        }
        let is_tested = lines.iter().any(|line| {
            let rest = line.strip_prefix(&**command);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        assert!(is_tested, "no line of the table runs \"{command}\"");
    }
}
