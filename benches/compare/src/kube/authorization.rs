//! What roles and bindings cost a request: the CPU time of the server, beside that of a server that allows everything, or,
//! for requests that are refused, one that allows nothing.
//!
//! Each case has a server of its own with its roles and bindings. All run at the same time, and get the same number of
//! requests of the same user in turn.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use http::StatusCode;
use tempfile::NamedTempFile;

use crate::BoxError;
use crate::kube::client::{Call, Connection, Target, Version};
use crate::kube::objects::namespace;
use crate::kube::server::ApiServer;
use crate::summary::median;

/// The user of the requests, with the group of the file of tokens.
const USER: &str = "ann";
const TOKEN: &str = "token-of-ann";
/// The namespace of the requests.
const NAMESPACE: &str = "default";
/// The number of requests in flight.
const IN_FLIGHT: usize = 8;
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[derive(Debug, clap::Args)]
pub(crate) struct KubeAuthorizationCommand {
    /// The binary of the API server [default: `revstore-apiserver` in the directory of this program].
    #[arg(long)]
    apiserver: Option<PathBuf>,
    /// The number of bindings.
    #[arg(long, default_value_t = 5_000)]
    bindings: u64,
    /// The number of requests to each server in a round.
    #[arg(long, default_value_t = 2_000)]
    operations: u64,
    /// The number of rounds; the table shows medians.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
}

/// Whose bindings there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bindings {
    /// None: a server that allows everything, or nothing, with the same objects.
    Mode(&'static str),
    /// One, to the user.
    One,
    /// Half of them in the namespace, and half without one.
    OfOthers,
    /// Of the user in the namespace, each with a role about one object.
    OfUser,
    /// Likewise, each with a role that allows another verb on all objects; the last one allows this.
    OfUserSameObjects,
    /// Of the user, in a namespace each, with one role.
    InManyNamespaces,
    /// Without a namespace, of the group of all users, each with a role about one object.
    OfEveryone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// What the first role allows.
    First,
    /// What the last role allows.
    Last,
    /// What no role allows.
    Nothing,
    /// Like [`Last`](Self::Last), after a write of a binding of the user each.
    AfterWrite,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    title: &'static str,
    bindings: Bindings,
    asked: Asked,
}

const CASES: &[Case] = &[
    case("one binding, allowed", Bindings::One, Asked::First),
    case("one binding, denied", Bindings::One, Asked::Nothing),
    case(
        "of other users, allowed by one more",
        Bindings::OfOthers,
        Asked::First,
    ),
    case("of other users, denied", Bindings::OfOthers, Asked::Nothing),
    case(
        "of the user, allowed by the first",
        Bindings::OfUser,
        Asked::First,
    ),
    case(
        "of the user, allowed by the last",
        Bindings::OfUser,
        Asked::Last,
    ),
    case("of the user, denied", Bindings::OfUser, Asked::Nothing),
    case(
        "of the user, about the same objects, allowed by the last",
        Bindings::OfUserSameObjects,
        Asked::Last,
    ),
    case(
        "of the user, about the same objects, denied",
        Bindings::OfUserSameObjects,
        Asked::Nothing,
    ),
    case(
        "of the user in as many namespaces, allowed",
        Bindings::InManyNamespaces,
        Asked::First,
    ),
    case(
        "of the user in as many namespaces, denied",
        Bindings::InManyNamespaces,
        Asked::Nothing,
    ),
    case(
        "of all users, allowed by the first",
        Bindings::OfEveryone,
        Asked::First,
    ),
    case(
        "of all users, allowed by the last",
        Bindings::OfEveryone,
        Asked::Last,
    ),
    case("of all users, denied", Bindings::OfEveryone, Asked::Nothing),
    case(
        "of the user, with a write of one before each request",
        Bindings::OfUser,
        Asked::AfterWrite,
    ),
];

const fn case(title: &'static str, bindings: Bindings, asked: Asked) -> Case {
    Case {
        title,
        bindings,
        asked,
    }
}

/// A running case.
#[derive(Debug)]
struct Running {
    case: Case,
    server: ApiServer,
    user: Connection,
    administrator: Connection,
    /// The microseconds of CPU time for a request, of each round.
    values: Vec<f64>,
}

impl KubeAuthorizationCommand {
    /// Measures all cases, and returns a table as Markdown.
    pub(crate) async fn run(self) -> Result<String, BoxError> {
        let mut tokens = NamedTempFile::new()?;
        writeln!(tokens, "{TOKEN},{USER},1")?;
        tokens.flush()?;
        let tokens = tokens.path().display().to_string();
        let baselines = [
            case("allowed", Bindings::Mode("AlwaysAllow"), Asked::First),
            case("denied", Bindings::Mode("AlwaysDeny"), Asked::Nothing),
            case("written", Bindings::Mode("AlwaysAllow"), Asked::AfterWrite),
        ];
        let mut all = Vec::new();
        for case in baselines.iter().chain(CASES) {
            eprintln!("{}", case.title);
            all.push(self.start(*case, &tokens).await?);
        }
        for round in 1..=self.rounds {
            eprintln!("round {round} of {}", self.rounds);
            for running in &mut all {
                running.measure(self.operations, self.bindings).await?;
            }
            // The order of the servers changes in every round; the first three stay where they are found again.
            all[baselines.len()..].rotate_left(1);
        }
        Ok(table(&all, baselines.len(), self.bindings))
    }

    async fn start(&self, case: Case, tokens: &str) -> Result<Running, BoxError> {
        let default = std::env::current_exe()?.with_file_name("revstore-apiserver");
        let binary = self.apiserver.as_ref().unwrap_or(&default);
        let mode = match case.bindings {
            Bindings::Mode(mode) => mode,
            _ => "RBAC",
        };
        let flags = [
            format!("--authorization-mode={mode}"),
            format!("--token-auth-file={tokens}"),
        ];
        let server = ApiServer::start_binary("revstore", binary, &flags).await?;
        let mut administrator = server.connect(Version::Http2).await?;
        for name in ["first", "last"] {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#
            );
            let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            administrator.call(Call::create(path, body)).await?;
        }
        // The bindings that are written between the requests have the same objects behind them in both modes.
        let bindings = match case.asked {
            Asked::AfterWrite => Bindings::OfUser,
            _ => case.bindings,
        };
        for call in objects(bindings, self.bindings) {
            administrator.call(call).await?;
        }
        let target = Target {
            token: TOKEN.to_owned(),
            ..server.target.clone()
        };
        Ok(Running {
            case,
            user: Connection::open(&target, Version::Http2).await?,
            server,
            administrator,
            values: Vec::new(),
        })
    }
}

impl Running {
    async fn measure(&mut self, operations: u64, count: u64) -> Result<(), BoxError> {
        let asked = self.case.asked;
        let before = self.server.cpu_time()?;
        if asked == Asked::AfterWrite {
            for number in 0..operations {
                let call = rewrite(count / 2, number);
                self.administrator.call(call).await?;
                self.user.call(get(asked)).await?;
            }
        } else {
            self.user
                .run(IN_FLIGHT, operations, move |_| get(asked))
                .await?;
        }
        let spent = self.server.cpu_time()?.saturating_sub(before);
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let value = spent.as_secs_f64() * 1e6 / operations as f64;
        self.values.push(value);
        Ok(())
    }

    fn median(&self) -> f64 {
        median(&self.values).unwrap_or_default()
    }
}

/// Returns the request that is measured.
fn get(asked: Asked) -> Call {
    let (name, refused) = match asked {
        Asked::First => ("first", false),
        Asked::Last | Asked::AfterWrite => ("last", false),
        Asked::Nothing => ("none", true),
    };
    let call = Call::get(format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"));
    if refused {
        call.expecting(StatusCode::FORBIDDEN)
    } else {
        call
    }
}

fn table(all: &[Running], baselines: usize, count: u64) -> String {
    let mut text = String::from(
        "| bindings | CPU time of a request | without bindings | more |\n|---|---|---|---|\n",
    );
    for case in CASES {
        let measured = all.iter().find(|running| running.case.title == case.title);
        let of = match case.asked {
            Asked::First | Asked::Last => 0,
            Asked::Nothing => 1,
            Asked::AfterWrite => 2,
        };
        let without = all[..baselines][of].median();
        let Some(value) = measured.map(Running::median) else {
            continue;
        };
        let number = match case.bindings {
            Bindings::One => String::new(),
            _ => format!("{count} "),
        };
        // Writing to a `String` does not fail.
        let _ = writeln!(
            text,
            "| {number}{} | {value:.1} µs | {without:.1} µs | {:+.1} µs |",
            case.title,
            value - without
        );
    }
    text
}

/// Returns what creates the roles and bindings of a case, in an order in which it can be created.
fn objects(bindings: Bindings, count: u64) -> Vec<Call> {
    let mut calls = Vec::new();
    let half = count / 2;
    let user =
        format!(r#"{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"{USER}"}}"#);
    let other = |number: u64| user.replace(USER, &format!("other-{number}"));
    let everyone =
        r#"{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}"#;
    let namespaced = Some(NAMESPACE);
    match bindings {
        Bindings::Mode(_) => {}
        Bindings::One => {
            calls.push(role(namespaced, "one", &rule("get", Some("first"))));
            calls.push(binding(namespaced, "one", ("Role", "one"), &user));
        }
        Bindings::OfOthers => {
            for number in 0..count {
                let place = namespaced.filter(|_| number < half);
                let kind = if number < half { "Role" } else { "ClusterRole" };
                let name = format!("r-{number:05}");
                calls.push(role(place, &name, &rule("get", Some(&name))));
                calls.push(binding(place, &name, (kind, &name), &other(number)));
            }
            calls.extend(objects(Bindings::One, 1));
        }
        Bindings::OfUser | Bindings::OfEveryone => {
            for number in 0..count {
                let name = format!("r-{number:05}");
                let object = match number {
                    0 => "first",
                    number if number == count - 1 => "last",
                    _ => &name,
                };
                let (place, kind, subject) = match bindings {
                    Bindings::OfUser => (namespaced, "Role", &*user),
                    _ => (None, "ClusterRole", everyone),
                };
                calls.push(role(place, &name, &rule("get", Some(object))));
                calls.push(binding(place, &name, (kind, &name), subject));
            }
        }
        Bindings::OfUserSameObjects => {
            for number in 0..count {
                let name = format!("r-{number:05}");
                let rule = if number == count - 1 {
                    rule("get", Some("last"))
                } else {
                    rule("list", None)
                };
                calls.push(role(namespaced, &name, &rule));
                calls.push(binding(namespaced, &name, ("Role", &name), &user));
            }
        }
        Bindings::InManyNamespaces => {
            calls.push(role(None, "reader", &rule("get", Some("first"))));
            calls.push(binding(
                namespaced,
                "reader",
                ("ClusterRole", "reader"),
                &user,
            ));
            for number in 1..count {
                let name = format!("n-{number:05}");
                calls.push(Call::create("/api/v1/namespaces", namespace(&name)));
                calls.push(binding(
                    Some(&name),
                    "reader",
                    ("ClusterRole", "reader"),
                    &user,
                ));
            }
        }
    }
    calls
}

/// Returns a write of a binding of [`Bindings::OfUser`] that leaves its subjects and its role as they are.
fn rewrite(binding: u64, change: u64) -> Call {
    let path = format!("{RBAC}/namespaces/{NAMESPACE}/rolebindings/r-{binding:05}");
    let body = format!(r#"{{"metadata":{{"labels":{{"change":"{change}"}}}}}}"#);
    Call::merge_patch(path, body)
}

fn rule(verb: &str, name: Option<&str>) -> String {
    let names = name.map(|name| format!(r#","resourceNames":["{name}"]"#));
    let names = names.unwrap_or_default();
    format!(r#"{{"verbs":["{verb}"],"apiGroups":[""],"resources":["configmaps"]{names}}}"#)
}

/// Returns the create of a role in a namespace, or of one without it.
fn role(namespace: Option<&str>, name: &str, rule: &str) -> Call {
    let body = format!(r#""metadata":{{"name":"{name}"}},"rules":[{rule}]"#);
    create(namespace, ("Role", "roles"), &body)
}

/// Returns the create of a binding in a namespace, or of one without it.
fn binding(namespace: Option<&str>, name: &str, (kind, role): (&str, &str), subject: &str) -> Call {
    let body = format!(
        r#""metadata":{{"name":"{name}"}},"subjects":[{subject}],"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"{kind}","name":"{role}"}}"#
    );
    create(namespace, ("RoleBinding", "rolebindings"), &body)
}

fn create(namespace: Option<&str>, (kind, plural): (&str, &str), body: &str) -> Call {
    let (path, prefix) = match namespace {
        Some(namespace) => (format!("{RBAC}/namespaces/{namespace}/{plural}"), ""),
        None => (format!("{RBAC}/cluster{plural}"), "Cluster"),
    };
    let body = format!(
        r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"{prefix}{kind}",{body}}}"#
    );
    Call::create(path, body)
}
