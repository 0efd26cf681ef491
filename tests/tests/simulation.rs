//! A server and stock clients in a simulated network: two candidates elect a leader through partitions.
//!
//! Everything runs in one thread with simulated time. A seed decides the latencies, the partitions, the faults and when a leader
//! resigns, so that a failure can be repeated: `REVSTORE_SIMULATION_SEED=17 cargo test -p revstore-tests --test simulation`.
//! Each seed runs twice: all that happens must be the same, at the same times.

#[path = "../examples/simulation/network.rs"]
mod network;

use std::{
    collections::BTreeSet,
    env,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use etcd_client::{Client, EventType, LeaderKey, LeaseGrantOptions, ResignOptions};
use revstore::{
    ClockMode, InProcess, Server,
    control::fault::{self, Action, Preset, Rule, Selector, Trigger},
};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::Code;
use turmoil::net::TcpListener;

use network::{PORT, connect};

/// The seeds of an ordinary run. `.ci/run simulation-long` takes 1,000.
const SEEDS: u64 = 30;
const ELECTION: &str = "election";
/// The time to live of the session of a candidate.
const TTL_SECONDS: u32 = 6;
const TTL: Duration = Duration::from_secs(TTL_SECONDS as u64);
const KEEP_ALIVE_PERIOD: Duration = Duration::from_secs(2);
/// How long each candidate takes part.
const DURATION: Duration = Duration::from_secs(60);
/// The resolution of the simulated network. The time of the test is proportional to the number of ticks.
const TICK: Duration = Duration::from_millis(10);
const CANDIDATES: [&str; 2] = ["a", "b"];

/// When something happened, and what.
type Entry = (Duration, String);
type Failure = Box<dyn std::error::Error>;

/// The time since the start of the simulation.
fn elapsed() -> Duration {
    turmoil::sim_elapsed().expect("a simulation runs")
}

/// What happened in a simulation, with the simulated time of each entry.
#[derive(Clone, Debug, Default)]
struct Trace(Arc<Mutex<Vec<Entry>>>);

impl Trace {
    fn add(&self, entry: String) {
        self.0.lock().expect("no panic").push((elapsed(), entry));
    }

    fn entries(&self) -> Vec<Entry> {
        self.0.lock().expect("no panic").clone()
    }
}

/// A time in which a candidate was sure to be the leader: from, until, who.
type Term = (Duration, Duration, &'static str);

type Terms = Arc<Mutex<Vec<Term>>>;

#[test]
fn at_most_one_candidate_is_leader_through_partitions_and_faults_and_a_seed_repeats_all_of_it() {
    let mut leaders = BTreeSet::new();
    let mut traces = BTreeSet::new();
    let seeds = seeds();
    let count = seeds.len();
    for seed in seeds {
        let (trace, terms) = simulate(seed);
        check_terms(seed, &terms);
        assert_eq!(
            simulate(seed),
            (trace.clone(), terms.clone()),
            "seed {seed}"
        );
        leaders.extend(terms.iter().map(|(_, _, candidate)| *candidate));
        traces.insert(trace);
    }
    if env::var_os("REVSTORE_SIMULATION_SEED").is_none() {
        assert_eq!(
            leaders.len(),
            CANDIDATES.len(),
            "each candidate was leader for some seed"
        );
        assert!(traces.len() > count / 2, "{} different runs", traces.len());
    }
}

fn seeds() -> Vec<u64> {
    let number = |name| env::var(name).ok().map(|it| it.parse().expect("a number"));
    match number("REVSTORE_SIMULATION_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("REVSTORE_SIMULATION_SEEDS").unwrap_or(SEEDS)).collect(),
    }
}

/// Runs the election and returns its trace, and the terms of the leaders.
fn simulate(seed: u64) -> (Vec<Entry>, Vec<Term>) {
    let (trace, terms) = (Trace::default(), Terms::default());
    let mut network = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(2 * DURATION)
        .tick_duration(TICK)
        .min_message_latency(TICK)
        .max_message_latency(8 * TICK)
        .enable_random_order()
        .build();
    network.host("etcd", move || async move {
        let server = Server::builder()
            .control(ClockMode::System)
            .start_in_process()?;
        add_faults(&server, seed)?;
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(server.serve(stream));
        }
    });
    for (number, name) in (1_i64..).zip(CANDIDATES) {
        let candidate = Candidate {
            name,
            random: fastrand::Rng::with_seed(seed * 10 + number.unsigned_abs()),
            next_lease: 1_000 * number,
            trace: trace.clone(),
            terms: terms.clone(),
        };
        network.client(name, candidate.run());
    }
    network.client("observer", observe(trace.clone()));
    network.client(
        "weather",
        change_network(fastrand::Rng::with_seed(seed), trace.clone()),
    );
    network
        .run()
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let terms = terms.lock().expect("no panic").clone();
    (trace.entries(), terms)
}

/// Adds the faults that a seed decides: lost keep-alives, and calls that fail before or after they are executed.
fn add_faults(server: &InProcess, seed: u64) -> Result<(), Failure> {
    let failure = || Action::Preset(Preset::LeaderChanged);
    let lost = Action::ErrorAfter(fault::Failure::new(Code::Unavailable, "lost"));
    let faults = [
        ("LeaseKeepAlive", 0.1, Action::LoseKeepAlive),
        ("LeaseGrant", 0.1, failure()),
        ("Campaign", 0.1, failure()),
        ("Campaign", 0.1, lost),
        ("Resign", 0.2, failure()),
    ];
    let control = server.control().ok_or("control is on")?;
    for (method, probability, action) in faults {
        control.add_fault(Rule {
            selector: Selector {
                methods: vec![method.to_owned()],
                ..Selector::default()
            },
            trigger: Trigger::Probability { probability, seed },
            action,
        })?;
    }
    Ok(())
}

/// Two terms of different candidates never overlap, and there is a leader for most of the time.
fn check_terms(seed: u64, terms: &[Term]) {
    let mut sorted = terms.to_vec();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        let [(_, end, leader), (start, _, next)] = pair else {
            continue;
        };
        assert!(
            leader == next || end <= start,
            "seed {seed}: two leaders: {pair:?}"
        );
    }
    assert!(!sorted.is_empty(), "seed {seed}: nobody became leader");
}

/// Separates candidates from the server, and connects them again.
async fn change_network(mut random: fastrand::Rng, trace: Trace) -> Result<(), Failure> {
    let end = Instant::now() + DURATION;
    while Instant::now() < end {
        sleep(Duration::from_millis(random.u64(1_000..10_000))).await;
        let candidate = CANDIDATES[random.usize(..CANDIDATES.len())];
        turmoil::partition("etcd", candidate);
        trace.add(format!("{candidate} is separated"));
        sleep(Duration::from_millis(random.u64(500..15_000))).await;
        turmoil::repair("etcd", candidate);
        trace.add(format!("{candidate} is connected"));
    }
    Ok(())
}

/// Reads all changes of the election. The observer is never separated, and so misses none.
async fn observe(trace: Trace) -> Result<(), Failure> {
    let mut client = connect(TTL).await?;
    let options = etcd_client::WatchOptions::new().with_prefix();
    let (_watcher, mut stream) = client.watch(ELECTION, Some(options)).await?.split();
    let mut revision = 0;
    let end = Instant::now() + DURATION;
    while let Ok(response) = timeout(
        end.saturating_duration_since(Instant::now()),
        stream.message(),
    )
    .await
    {
        let response = response?.ok_or("the watch has ended")?;
        for event in response.events() {
            let kv = event.kv().ok_or("an event without a key")?;
            assert!(kv.mod_revision() > revision, "events are in order");
            revision = kv.mod_revision();
            let change = match event.event_type() {
                EventType::Put => "put",
                EventType::Delete => "delete",
            };
            trace.add(format!("{change} {} at {revision}", kv.key_str()?));
        }
    }
    Ok(())
}

struct Candidate {
    name: &'static str,
    random: fastrand::Rng,
    next_lease: i64,
    trace: Trace,
    terms: Terms,
}

impl Candidate {
    /// Takes part in the election, with a new session after each one that ended.
    async fn run(mut self) -> Result<(), Failure> {
        let end = Instant::now() + DURATION;
        while Instant::now() < end {
            let name = self.name;
            let session = Box::pin(self.session());
            match timeout(end - Instant::now(), session).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.trace.add(format!("{name}: {}", kind(&error)));
                    sleep(Duration::from_millis(500)).await;
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Grants a lease, waits to be elected, and leads until the session is lost or the candidate resigns.
    async fn session(&mut self) -> Result<(), etcd_client::Error> {
        let mut client = within(connect(TTL)).await?;
        self.next_lease += 1;
        let lease = self.next_lease;
        let asked = Instant::now();
        let options = LeaseGrantOptions::new().with_id(lease);
        within(client.lease_grant(TTL_SECONDS.into(), Some(options))).await?;
        let session = Session::keep(client.clone(), lease, asked);
        let leader = {
            let campaign = client.campaign(ELECTION, self.name, lease);
            tokio::select! {
                biased;
                response = campaign => response?.leader().cloned(),
                () = session.lost() => return Ok(()),
            }
        };
        let Some(leader) = leader else {
            return Ok(());
        };
        self.lead(&mut client, &session, leader).await
    }

    async fn lead(
        &mut self,
        client: &mut Client,
        session: &Session,
        leader: LeaderKey,
    ) -> Result<(), etcd_client::Error> {
        let start = elapsed();
        self.trace
            .add(format!("{} leads with {}", self.name, leader.rev()));
        let until = Instant::now() + Duration::from_millis(self.random.u64(1_000..40_000));
        let has_resigned = tokio::select! {
            biased;
            () = session.lost() => false,
            () = sleep_until(until) => true,
        };
        // A leader that resigns has ended its term before it asks.
        let now = elapsed();
        // The campaign may have been won by a lease that has ended since.
        if now > start {
            self.terms
                .lock()
                .expect("no panic")
                .push((start, now, self.name));
        }
        if has_resigned {
            self.trace.add(format!("{} resigns", self.name));
            let options = ResignOptions::new().with_leader(leader);
            within(client.resign(Some(options))).await?;
        }
        Ok(())
    }
}

/// The lease of a candidate, and the time until which it certainly lives.
struct Session {
    /// The time of the last keep-alive request that was answered, and the time to live.
    lives_until: Arc<Mutex<Instant>>,
    task: tokio::task::JoinHandle<()>,
}

impl Session {
    fn keep(mut client: Client, lease: i64, granted: Instant) -> Self {
        let lives_until = Arc::new(Mutex::new(granted + TTL));
        let shared = lives_until.clone();
        let task = tokio::spawn(async move {
            loop {
                // Errors end one stream. The session ends by its time.
                if let Ok(Ok((mut keeper, mut stream))) =
                    timeout(TTL, client.lease_keep_alive(lease)).await
                {
                    loop {
                        let asked = Instant::now();
                        if keeper.keep_alive().await.is_err() {
                            break;
                        }
                        match timeout(TTL, stream.message()).await {
                            Ok(Ok(Some(response))) if response.ttl() > 0 => {
                                let mut until = shared.lock().expect("no panic");
                                // An answer that comes after the end of the session does not revive it.
                                if *until > Instant::now() {
                                    *until = asked + TTL;
                                }
                            }
                            _ => break,
                        }
                        sleep(KEEP_ALIVE_PERIOD).await;
                    }
                }
                sleep(Duration::from_millis(200)).await;
            }
        });
        Self { lives_until, task }
    }

    /// Completes when the lease may have ended.
    async fn lost(&self) {
        loop {
            let until = *self.lives_until.lock().expect("no panic");
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Limits a call, which would wait for a separated server for ever.
async fn within<T>(
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, etcd_client::Error> {
    let elapsed = |_| etcd_client::Error::ElectError("no answer in time".to_owned());
    timeout(TTL, call).await.map_err(elapsed)?
}

/// The kind of an error, without addresses.
fn kind(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::GRpcStatus(status) => format!("{:?}", status.code()),
        etcd_client::Error::TransportError(_) => "no connection".to_owned(),
        error => error.to_string(),
    }
}
