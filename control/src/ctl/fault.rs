//! The arguments of `fault add`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{ArgGroup, Args};
use serde_json::{Map, Value, json};

/// The other actions. clap does not require what conflicts with another argument.
const BUT_DELAY: [&str; 13] = [
    "error",
    "error_after",
    "preset",
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
const BUT_HTTP: [&str; 13] = [
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
    "stale",
];

/// A rule: a selector, a trigger and an action.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("action").required(true),
    group = ArgGroup::new("trigger"),
    group = ArgGroup::new("keys"),
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(super) struct FaultAdd {
    /// These methods, such as Range or KV/Range, comma-separated; by default all.
    #[arg(
        long,
        value_name = "Range[,Txn...]",
        value_delimiter = ',',
        help_heading = "Selector"
    )]
    method: Vec<String>,
    /// Requests for keys with this prefix.
    #[arg(long, value_name = "P", group = "keys", help_heading = "Selector")]
    prefix: Option<String>,
    /// Requests for keys from A to B, which is not included.
    #[arg(long, value_name = "A:B", group = "keys", value_parser = range, help_heading = "Selector")]
    range: Option<(String, String)>,
    /// Requests of this user.
    #[arg(long, value_name = "U", help_heading = "Selector")]
    user: Option<String>,
    /// Requests of this client, by the header revstore-client or else User-Agent.
    #[arg(long, value_name = "NAME", help_heading = "Selector")]
    client: Option<String>,
    /// Requests on this connection.
    #[arg(long, value_name = "ID", help_heading = "Selector")]
    connection: Option<u64>,
    /// Requests of a Kubernetes API with this verb.
    #[arg(long, value_name = "V", help_heading = "Selector")]
    verb: Option<String>,
    /// Requests of a Kubernetes API for this resource, such as deployments.apps.
    #[arg(long, value_name = "R", help_heading = "Selector")]
    resource: Option<String>,
    /// Requests of a Kubernetes API in this namespace.
    #[arg(long, value_name = "N", help_heading = "Selector")]
    namespace: Option<String>,
    /// Requests of a Kubernetes API for the object with this name.
    #[arg(long, value_name = "X", help_heading = "Selector")]
    name: Option<String>,

    /// The next N requests.
    #[arg(
        long,
        value_name = "N",
        group = "trigger",
        help_heading = "Trigger (default: until cleared)"
    )]
    next: Option<u64>,
    /// Every N-th request.
    #[arg(
        long,
        value_name = "N",
        group = "trigger",
        help_heading = "Trigger (default: until cleared)"
    )]
    every: Option<u64>,
    /// Each request with this probability.
    #[arg(
        long,
        value_name = "0.1",
        group = "trigger",
        help_heading = "Trigger (default: until cleared)"
    )]
    probability: Option<f64>,
    /// The seed of the probability.
    #[arg(
        long,
        value_name = "7",
        requires = "probability",
        help_heading = "Trigger (default: until cleared)"
    )]
    seed: Option<u64>,
    /// While the revision of the store is this one or a later one.
    #[arg(long, value_name = "R", conflicts_with_all = ["next", "every", "probability"], help_heading = "Trigger (default: until cleared)")]
    from_revision: Option<i64>,
    /// While the revision of the store is this one or an earlier one.
    #[arg(long, value_name = "R", conflicts_with_all = ["next", "every", "probability"], help_heading = "Trigger (default: until cleared)")]
    to_revision: Option<i64>,

    /// Fail before the request is executed.
    #[arg(
        long,
        value_name = "CODE:TEXT",
        group = "action",
        help_heading = "Action"
    )]
    error: Option<String>,
    /// Execute the request, and replace its answer by an error.
    #[arg(
        long,
        value_name = "CODE:TEXT",
        group = "action",
        help_heading = "Action"
    )]
    error_after: Option<String>,
    /// Fail with an error of etcd: no-leader, leader-changed, timeout, too-many-requests, nospace, corrupt or
    /// auth-revision.
    #[arg(long, value_name = "NAME", group = "action", help_heading = "Action")]
    preset: Option<String>,
    /// Wait before the request is executed.
    #[arg(long, value_name = "2s", group = "action", help_heading = "Action")]
    delay: Option<String>,
    /// Wait by the time of the system, not of the clock.
    #[arg(long, requires = "delay", conflicts_with_all = BUT_DELAY, help_heading = "Action")]
    wall: bool,
    /// Close the connection with a TCP reset.
    #[arg(long, group = "action", help_heading = "Action")]
    reset: bool,
    /// Keep the connection open, and neither read nor write on it.
    #[arg(long, group = "action", help_heading = "Action")]
    black_hole: bool,
    /// End the connection after its requests in flight.
    #[arg(long, group = "action", help_heading = "Action")]
    goaway: bool,
    /// Close new connections.
    #[arg(long, group = "action", help_heading = "Action")]
    refuse: bool,
    /// Hold the events of watches.
    #[arg(long, group = "action", help_heading = "Action")]
    hold: bool,
    /// End the streams of watches with an error.
    #[arg(long, group = "action", help_heading = "Action")]
    cut: bool,
    /// Cancel watches as compacted.
    #[arg(long, group = "action", help_heading = "Action")]
    cancel_compacted: bool,
    /// Neither execute nor answer keep-alives.
    #[arg(long, group = "action", help_heading = "Action")]
    lose_keep_alive: bool,
    /// Answer with this status, on a Kubernetes API.
    #[arg(long, value_name = "429", group = "action", help_heading = "Action")]
    http: Option<u16>,
    /// The seconds of the header Retry-After.
    #[arg(long, value_name = "1", requires = "http", conflicts_with_all = BUT_HTTP, help_heading = "Action")]
    retry_after: Option<u32>,
    /// Answer lists and gets from an earlier revision, on a Kubernetes API.
    #[arg(long, group = "action", help_heading = "Action")]
    stale: bool,
}

fn range(text: &str) -> Result<(String, String), String> {
    let (start, end) = text.split_once(':').ok_or("a range is written as A:B")?;
    Ok((start.to_owned(), end.to_owned()))
}

impl FaultAdd {
    /// Returns the request.
    pub(super) fn body(self) -> Value {
        let range = self.range.map(|(start, end)| {
            json!({"key": STANDARD.encode(start), "range_end": STANDARD.encode(end)})
        });
        let delay = self
            .delay
            .map(|time| json!({"time": time, "wall": self.wall}));
        let http = self.http.map(|status| match self.retry_after {
            Some(seconds) => json!({"status": status, "retry_after": seconds}),
            None => json!({"status": status}),
        });
        let given = |flag: bool| flag.then_some(Value::Bool(true));
        let fields = [
            (
                "methods",
                (!self.method.is_empty()).then(|| self.method.into()),
            ),
            (
                "prefix",
                self.prefix.map(|prefix| STANDARD.encode(prefix).into()),
            ),
            ("range", range),
            ("user", self.user.map(Value::from)),
            ("client", self.client.map(Value::from)),
            ("connection", self.connection.map(Value::from)),
            ("verb", self.verb.map(Value::from)),
            ("resource", self.resource.map(Value::from)),
            ("namespace", self.namespace.map(Value::from)),
            ("name", self.name.map(Value::from)),
            ("next", self.next.map(Value::from)),
            ("every", self.every.map(Value::from)),
            ("probability", self.probability.map(Value::from)),
            ("seed", self.seed.map(Value::from)),
            ("from_revision", self.from_revision.map(Value::from)),
            ("to_revision", self.to_revision.map(Value::from)),
            ("error", self.error.map(Value::from)),
            ("error_after", self.error_after.map(Value::from)),
            ("preset", self.preset.map(Value::from)),
            ("delay", delay),
            ("reset", given(self.reset)),
            ("black_hole", given(self.black_hole)),
            ("goaway", given(self.goaway)),
            ("refuse", given(self.refuse)),
            ("hold", given(self.hold)),
            ("cut", given(self.cut)),
            ("cancel_compacted", given(self.cancel_compacted)),
            ("lose_keep_alive", given(self.lose_keep_alive)),
            ("http", http),
            ("stale", given(self.stale)),
        ];
        let fields = fields.into_iter();
        let fields = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(fields.collect::<Map<_, _>>())
    }
}
