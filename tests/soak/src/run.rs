//! The order of events of a soak.

use std::collections::VecDeque;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::clients::administrator::{self, Done};
use crate::clients::session::Session;
use crate::clients::{bystander, raw, watcher, worker};
use crate::history::judge::Judge;
use crate::history::{Tick, Ticks, WriteId};
use crate::report::Report;
use crate::server::authority::Authority;
use crate::server::{Server, Setup};
use crate::{Arguments, BoxError, Limits};

const WORKERS: usize = 6;
const WATCHERS: usize = 8;
const MISBEHAVING: usize = 2;

/// The number of the signal.
const SIGTERM: i32 = 15;

/// The time between two looks at the server, and two judgements.
const INTERVAL: Duration = Duration::from_millis(500);

/// The number of intervals after whose end all operations that ended before have been reported.
const SETTLED: usize = 4;

/// The time that a server serves before it is stopped.
const SERVING: std::ops::Range<u64> = 8..30;

/// The time for which tasks may go on after they were asked to end.
const END_MAX: Duration = Duration::from_secs(60);

/// The time in which a server closes what its clients have left.
const LEFT_MAX: Duration = Duration::from_secs(40);

/// How the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// SIGKILL while clients work.
    Kill,
    /// SIGTERM while clients work.
    Terminate,
    /// SIGTERM after all clients have ended and everything was compared.
    Quiet,
}

/// Runs a soak.
pub(crate) async fn run(arguments: &Arguments) -> Result<Report, BoxError> {
    let temporary = tempfile::tempdir()?;
    let directory = match &arguments.directory {
        Some(directory) => {
            std::fs::create_dir_all(directory)?;
            directory.clone()
        }
        None => temporary.path().to_owned(),
    };
    let binary = match &arguments.server {
        Some(binary) => binary.clone(),
        None => beside_this_program()?,
    };
    let further = &arguments.further;
    let setup = Setup::new(&binary, &directory, arguments.persist, further)?;
    let authority = Arc::new(Authority::new(&directory)?);
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    let limits = Limits {
        rss_mib: arguments.rss_mib,
        descriptors: arguments.descriptors,
        latency: Duration::from_millis(arguments.latency_ms),
    };
    let mut soak = Soak {
        setup,
        authority,
        rng: Rng::with_seed(seed),
        ticks: Arc::default(),
        stops: Vec::new(),
        report: Report::new(seed, limits),
    };
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(arguments.minutes * 60.0);
    let mut judge = None;
    let mut first_write = 1;
    while Instant::now() < end {
        (judge, first_write) = soak.serve(judge, first_write, end).await?;
    }
    if let Some(judge) = judge {
        soak.report.close(judge);
    }
    soak.report.finish(start.elapsed());
    Ok(soak.report)
}

fn beside_this_program() -> Result<PathBuf, BoxError> {
    let program = std::env::current_exe()?;
    let directory = program.parent().ok_or("the program has no directory")?;
    Ok(directory.join("revstore"))
}

#[derive(Debug)]
struct Soak {
    setup: Setup,
    authority: Arc<Authority>,
    rng: Rng,
    ticks: Arc<Ticks>,
    /// The ways to stop that come next, each once before one comes again.
    stops: Vec<Stop>,
    report: Report,
}

/// The clients of one run of the server.
struct Clients {
    session: Arc<Session>,
    workers: Vec<JoinHandle<Result<(), BoxError>>>,
    watches: Vec<JoinHandle<Result<(), BoxError>>>,
    misbehaving: Vec<JoinHandle<Result<u64, BoxError>>>,
    leases: JoinHandle<Result<u64, BoxError>>,
    stranger: JoinHandle<Result<u64, BoxError>>,
    bystander: JoinHandle<Result<Vec<Duration>, BoxError>>,
    administrator: JoinHandle<Result<Done, BoxError>>,
}

impl Soak {
    /// Starts the server, lets the clients work, and stops it. Returns the judge of a store that outlives the
    /// server, and the next write.
    async fn serve(
        &mut self,
        judge: Option<Judge>,
        first_write: WriteId,
        end: Instant,
    ) -> Result<(Option<Judge>, WriteId), BoxError> {
        let mut server = Server::start(&self.setup, &self.authority).await?;
        let is_new = judge.is_none();
        self.report.histories += u64::from(is_new);
        let judge = judge.unwrap_or_else(|| Judge::new(1));
        let session = Arc::new(Session::new(
            self.setup.address,
            &self.authority,
            &self.ticks,
            first_write,
            judge,
        ));
        let root = self.authority.issue("root")?;
        {
            let mut client = session.client(&root).await?;
            if is_new {
                administrator::prepare(&mut client).await?;
            } else {
                // Auth may have been enabled when the server was killed.
                client.auth_disable().await?;
            }
        }
        let clients = self.clients(&session)?;
        if self.stops.is_empty() {
            self.stops = vec![Stop::Kill, Stop::Terminate, Stop::Quiet];
            self.rng.shuffle(&mut self.stops);
        }
        let stop = self.stops.pop().ok_or("no way to stop")?;
        let serving = Duration::from_secs(self.rng.u64(SERVING));
        let until = end.min(Instant::now() + serving);
        let mut recent = VecDeque::new();
        while Instant::now() < until {
            sleep(INTERVAL).await;
            session.judge().settle(settled(&mut recent, session.tick()));
            self.look(&mut server, &session)?;
        }
        self.stop(stop, &mut server, clients).await?;
        self.say(&format!("{stop:?} after {serving:?}"))?;
        let next_write = session.new_write();
        let session = Arc::into_inner(session).ok_or("a task has not ended")?;
        let mut judge = session.into_judge();
        self.report.operations += std::mem::take(&mut judge.operations);
        self.report.delivered += std::mem::take(&mut judge.delivered);
        let violations = std::mem::take(&mut judge.violations);
        self.report.violations.append(violations);
        if self.setup.is_durable {
            return Ok((Some(judge), next_write));
        }
        self.report.close(judge);
        Ok((None, next_write))
    }

    fn clients(&mut self, session: &Arc<Session>) -> Result<Clients, BoxError> {
        let root = self.authority.issue("root")?;
        let soak = self.authority.issue("soak")?;
        let stranger = self.authority.issue("stranger")?;
        let rng = &mut self.rng;
        let mut watches = vec![tokio::spawn(watcher::witness(
            session.clone(),
            soak.clone(),
        ))];
        watches.extend((0..WATCHERS).map(|_| {
            let watch = watcher::run(session.clone(), soak.clone(), rng.fork());
            tokio::spawn(watch)
        }));
        let workers = (0..WORKERS).map(|_| {
            let worker = worker::run(session.clone(), soak.clone(), rng.fork());
            tokio::spawn(worker)
        });
        let workers = workers.collect();
        let misbehaving = (0..MISBEHAVING).map(|_| {
            let client = raw::run_many(session.clone(), soak.clone(), rng.fork());
            tokio::spawn(client)
        });
        Ok(Clients {
            session: session.clone(),
            watches,
            workers,
            misbehaving: misbehaving.collect(),
            leases: tokio::spawn(bystander::leases(session.clone(), soak.clone(), rng.fork())),
            stranger: tokio::spawn(bystander::stranger(session.clone(), stranger)),
            bystander: tokio::spawn(bystander::bystander(session.clone(), soak)),
            administrator: tokio::spawn(administrator::run(session.clone(), root, rng.fork())),
        })
    }

    /// Notes what the server uses, and whether it runs; returns the number of its open files.
    fn look(&mut self, server: &mut Server, session: &Session) -> Result<u64, BoxError> {
        if let Some(status) = server.ended()? {
            return Err(format!("the server has ended: {status}").into());
        }
        let usage = server.usage()?;
        self.report.rss_mib = self.report.rss_mib.max(usage.rss_mib);
        self.report.descriptors = self.report.descriptors.max(usage.descriptors);
        let violations = std::mem::take(&mut session.judge().violations);
        if violations.count > 0 {
            writeln!(std::io::stderr(), "{violations:#?}")?;
            self.report.violations.append(violations);
        }
        Ok(usage.descriptors)
    }

    /// Stops the server and its clients.
    async fn stop(
        &mut self,
        stop: Stop,
        server: &mut Server,
        clients: Clients,
    ) -> Result<(), BoxError> {
        let session = clients.session.clone();
        match stop {
            Stop::Kill => {
                session.go_down();
                server.kill()?;
                self.report.kills += 1;
            }
            Stop::Terminate => {
                session.go_down();
                self.terminate(server).await?;
            }
            Stop::Quiet => {}
        }
        session.stop();
        for worker in clients.workers {
            end("a worker", &session, worker).await;
        }
        let done = end("the administrator", &session, clients.administrator);
        if let Some(done) = done.await {
            self.report.done.add(done);
        }
        for client in clients.misbehaving {
            let count = end("a client that misbehaves", &session, client).await;
            self.report.misbehaving += count.unwrap_or(0);
        }
        let leases = end("the leases", &session, clients.leases).await;
        self.report.leases += leases.unwrap_or(0);
        let denied = end("the stranger", &session, clients.stranger).await;
        self.report.denied += denied.unwrap_or(0);
        let latencies = end("the bystander", &session, clients.bystander).await;
        self.report.latencies.extend(latencies.unwrap_or_default());
        if stop == Stop::Quiet {
            let pair = self.authority.issue("root")?;
            let mut client = session.client(&pair).await?;
            let last = client.get("soak-last", None).await?;
            let revision = last
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision);
            session.finish(revision);
        } else {
            session.finish(1);
        }
        for watch in clients.watches {
            end("a watch", &session, watch).await;
        }
        if stop == Stop::Quiet {
            let left = session.judge().settle_all();
            if left > 0 {
                session.violation(format!(
                    "{left} operations at revisions that no watch showed"
                ));
            }
            self.descriptors(server, &session).await?;
            session.go_down();
            self.terminate(server).await?;
        }
        Ok(())
    }

    async fn terminate(&mut self, server: &mut Server) -> Result<(), BoxError> {
        let status = server.terminate().await?;
        self.report.terminations += 1;
        // Like etcd, the server ends by the signal itself.
        if status.signal() != Some(SIGTERM) {
            self.report
                .violations
                .add(format!("the server ended with {status} after SIGTERM"));
        }
        Ok(())
    }

    /// Waits until the server has closed what its clients have left.
    async fn descriptors(
        &mut self,
        server: &mut Server,
        session: &Session,
    ) -> Result<(), BoxError> {
        let deadline = Instant::now() + LEFT_MAX;
        loop {
            let left = self.look(server, session)?;
            if left <= self.report.limits.descriptors || Instant::now() > deadline {
                self.report.left_descriptors = self.report.left_descriptors.max(left);
                return Ok(());
            }
            sleep(INTERVAL).await;
        }
    }

    /// Prints a line about the state of the run.
    fn say(&self, what: &str) -> Result<(), BoxError> {
        let mut out = std::io::stderr().lock();
        let Report {
            operations,
            kills,
            terminations,
            rss_mib,
            ref violations,
            ..
        } = self.report;
        writeln!(
            out,
            "{what}: {operations} operations before, {kills} kills, {terminations} terminations, \
             at most {rss_mib} MiB, {} violations",
            violations.count
        )?;
        Ok(())
    }
}

/// Returns a tick such that all operations that ended before it have been reported.
fn settled(recent: &mut VecDeque<Tick>, now: Tick) -> Tick {
    recent.push_back(now);
    if recent.len() > SETTLED {
        recent.pop_front();
    }
    recent[0]
}

/// Waits for the end of a task, and notes its failure.
async fn end<T>(
    what: &str,
    session: &Session,
    mut task: JoinHandle<Result<T, BoxError>>,
) -> Option<T> {
    let violation = match timeout(END_MAX, &mut task).await {
        Ok(Ok(Ok(result))) => return Some(result),
        Ok(Ok(Err(error))) => format!("{what}: {error}"),
        Ok(Err(panic)) => format!("{what}: {panic}"),
        Err(_) => {
            task.abort();
            // The task drops what it shares before this returns.
            let _aborted = task.await;
            format!("{what} does not end")
        }
    };
    session.violation(violation);
    None
}
