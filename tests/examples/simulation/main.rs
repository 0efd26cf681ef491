//! Two clients elect a leader through a partition, in a simulated network: `cargo run -p revstore-tests --example simulation`.
//!
//! The server, both clients and the network between them run in one thread, by simulated time: the minute of the election
//! takes less than a second, and each run prints the same. The clients are those of the crate `etcd-client`.

#![expect(clippy::print_stdout, reason = "an example prints what happens")]

mod network;

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use etcd_client::LeaseGrantOptions;
use revstore::Server;
use tokio::time::{Instant, sleep, timeout};
use turmoil::net::TcpListener;

use network::{PORT, connect};

type Failure = Box<dyn std::error::Error>;

const ELECTION: &str = "leader";
/// The time to live of a candidate's lease.
const TTL: Duration = Duration::from_secs(5);
/// How often a leader keeps its lease alive.
const PERIOD: Duration = Duration::from_secs(1);
const END: Duration = Duration::from_secs(60);

/// Who is the leader, in the order of their terms.
type Leaders = Arc<Mutex<Vec<&'static str>>>;

fn main() -> Result<(), Failure> {
    let leaders = Leaders::default();
    let mut network = turmoil::Builder::new()
        .rng_seed(1)
        .simulation_duration(2 * END)
        .build();
    network.host("etcd", || async {
        let server = Server::in_process()?;
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(server.serve(stream));
        }
    });
    // Ids that the clients choose: those that the server would choose are random, and the keys of elections contain them.
    network.client("a", candidate("a", 100, leaders.clone()));
    network.client("b", candidate("b", 200, leaders.clone()));
    network.client("weather", async {
        sleep(Duration::from_secs(10)).await;
        log("the leader a is separated from etcd");
        turmoil::partition("a", "etcd");
        sleep(Duration::from_secs(20)).await;
        log("a is connected again");
        turmoil::repair("a", "etcd");
        Ok(())
    });
    network.run()?;
    let leaders = leaders.lock().map_err(|_| "a candidate has panicked")?;
    assert_eq!(*leaders, ["a", "b"]);
    Ok(())
}

/// Takes part in the election until the end, with a new lease after each one that was lost.
async fn candidate(name: &'static str, first_lease: i64, leaders: Leaders) -> Result<(), Failure> {
    if name == "b" {
        // So that a is first.
        sleep(Duration::from_secs(1)).await;
    }
    for lease in first_lease.. {
        let left = END.saturating_sub(now());
        if left.is_zero() {
            break;
        }
        match timeout(left, Box::pin(session(name, lease, &leaders))).await {
            Ok(Ok(())) => log(&format!("{name} has lost its lease")),
            // It does not reach etcd.
            Ok(Err(_)) => sleep(PERIOD).await,
            // The end.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Waits to be elected with a new lease, and leads until the lease may have ended.
async fn session(name: &'static str, lease: i64, leaders: &Leaders) -> Result<(), Failure> {
    let mut client = timeout(TTL, connect(TTL)).await??;
    let granted = Instant::now();
    let options = LeaseGrantOptions::new().with_id(lease);
    let grant = client.lease_grant(TTL.as_secs().cast_signed(), Some(options));
    timeout(TTL, grant).await??;
    let campaign = {
        let mut client = client.clone();
        async move { client.campaign(ELECTION, name, lease).await }
    };
    let mut campaign = std::pin::pin!(campaign);
    let mut is_leader = false;
    let (mut keeper, mut answers) = timeout(TTL, client.lease_keep_alive(lease)).await??;
    let mut lives_until = granted + TTL;
    loop {
        let asked = Instant::now();
        let kept = async {
            keeper.keep_alive().await?;
            answers.message().await
        };
        let left = lives_until.saturating_duration_since(asked);
        match timeout(left, kept).await {
            // The lease lives at least as long as if the request had arrived at once.
            Ok(Ok(Some(answer))) if answer.ttl() > 0 => lives_until = asked + TTL,
            Ok(Err(error)) => return Err(error.into()),
            // A leader whose lease may have ended stops to act as one, whatever etcd knows of it.
            _ => return Ok(()),
        }
        if is_leader {
            sleep(PERIOD).await;
        } else if let Ok(elected) = timeout(PERIOD, &mut campaign).await {
            elected?;
            is_leader = true;
            log(&format!("{name} leads"));
            if let Ok(mut leaders) = leaders.lock() {
                leaders.push(name);
            }
        }
    }
}

/// The simulated time since the start.
fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

fn log(what: &str) {
    println!("{:6.3} s: {what}", now().as_secs_f64());
}
