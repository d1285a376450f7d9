//! A cluster in memory: control by channels, data by socket pairs.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_flow::cluster::{
    Cluster, Event, HandledLoad, Joined, Link, Member, Membership, Offer, Raise, StateOffer, Status,
};
use millstream_flow::error::Cause;
use millstream_flow::metrics::Report;
use millstream_flow::{Flow, FlowError, Options, Recovery};

use super::commits::{Commits, keeps_prepared};

/// Far longer than any test takes.
pub const WATCHDOG: Duration = Duration::from_secs(60);

/// The number of runs so far: each has another id.
static RUNS: AtomicU64 = AtomicU64::new(1);

struct Pipe(UnixStream);

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Link for Pipe {
    fn try_clone(&self) -> io::Result<Box<dyn Link>> {
        Ok(Box::new(Pipe(self.0.try_clone()?)))
    }
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }
}

/// What one process has, until it joins.
struct Seat {
    links: Vec<Option<UnixStream>>,
    events: Receiver<Event>,
}

/// The middle of a cluster.
pub struct Hub {
    processes: usize,
    seats: Vec<Mutex<Option<Seat>>>,
    /// Other handles of the data connections of each process.
    wires: Vec<Vec<UnixStream>>,
    events: Vec<Sender<Event>>,
    all: Barrier,
    built: Mutex<usize>,
    offers: Mutex<Vec<Option<Offer>>>,
    commits: Commits,
    runs: u64,
    /// The processes that have ended without a failure.
    pub ended: Mutex<Vec<usize>>,
    /// Reports of handled loads are kept back while this is set.
    pub withholds: Mutex<bool>,
}

impl Hub {
    pub fn new(processes: usize) -> Arc<Self> {
        let mut links: Vec<Vec<Option<UnixStream>>> = (0..processes)
            .map(|_| (0..processes).map(|_| None).collect())
            .collect();
        let pairs = (0..processes).flat_map(|one| (0..one).map(move |other| (one, other)));
        for (one, other) in pairs {
            let (a, b) = UnixStream::pair().unwrap();
            links[one][other] = Some(a);
            links[other][one] = Some(b);
        }
        let again = |link: &UnixStream| link.try_clone().unwrap();
        let wires = links.iter();
        let wires = wires.map(|own| own.iter().flatten().map(again).collect());
        let wires = wires.collect();
        let mut senders = Vec::new();
        let mut seats = Vec::new();
        for links in links {
            let (sender, events) = channel();
            senders.push(sender);
            seats.push(Mutex::new(Some(Seat { links, events })));
        }
        Arc::new(Hub {
            processes,
            seats,
            wires,
            events: senders,
            all: Barrier::new(processes),
            built: Mutex::new(0),
            offers: Mutex::new(vec![None; processes]),
            commits: Commits::new(processes),
            runs: RUNS.fetch_add(1, Ordering::Relaxed),
            ended: Mutex::default(),
            withholds: Mutex::new(false),
        })
    }

    /// The options of process `process`.
    pub fn options(self: &Arc<Self>, process: usize, workers: usize) -> Options {
        let mut options = Options::workers(workers);
        options.cluster = Some(Arc::new(Place(Arc::clone(self), process)));
        options
    }

    /// Asks all processes to stop.
    pub fn stop(&self) {
        self.send_all(&Event::Stop);
    }

    fn send_all(&self, event: &Event) {
        for events in &self.events {
            let _ = events.send(event.clone());
        }
    }

    /// Ends the data connections of a process, as when it is killed. With a `cause` its death is reported to the
    /// others.
    pub fn kill(&self, process: usize, cause: Option<&str>) {
        if let Some(cause) = cause {
            self.died(process, cause);
        }
        for wire in &self.wires[process] {
            let _ = wire.shutdown(Shutdown::Both);
        }
    }

    fn died(&self, process: usize, cause: &str) {
        for (other, events) in self.events.iter().enumerate() {
            if other != process {
                let cause = cause.to_owned();
                let _ = events.send(Event::Died { process, cause });
            }
        }
    }
}

/// A process of a cluster in memory.
struct Place(Arc<Hub>, usize);

impl Cluster for Place {
    fn membership(&self) -> Membership {
        Membership {
            process: self.1,
            processes: self.0.processes,
        }
    }

    fn join(&self, offer: Offer, _: &dyn Fn() -> bool) -> Result<Joined, Cause> {
        let hub = &self.0;
        let seat = hub.seats[self.1].lock().unwrap().take().unwrap();
        hub.offers.lock().unwrap()[self.1] = Some(offer.clone());
        hub.all.wait();
        let offers = hub.offers.lock().unwrap();
        let stateless = |offer: &Offer| Offer {
            state: None,
            ..offer.clone()
        };
        let this = stateless(&offer);
        if let Some(other) = offers
            .iter()
            .flatten()
            .map(stateless)
            .find(|other| *other != this)
        {
            return Err(format!("another process offers {other:?}, this one {offer:?}").into());
        }
        let states = offers.iter().flatten().map(|offer| offer.state.clone());
        let states: Vec<StateOffer> = states.map(Option::unwrap_or_default).collect();
        let epoch = states[0].committed.unwrap_or_default().epoch;
        hub.commits.begin(epoch);
        let link = |link: UnixStream| Box::new(Pipe(link)) as Box<dyn Link>;
        Ok(Joined {
            run: hub.runs,
            links: seat.links.into_iter().map(|own| own.map(link)).collect(),
            cluster: states[0].cluster.unwrap_or(8),
            keeps_prepared: keeps_prepared(&states, self.1),
            epoch,
            member: Arc::new(Place(Arc::clone(hub), self.1)),
            events: seat.events,
        })
    }
}

impl Member for Place {
    fn built(&self) {
        let mut built = self.0.built.lock().unwrap();
        *built += 1;
        if *built == self.0.processes {
            self.0.send_all(&Event::Go);
        }
    }
    fn drained(&self, has_input: bool) {
        let hub = &self.0;
        hub.commits.drained(self.1, has_input, &hub.events[0]);
    }
    fn raise(&self, raise: Raise) {
        self.0.send_all(&Event::Raise(raise));
    }
    fn prepared(&self, epoch: u64, changed: bool, last: bool) {
        let hub = &self.0;
        hub.commits
            .prepared(self.1, (epoch, changed), last, &hub.events[0]);
    }
    fn committed(&self, epoch: u64) {
        self.0.commits.committed(epoch, &self.0.events);
    }
    fn status(&self, status: Status) {
        let process = self.1;
        let _ = self.0.events[0].send(Event::Status { process, status });
    }
    fn handled(&self, handled: &[HandledLoad]) {
        while *self.0.withholds.lock().unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for load in handled {
            assert_ne!(load.sender, self.1);
            let _ = self.0.events[load.sender].send(Event::Handled(*load));
        }
    }
    fn stop(&self) {
        self.0.send_all(&Event::Stop);
    }
    fn failed(&self, cause: &str) {
        self.0.died(self.1, cause);
    }
    fn ended(&self) {
        let mut ended = self.0.ended.lock().unwrap();
        ended.push(self.1);
        if ended.len() == self.0.processes {
            self.0.send_all(&Event::Ended);
        }
    }
}

/// The outcome of each process.
pub type Outcomes = Vec<Result<Report, FlowError>>;

/// Starts `flow(process)` as process `process`, each on a thread.
pub fn start(
    hub: &Arc<Hub>,
    workers: usize,
    flow: impl Fn(usize) -> Flow + Send + Sync + 'static,
) -> Vec<JoinHandle<Result<Report, FlowError>>> {
    start_with(hub, workers, |_| None, flow)
}

/// The same, with the state that `recovery(process)` returns.
pub fn start_with(
    hub: &Arc<Hub>,
    workers: usize,
    recovery: impl Fn(usize) -> Option<Recovery>,
    flow: impl Fn(usize) -> Flow + Send + Sync + 'static,
) -> Vec<JoinHandle<Result<Report, FlowError>>> {
    let flow = Arc::new(flow);
    let processes = (0..hub.processes).map(|process| {
        let flow = Arc::clone(&flow);
        let mut options = hub.options(process, workers);
        options.recovery = recovery(process);
        std::thread::spawn(move || {
            let running = flow(process).start(options)?;
            if !running.ended_within(WATCHDOG) {
                std::mem::forget(running);
                panic!("process {process} hangs");
            }
            running.wait()
        })
    });
    processes.collect()
}

pub fn finish(processes: Vec<JoinHandle<Result<Report, FlowError>>>) -> Outcomes {
    processes.into_iter().map(|p| p.join().unwrap()).collect()
}

/// Runs a flow on `processes` processes; each of them must end well.
pub fn run(
    processes: usize,
    workers: usize,
    flow: impl Fn(usize) -> Flow + Send + Sync + 'static,
) -> Vec<Report> {
    let hub = Hub::new(processes);
    let outcomes = finish(start(&hub, workers, flow));
    let reports = outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap())
        .collect();
    let mut ended = hub.ended.lock().unwrap().clone();
    ended.sort_unstable();
    assert_eq!(ended, (0..processes).collect::<Vec<_>>());
    reports
}

/// Waits until a condition holds.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..WATCHDOG.as_millis() {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}");
}
