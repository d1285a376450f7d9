//! Components in Rust as a part of a system of services, which `millstream service up SYSTEM.toml` runs.
//!
//! A program registers its components by name. The file says which of them run, on which journals and how:
//!
//! ```toml
//! [services.desk]
//! component = "desk"          # as it is registered
//! in = "orders"
//! out = "replies"
//!
//! [processes.desk]
//! command = ["./target/release/desk"]
//! ```
//!
//! ```no_run
//! use millstream_service::system::Program;
//! # use millstream_wire::Cause;
//! #
//! # #[millstream_wire::interface]
//! # trait Orders { fn place(&mut self, symbol: &str); }
//! # #[millstream_wire::interface]
//! # trait Replies { fn accepted(&mut self, symbol: &str); }
//! # struct Desk<R> { replies: R }
//! # impl<R: Replies> Orders for Desk<R> {
//! #     fn place(&mut self, symbol: &str) { self.replies.accepted(symbol) }
//! # }
//!
//! fn main() -> std::process::ExitCode {
//!     Program::new()
//!         .register("desk", |part| {
//!             let desk = Desk { replies: part.publisher::<dyn Replies>()? };
//!             part.component(desk).input::<dyn Orders>()?.run()
//!         })
//!         .run()
//! }
//! ```
//!
//! The program reads from standard input one line of JSON that lists the services to run, each on a thread of its own,
//! and ends at the end of that input: so it ends also when the supervisor is killed. It writes the status of each
//! service to a file of the state directory, which `millstream service status` shows.

mod log;
mod order;
mod part;
mod report;

use std::collections::HashMap;
use std::io::{self, BufRead, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};

use millstream_journal::chain;
use millstream_journal::clock::monotonic_ns;
use millstream_wire::Cause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};

use self::order::Order;
use self::part::Closed;
pub use self::part::{Component, Part, pin};
use self::report::Shared;
#[doc(hidden)] // For the other crates of Millstream.
pub use self::report::{Reporter, StackOfCall, Status};

/// The time between two looks at the services, in ns.
const EVERY_NS: i64 = 200_000_000;

type Start = Arc<dyn Fn(Part) -> Result<(), Cause> + Send + Sync>;

/// The components that a program knows.
#[derive(Default)]
pub struct Program {
    components: HashMap<String, Start>,
}

/// A service on its thread.
struct Running {
    name: String,
    reporter: Reporter,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), Cause>>>,
}

impl Program {
    /// A program without components.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `start` makes the component of a service and [runs](Component::run) it, on a thread of the service's own.
    #[must_use]
    pub fn register(
        mut self,
        component: &str,
        start: impl Fn(Part) -> Result<(), Cause> + Send + Sync + 'static,
    ) -> Self {
        self.components
            .insert(component.to_owned(), Arc::new(start));
        self
    }

    /// Runs the services that standard input lists until that ends, or a signal comes. Exit code 0 when they were asked
    /// to end, 1 when one has failed, 2 when the program was not started by `millstream service up` or does not know a
    /// component.
    ///
    /// Warnings and errors are events of `tracing`. Where the program has installed no subscriber, this installs one
    /// that writes each of them as a line on standard error, which `millstream service up` shows.
    #[must_use]
    pub fn run(self) -> ExitCode {
        log::begin();
        match self.run_services() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(cause) => {
                tracing::error!("{}", chain(&*cause));
                ExitCode::from(2)
            }
        }
    }

    fn run_services(self) -> Result<bool, Cause> {
        let order = read_order()?;
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        let mut starts = Vec::new();
        for service in &order.services {
            let start = self.components.get(&service.component).ok_or_else(|| {
                let mut known: Vec<&str> = self.components.keys().map(String::as_str).collect();
                known.sort_unstable();
                format!(
                    "service {}: this program has no component {}, but {}",
                    service.name,
                    service.component,
                    known.join(", ")
                )
            })?;
            starts.push(Arc::clone(start));
        }
        let mut running = Vec::new();
        for (service, start) in order.services.into_iter().zip(starts) {
            let shared = Arc::<Shared>::default();
            let name = service.name.clone();
            let reporter = Reporter::start(
                &name,
                service.inputs.clone(),
                Path::new(&order.state),
                Arc::clone(&shared.meter),
                Box::new(|_| None),
            )?;
            let part = Closed::new(service, Arc::clone(&shared));
            let thread = Builder::new().name(name.clone());
            let thread = Some(thread.spawn(move || start(part.open()?))?);
            running.push(Running {
                name,
                reporter,
                shared,
                thread,
            });
        }
        watch(&mut running, &asked, order.stop_s)
    }
}

/// The first line of standard input.
fn read_order() -> Result<Order, Cause> {
    let mut line = String::new();
    if !io::stdin().is_terminal() {
        io::stdin().lock().read_line(&mut line)?;
    }
    if line.is_empty() {
        return Err("this program is started by `millstream service up`".into());
    }
    Ok(serde_json::from_str(&line)?)
}

/// Supervises the services until all have ended; false when one has failed.
fn watch(running: &mut [Running], asked: &AtomicBool, stop_s: f64) -> Result<bool, Cause> {
    let mut good = true;
    let mut deadline_ns = None;
    while running.iter().any(|service| service.thread.is_some()) {
        if input_has_ended(deadline_ns.is_some())? {
            asked.store(true, Relaxed);
        }
        for service in &mut *running {
            let ended = service.thread.take_if(|thread| thread.is_finished());
            if let Some(thread) = ended {
                let name = &service.name;
                let outcome = thread
                    .join()
                    .unwrap_or_else(|_| Err("the component panicked".into()));
                if let Err(cause) = outcome {
                    tracing::error!("service {name}: {}", chain(&*cause));
                    good = false;
                }
                // Services of one process end together.
                asked.store(true, Relaxed);
            }
            service.reporter.check()?;
        }
        if asked.load(Relaxed) && deadline_ns.is_none() {
            deadline_ns = Some(monotonic_ns() + (stop_s * 1e9) as u64);
            running
                .iter()
                .for_each(|service| service.shared.stop.stop());
        }
        if deadline_ns.is_some_and(|deadline| monotonic_ns() > deadline) {
            let busy = running.iter().filter(|service| service.thread.is_some());
            let busy: Vec<&str> = busy.map(|service| service.name.as_str()).collect();
            let busy = busy.join(", ");
            tracing::error!(
                "the call of {busy} has not ended within {stop_s} s (stop); the next start makes it again"
            );
            return Ok(false);
        }
    }
    Ok(good)
}

/// Waits a moment for the end of standard input; once the services have been asked to end, only for the moment.
fn input_has_ended(asked: bool) -> Result<bool, Cause> {
    let every = Timespec {
        tv_sec: 0,
        tv_nsec: if asked { EVERY_NS / 20 } else { EVERY_NS },
    };
    let stdin = io::stdin();
    let mut polled = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
    let polled = if asked {
        &mut polled[..0]
    } else {
        &mut polled[..]
    };
    match poll(polled, Some(&every)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
        Ok(_) => Ok(stdin.lock().fill_buf()?.is_empty()),
        Err(error) => Err(error.into()),
    }
}
