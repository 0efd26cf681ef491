//! The arguments of `fault add`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::{ArgGroup, Args};
use serde_json::{Map, Value, json};

use super::values::{duration, failure, key, preset, range};
use crate::fault::RuleError;

/// The actions.
const ACTIONS: [&str; 14] = [
    "error",
    "error_after",
    "preset",
    "delay",
    "reset",
    "black_hole",
    "goaway",
    "refuse",
    "hold",
    "cut",
    "cancel_compacted",
    "lose_keep_alive",
    "http",
    "stale",
];

/// Returns the other actions. clap does not require what conflicts with another argument.
fn all_but(action: &'static str) -> impl Iterator<Item = &'static str> {
    ACTIONS.into_iter().filter(move |other| *other != action)
}

/// A rule: a selector, a trigger and an action.
#[derive(Debug, Args)]
pub(super) struct FaultAdd {
    #[command(flatten)]
    selector: Selector,
    #[command(flatten)]
    trigger: Trigger,
    #[command(flatten)]
    action: Action,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Selector", group = ArgGroup::new("keys"))]
struct Selector {
    /// These methods, such as Range or KV/Range, comma-separated; by default all.
    #[arg(long, value_name = "Range[,Txn...]", value_delimiter = ',')]
    method: Vec<String>,
    /// Requests for keys with this prefix. Of a prefix or range, \\ stands for a backslash, \: for a colon and \xNN for the
    /// byte with this hexadecimal number.
    #[arg(long, value_name = "P", group = "keys", value_parser = key)]
    prefix: Option<Bytes>,
    /// Requests for keys from A to B, which is not included.
    #[arg(long, value_name = "A:B", group = "keys", value_parser = range)]
    range: Option<(Bytes, Bytes)>,
    /// Requests of this user.
    #[arg(long, value_name = "U")]
    user: Option<String>,
    /// Requests of this client, by the header revstore-client or else User-Agent.
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Requests on this connection.
    #[arg(long, value_name = "ID")]
    connection: Option<u64>,
    /// Requests of a Kubernetes API with this verb.
    #[arg(long, value_name = "V")]
    verb: Option<String>,
    /// Requests of a Kubernetes API for this resource, such as deployments.apps.
    #[arg(long, value_name = "R")]
    resource: Option<String>,
    /// Requests of a Kubernetes API in this namespace.
    #[arg(long, value_name = "N")]
    namespace: Option<String>,
    /// Requests of a Kubernetes API for the object with this name.
    #[arg(long, value_name = "X")]
    name: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Trigger (default: until cleared)", group = ArgGroup::new("trigger"))]
struct Trigger {
    /// The next N requests.
    #[arg(long, value_name = "N", group = "trigger", value_parser = clap::value_parser!(u64).range(1..))]
    next: Option<u64>,
    /// Every N-th request.
    #[arg(long, value_name = "N", group = "trigger", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// Each request with this probability.
    #[arg(long, value_name = "0.1", group = "trigger", value_parser = probability)]
    probability: Option<f64>,
    /// The seed of the probability.
    #[arg(long, value_name = "7", requires = "probability")]
    seed: Option<u64>,
    /// While the revision of the store is this one or a later one.
    #[arg(long, value_name = "R", conflicts_with = "trigger")]
    from_revision: Option<i64>,
    /// While the revision of the store is this one or an earlier one.
    #[arg(long, value_name = "R", conflicts_with = "trigger")]
    to_revision: Option<i64>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Action", group = ArgGroup::new("action").required(true))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct Action {
    /// Fail before the request is executed.
    #[arg(long, value_name = "CODE:TEXT", group = "action", value_parser = failure)]
    error: Option<String>,
    /// Execute the request, and replace its answer by an error.
    #[arg(long, value_name = "CODE:TEXT", group = "action", value_parser = failure)]
    error_after: Option<String>,
    /// Fail with an error of etcd: no-leader, leader-changed, timeout, too-many-requests, nospace, corrupt or
    /// auth-revision.
    #[arg(long, value_name = "NAME", group = "action", value_parser = preset)]
    preset: Option<String>,
    /// Wait before the request is executed.
    #[arg(long, value_name = "2s", group = "action", value_parser = duration)]
    delay: Option<String>,
    /// Wait by the time of the system, not of the clock.
    #[arg(long, requires = "delay", conflicts_with_all = all_but("delay"))]
    wall: bool,
    /// Close the connection with a TCP reset.
    #[arg(long, group = "action")]
    reset: bool,
    /// Keep the connection open, and neither read nor write on it.
    #[arg(long, group = "action")]
    black_hole: bool,
    /// End the connection after its requests in flight.
    #[arg(long, group = "action")]
    goaway: bool,
    /// Close new connections.
    #[arg(long, group = "action")]
    refuse: bool,
    /// Hold the events of watches.
    #[arg(long, group = "action")]
    hold: bool,
    /// End the streams of watches with an error.
    #[arg(long, group = "action")]
    cut: bool,
    /// Cancel watches as compacted.
    #[arg(long, group = "action")]
    cancel_compacted: bool,
    /// Neither execute nor answer keep-alives.
    #[arg(long, group = "action")]
    lose_keep_alive: bool,
    /// Answer with this status, on a Kubernetes API.
    #[arg(long, value_name = "429", group = "action", value_parser = clap::value_parser!(u16).range(400..=599))]
    http: Option<u16>,
    /// The seconds of the header Retry-After.
    #[arg(long, value_name = "1", requires = "http", conflicts_with_all = all_but("http"), value_parser = clap::value_parser!(u32).range(1..))]
    retry_after: Option<u32>,
    /// Answer lists and gets from an earlier revision, on a Kubernetes API.
    #[arg(long, group = "action")]
    stale: bool,
    /// The revision for --stale; by default that at which the rule is added.
    #[arg(long, value_name = "N", requires = "stale", conflicts_with_all = all_but("stale"))]
    at_revision: Option<i64>,
}

/// Infinity and what is no number have no form in JSON.
fn probability(text: &str) -> Result<f64, String> {
    let probability: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    if probability > 0.0 && probability <= 1.0 {
        return Ok(probability);
    }
    Err(RuleError::InvalidProbability(probability).to_string())
}

impl FaultAdd {
    /// Returns the request.
    pub(super) fn body(self) -> Value {
        let Self {
            selector,
            trigger,
            action,
        } = self;
        let range = selector.range.map(|(start, end)| {
            json!({"key": STANDARD.encode(start), "range_end": STANDARD.encode(end)})
        });
        let delay = action
            .delay
            .map(|time| json!({"time": time, "wall": action.wall}));
        let http = action.http.map(|status| match action.retry_after {
            Some(seconds) => json!({"status": status, "retry_after": seconds}),
            None => json!({"status": status}),
        });
        let given = |flag: bool| flag.then_some(Value::Bool(true));
        let fields = [
            (
                "methods",
                (!selector.method.is_empty()).then(|| selector.method.into()),
            ),
            (
                "prefix",
                selector.prefix.map(|prefix| STANDARD.encode(prefix).into()),
            ),
            ("range", range),
            ("user", selector.user.map(Value::from)),
            ("client", selector.client.map(Value::from)),
            ("connection", selector.connection.map(Value::from)),
            ("verb", selector.verb.map(Value::from)),
            ("resource", selector.resource.map(Value::from)),
            ("namespace", selector.namespace.map(Value::from)),
            ("name", selector.name.map(Value::from)),
            ("next", trigger.next.map(Value::from)),
            ("every", trigger.every.map(Value::from)),
            ("probability", trigger.probability.map(Value::from)),
            ("seed", trigger.seed.map(Value::from)),
            ("from_revision", trigger.from_revision.map(Value::from)),
            ("to_revision", trigger.to_revision.map(Value::from)),
            ("error", action.error.map(Value::from)),
            ("error_after", action.error_after.map(Value::from)),
            ("preset", action.preset.map(Value::from)),
            ("delay", delay),
            ("reset", given(action.reset)),
            ("black_hole", given(action.black_hole)),
            ("goaway", given(action.goaway)),
            ("refuse", given(action.refuse)),
            ("hold", given(action.hold)),
            ("cut", given(action.cut)),
            ("cancel_compacted", given(action.cancel_compacted)),
            ("lose_keep_alive", given(action.lose_keep_alive)),
            ("http", http),
            ("stale", given(action.stale)),
            ("stale_revision", action.at_revision.map(Value::from)),
        ];
        let fields = fields.into_iter();
        let fields = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(fields.collect::<Map<_, _>>())
    }
}
