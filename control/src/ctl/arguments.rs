//! The verbs: their arguments, and the request that each sends.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::fault::FaultAdd;
use super::journal::Journal;
use super::output::Output;
use super::store::Store;
use super::table::Columns;
use super::values::{duration, lease, live_key};

/// Control a running revstore: its time, its faults, its store and its history.
#[derive(Debug, Parser)]
#[command(
    name = "revstore ctl",
    bin_name = "revstore ctl",
    after_help = "The server listens for control with --control-listen-url URL. Durations are written as in Go: \
                  90s, 1m30s, 500ms.\nExit status: 0, 1 if the request was refused, 2 for wrong usage."
)]
pub(super) struct Arguments {
    /// The URL of the port of control [variable: `REVSTORE_CONTROL`].
    #[arg(long, global = true)]
    pub(super) url: Option<String>,
    /// A file with the token that the server requires.
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// The form of the output; json is one object on each line.
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    pub(super) write_out: Format,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Columns for people.
    Table,
    /// One JSON object on each line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Change the mode of the clock, advance it, or list what is due.
    #[command(subcommand)]
    Clock(Clock),
    /// Add, list and clear rules of faults.
    #[command(subcommand)]
    Fault(Fault),
    /// Hold, release, cut, cancel or bookmark watches.
    #[command(subcommand)]
    Watch(Watch),
    /// Show the last requests and what happened to streams, or replay them.
    Journal(Journal),
    /// List the open watches.
    Watches,
    /// List the open connections.
    Connections,
    /// Keep, replace, copy or compact the store.
    #[command(subcommand)]
    Store(Store),
    /// List the leases, those that expire first in front.
    Leases,
    /// End a lease now, as if its time had passed.
    Expire {
        /// The id, in hexadecimal as etcdctl writes it.
        #[arg(value_parser = lease)]
        lease: String,
    },
    /// Raise or clear an alarm.
    Alarm {
        /// What to do.
        #[arg(value_parser = ["raise", "clear"])]
        action: String,
        /// The alarm.
        #[arg(value_parser = ["nospace", "corrupt"], ignore_case = true)]
        name: String,
    },
    /// Begin a new Raft term.
    #[command(subcommand)]
    Term(Term),
    /// Wait until the store has a revision or a key, or until watches are open.
    Wait(Wait),
}

#[derive(Debug, Subcommand)]
pub(super) enum Clock {
    /// Let time pass only by advance.
    Manual,
    /// Let time pass as that of the system.
    System,
    /// Let time jump to the next due time whenever nothing happens.
    Auto,
    /// Move the time forward, and do the work that becomes due.
    #[command(group = ArgGroup::new("to").required(true))]
    Advance {
        /// The duration, such as 90s.
        #[arg(group = "to", value_parser = duration)]
        by: Option<String>,
        /// Advance to the next due time.
        #[arg(long, group = "to")]
        to_next: bool,
    },
    /// List the work that is due later.
    Pending,
}

#[derive(Debug, Subcommand)]
pub(super) enum Fault {
    /// Add a rule: a selector, a trigger and an action.
    Add(Box<FaultAdd>),
    /// List the rules, with how often each has fired.
    List,
    /// Remove a rule, or all, and release what they hold.
    Clear {
        /// The rule.
        id: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Watch {
    /// Hold the events.
    Hold {
        /// The watch, by default all.
        id: Option<u64>,
    },
    /// Send held events.
    Release {
        /// The watch, by default all.
        id: Option<u64>,
    },
    /// End the stream with an error.
    Cut {
        /// The watch, by default all.
        id: Option<u64>,
    },
    /// Cancel the watch as compacted.
    CancelCompacted {
        /// The watch, by default all.
        id: Option<u64>,
    },
    /// Send a progress notification now.
    Bookmark {
        /// The watch, by default all.
        id: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Term {
    /// Begin the next Raft term, as if the leader had changed. Leases get their whole time to live again.
    New,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("condition").required(true))]
pub(super) struct Wait {
    /// Wait for this revision or a later one.
    #[arg(long, value_name = "N", group = "condition", value_parser = clap::value_parser!(i64).range(0..))]
    revision: Option<i64>,
    /// Wait until this key is live.
    #[arg(long, value_name = "K", group = "condition", value_parser = live_key)]
    key: Option<Bytes>,
    /// Wait until this number of watches is open.
    #[arg(long, value_name = "N", group = "condition")]
    watchers: Option<u64>,
    /// Fail after this time.
    #[arg(long, value_name = "5s", value_parser = duration)]
    timeout: Option<String>,
}

/// A request, and the form of its response.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: &'static str,
    pub(super) body: Body,
    pub(super) output: Output,
}

/// The body of a request.
#[derive(Debug)]
pub(super) enum Body {
    Json(Value),
    /// The bytes of a file.
    File(PathBuf),
}

/// The columns of watches, of which `-w json` has more.
const WATCHES: Columns = Columns {
    etcd: &[
        "id",
        "client",
        "key",
        "range_end",
        "start",
        "position",
        "lag",
        "state",
        "connection",
        "user",
    ],
    front: &[
        "id",
        "client",
        "resource",
        "namespace",
        "name",
        "start",
        "position",
        "lag",
        "state",
        "connection",
        "user",
    ],
};

/// The fields of the response of the clock.
const CLOCK: Output = Output::Fields(&["mode", "now"]);

impl Verb {
    /// Returns the request of the verb.
    pub(super) fn call(self) -> Call {
        let (method, body, output) = match self {
            Self::Store(store) => return store.call(),
            Self::Clock(clock) => clock.call(),
            Self::Fault(fault) => fault.call(),
            Self::Watch(watch) => watch.call(),
            Self::Journal(journal) => journal.read.call(),
            Self::Watches => ("Watches", json!({}), Output::Rows("watches", WATCHES)),
            Self::Connections => (
                "Connections",
                json!({}),
                Output::rows(
                    "connections",
                    &["id", "address", "client", "since", "requests"],
                ),
            ),
            Self::Leases => (
                "Leases",
                json!({}),
                Output::rows("leases", &["id", "ttl", "remaining", "keys"]),
            ),
            Self::Expire { lease } => (
                "Expire",
                json!({"id": lease}),
                Output::Fields(&["id", "revision"]),
            ),
            Self::Alarm { action, name } => (
                "Alarm",
                json!({"action": action, "name": name}),
                Output::Fields(&["raised"]),
            ),
            Self::Term(Term::New) => ("TermNew", json!({}), Output::Fields(&["term", "revision"])),
            Self::Wait(wait) => {
                let mut body = json!({"timeout": wait.timeout.unwrap_or_default()});
                if let Some(revision) = wait.revision {
                    body["min_revision"] = revision.into();
                }
                if let Some(key) = wait.key {
                    body["key"] = STANDARD.encode(key).into();
                }
                if let Some(watchers) = wait.watchers {
                    body["watchers"] = watchers.into();
                }
                ("Wait", body, Output::Fields(&["revision", "time"]))
            }
        };
        Call::of(method, body, output)
    }
}

impl Call {
    pub(super) fn of(method: &'static str, body: Value, output: Output) -> Self {
        Self {
            method,
            body: Body::Json(body),
            output,
        }
    }
}

impl Fault {
    fn call(self) -> (&'static str, Value, Output) {
        match self {
            Self::Add(rule) => ("FaultAdd", rule.body(), Output::Fields(&["id"])),
            Self::List => (
                "FaultList",
                json!({}),
                Output::rows("faults", &["id", "fired", "rule"]),
            ),
            Self::Clear { id } => (
                "FaultClear",
                json!({"id": id}),
                Output::Fields(&["cleared"]),
            ),
        }
    }
}

impl Watch {
    fn call(self) -> (&'static str, Value, Output) {
        let (method, id) = match self {
            Self::Hold { id } => ("WatchHold", id),
            Self::Release { id } => ("WatchRelease", id),
            Self::Cut { id } => ("WatchCut", id),
            Self::CancelCompacted { id } => ("WatchCancelCompacted", id),
            Self::Bookmark { id } => ("WatchBookmark", id),
        };
        (method, json!({"id": id}), Output::Fields(&["watches"]))
    }
}

impl Clock {
    fn call(self) -> (&'static str, Value, Output) {
        let set = |mode: &str| ("ClockSet", json!({"mode": mode}), CLOCK);
        match self {
            Self::Manual => set("manual"),
            Self::System => set("system"),
            Self::Auto => set("auto"),
            Self::Advance { by, to_next } => {
                let body = json!({"by": by.unwrap_or_default(), "to_next": to_next});
                ("ClockAdvance", body, CLOCK)
            }
            Self::Pending => (
                "ClockPending",
                json!({}),
                Output::rows("pending", &["kind", "id", "due"]),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_declarations_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// Returns the request of a command line, as a text.
    fn call(line: &str) -> Option<String> {
        let arguments = ["revstore ctl"].into_iter().chain(line.split(' '));
        let arguments = Arguments::try_parse_from(arguments).ok()?;
        let call = arguments.verb.call();
        Some(match call.body {
            Body::Json(body) => format!("{} {body}", call.method),
            Body::File(path) => format!("{} < {}", call.method, path.display()),
        })
    }

    #[test]
    fn verbs_send_their_requests() {
        let cases = [
            ("clock manual", r#"ClockSet {"mode":"manual"}"#),
            (
                "clock advance 90s",
                r#"ClockAdvance {"by":"90s","to_next":false}"#,
            ),
            (
                "clock advance --to-next",
                r#"ClockAdvance {"by":"","to_next":true}"#,
            ),
            ("-w json clock pending", "ClockPending {}"),
            ("clock pending -w json --url http://a:1", "ClockPending {}"),
            ("store compact", r#"StoreCompact {"revision":0}"#),
            ("store compact 7", r#"StoreCompact {"revision":7}"#),
            (
                "fault add --method Range,Put --prefix a --next 1 --error UNAVAILABLE:x",
                r#"FaultAdd {"error":"UNAVAILABLE:x","methods":["Range","Put"],"next":1,"prefix":"YQ=="}"#,
            ),
            (
                "fault add --range a:b --delay 2s --wall --probability 0.5 --seed 7",
                r#"FaultAdd {"delay":{"time":"2s","wall":true},"probability":0.5,"range":{"key":"YQ==","range_end":"Yg=="},"seed":7}"#,
            ),
            (
                r"fault add --range a\:b:c\xff --reset",
                r#"FaultAdd {"range":{"key":"YTpi","range_end":"Y/8="},"reset":true}"#,
            ),
            (
                "fault add --http 429 --retry-after 1 --verb list --resource deployments.apps",
                r#"FaultAdd {"http":{"retry_after":1,"status":429},"resource":"deployments.apps","verb":"list"}"#,
            ),
            (
                "fault add --from-revision 3 --hold",
                r#"FaultAdd {"from_revision":3,"hold":true}"#,
            ),
            ("fault list", "FaultList {}"),
            ("fault clear", r#"FaultClear {"id":null}"#),
            ("fault clear 3", r#"FaultClear {"id":3}"#),
            (
                "watch cancel-compacted",
                r#"WatchCancelCompacted {"id":null}"#,
            ),
            ("watch hold 4", r#"WatchHold {"id":4}"#),
            (
                "journal --follow --method Put",
                r#"JournalRead {"client":null,"connection":null,"follow":true,"methods":["Put"],"requests":false,"user":null}"#,
            ),
            (
                "journal --requests",
                r#"JournalRead {"client":null,"connection":null,"follow":false,"methods":[],"requests":true,"user":null}"#,
            ),
            ("watches", "Watches {}"),
            ("connections", "Connections {}"),
            ("wait --watchers 2", r#"Wait {"timeout":"","watchers":2}"#),
            ("store checkpoint a", r#"StoreCheckpoint {"name":"a"}"#),
            (
                "store restore a --bump-revision 7 --mark-compacted",
                r#"StoreRestore {"bump_revision":7,"mark_compacted":true,"name":"a"}"#,
            ),
            (
                "store reset --keep-revision",
                r#"StoreReset {"keep_revision":true}"#,
            ),
            ("store jump 100", r#"StoreJump {"revision":100}"#),
            ("store fork", "StoreFork {}"),
            ("store forks", "StoreForks {}"),
            ("store drop fork-1", r#"StoreDrop {"id":"fork-1"}"#),
            ("store dump a.dump", r#"StoreDump {"binary":false}"#),
            ("store dump --binary -", r#"StoreDump {"binary":true}"#),
            ("store load a.dump", "StoreLoad < a.dump"),
            ("store import -", "StoreImport < -"),
            ("expire 1f", r#"Expire {"id":"1f"}"#),
            (
                "alarm raise nospace",
                r#"Alarm {"action":"raise","name":"nospace"}"#,
            ),
            ("term new", "TermNew {}"),
            (
                "wait --revision 7",
                r#"Wait {"min_revision":7,"timeout":""}"#,
            ),
            (
                "wait --key k --timeout 5s",
                r#"Wait {"key":"aw==","timeout":"5s"}"#,
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(call(line).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn errors_name_all_that_can_be_given() {
        let check = |line: &str, names: &[&str]| {
            let arguments = ["revstore ctl"].into_iter().chain(line.split(' '));
            let error = Arguments::try_parse_from(arguments)
                .unwrap_err()
                .to_string();
            for name in names {
                assert!(error.contains(name), "{line}: {error}");
            }
        };
        check("clock advance", &["BY", "--to-next"]);
        check("wait", &["--revision <N>", "--key <K>", "--watchers <N>"]);
    }

    #[test]
    fn arguments_without_sense_are_refused() {
        for line in [
            "clock",
            "clock fast",
            "clock advance",
            "clock advance 1s --to-next",
            "clock advance foo",
            "clock advance -- -1s",
            "store compact x",
            "store compact 0",
            "store dump",
            "store load",
            "store import a b",
            "expire",
            "expire zzz",
            "expire 0",
            "alarm ring nospace",
            "alarm raise fire",
            "term",
            "wait",
            "wait --revision 1 --key k",
            "wait --timeout 1s",
            "wait --key k --watchers 1",
            "wait --key k --timeout foo",
            "wait --key=",
            "fault add",
            "fault add --method Put",
            "fault add --error UNAVAILABLE:x --reset",
            "fault add --next 1 --every 2 --reset",
            "fault add --next 0 --reset",
            "fault add --every 0 --reset",
            "fault add --delay foo",
            "fault add --delay=-1s",
            "fault add --error nocolon",
            "fault add --error-after OK:x",
            "fault add --preset bla",
            "fault add --http 399",
            "fault add --http 503 --retry-after 0",
            "fault add --http 600",
            "fault add --prefix a --range a:b --reset",
            "fault add --range a --reset",
            r"fault add --range a\:b --reset",
            r"fault add --prefix a\b --reset",
            "fault add --seed 7 --reset",
            "fault add --probability nan --reset",
            "fault add --probability inf --reset",
            "fault add --probability -0.5 --reset",
            "fault add --probability=0 --reset",
            "fault add --probability=1.5 --reset",
            "fault add --wall --reset",
            "fault add --retry-after 1 --reset",
            "watch hold x",
            "journal x",
            "journal replay",
            "journal replay f",
            "journal replay --to http://a:1",
            "journal replay f --to http://a:1 --after x",
            "journal replay f --to http://a:1 --stop-at 0",
            "journal replay f --to http://a:1 --answer-time soon",
            "journal --follow replay f --to http://a:1",
            "-w yaml clock pending",
            "nothing",
        ] {
            assert_eq!(call(line), None, "{line}");
        }
    }
}
