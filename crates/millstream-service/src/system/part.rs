//! One service of a program: its journals are open, its component is not made yet; then its component with its inputs.

use std::sync::Arc;
use std::time::Duration;

use millstream_journal::{Error as JournalError, Journal, Options};
use millstream_wire::{Cause, Dispatch, Interface, Publisher};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::order::{OnErrorOrder, Rebuild, ServiceOrder};
use super::report::Shared;
use crate::{Clock, OnError, Outlet, Service, ServiceError, Settings, Setup, Snapshot};

/// The interval between two checks for an input that does not exist yet.
const LOOK: Duration = Duration::from_millis(20);

/// A service of a system, before its component is created.
pub struct Part {
    service: Service,
    inputs: Vec<Journal>,
    order: ServiceOrder,
    shared: Arc<Shared>,
}

/// The component's inputs and outputs, once the inputs exist.
pub(super) struct Closed {
    order: ServiceOrder,
    shared: Arc<Shared>,
}

impl Part {
    /// The name of the service in the file of the system.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.order.name
    }

    /// A publisher for the component: what it calls is recorded in the output journal.
    ///
    /// # Errors
    /// The journal cannot be written; the interface contradicts itself; the file names no `out`.
    pub fn publisher<I: Interface + ?Sized>(&self) -> Result<Publisher<I, Outlet>, Cause> {
        self.service.publisher()
    }

    /// The time that the component may see.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.service.clock()
    }

    /// The component of the service.
    pub fn component<C: 'static>(self, component: C) -> Component<C> {
        Component {
            setup: self.service.component(component),
            inputs: self.inputs,
            order: self.order,
            shared: self.shared,
            keep: None,
            rebuild: None,
        }
    }
}

impl Closed {
    pub fn new(order: ServiceOrder, shared: Arc<Shared>) -> Self {
        Closed { order, shared }
    }

    /// Opens the journals; waits for inputs that do not exist yet.
    pub fn open(self) -> Result<Part, Cause> {
        let Self { order, shared } = self;
        let mut inputs = Vec::new();
        for path in &order.inputs {
            let options = Options {
                create: false,
                ..Options::default()
            };
            loop {
                match Journal::open(path, options.clone()) {
                    Err(JournalError::NotFound { .. }) if !shared.stop.is_set() => {
                        shared.meter.wait_for(Some(path.clone()));
                        std::thread::park_timeout(LOOK);
                    }
                    opened => break inputs.push(opened?),
                }
            }
            shared.meter.wait_for(None);
        }
        let service = match &order.out {
            Some(out) => Service::new(&Journal::open(out, order.output_options()?)?)?,
            None => Service::without_output(),
        };
        Ok(Part {
            service,
            inputs,
            order,
            shared,
        })
    }
}

type Keep<C> = fn(Setup<C>, u64) -> Setup<C>;
type Change<C> = Box<dyn FnOnce(Setup<C>) -> Result<Setup<C>, Cause>>;

/// A component of a system, to which its interfaces are added.
pub struct Component<C> {
    setup: Setup<C>,
    inputs: Vec<Journal>,
    order: ServiceOrder,
    shared: Arc<Shared>,
    /// How snapshots are made, so often.
    keep: Option<Keep<C>>,
    /// How the state is rebuilt from outputs.
    rebuild: Option<Change<C>>,
}

impl<C: 'static> Component<C> {
    /// Calls the component with the calls of this interface, in whichever input they are.
    ///
    /// # Errors
    /// As [`Setup::input`].
    pub fn input<I: Dispatch<C> + ?Sized + 'static>(mut self) -> Result<Self, Cause> {
        for journal in &self.inputs {
            self.setup = self.setup.input::<I>(journal)?;
        }
        Ok(self)
    }

    /// The component can save its state: `rebuild = "snapshot"` of the file needs it.
    #[must_use]
    pub fn snapshots(mut self) -> Self
    where
        C: Snapshot,
    {
        self.keep = Some(Setup::snapshots);
        self
    }

    /// The component can be called with its own outputs, as by [`Setup::rebuild_from`]: `rebuild = "outputs"` of the
    /// file needs it.
    #[must_use]
    pub fn rebuild_from<I: Dispatch<T> + ?Sized + 'static, T: ?Sized + 'static>(
        mut self,
        listener: impl Fn(&mut C) -> &mut T + Send + 'static,
    ) -> Self {
        let before = self.rebuild.take();
        self.rebuild = Some(Box::new(move |setup| {
            let setup = match before {
                Some(before) => before(setup)?,
                None => setup,
            };
            Ok(setup.rebuild_from::<I, T>(listener)?)
        }));
        self
    }

    /// Calls the component periodically, as [`Setup::every`].
    #[must_use]
    pub fn every(
        mut self,
        name: &str,
        period: Duration,
        call: impl FnMut(&mut C, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        self.setup = self.setup.every(name, period, call);
        self
    }

    /// Runs the service as the file says until the system stops it.
    ///
    /// # Errors
    /// As [`Setup::start`] and [`Runner::turn`](crate::Runner::turn); the file asks for a way to rebuild the state that
    /// the component has not got.
    pub fn run(self) -> Result<(), Cause> {
        let Self {
            mut setup,
            order,
            shared,
            keep,
            rebuild,
            ..
        } = self;
        match order.rebuild {
            Rebuild::Snapshot => {
                let keep =
                    keep.ok_or("rebuild = \"snapshot\" needs .snapshots() in the program")?;
                setup = keep(setup, order.snapshot_every);
            }
            Rebuild::Outputs => {
                let rebuild =
                    rebuild.ok_or("rebuild = \"outputs\" needs .rebuild_from() in the program")?;
                setup = rebuild(setup)?;
            }
            Rebuild::Inputs | Rebuild::Nothing => {}
        }
        let on_error = match (&order.dead_letters, order.on_error) {
            (Some(path), _) => OnError::DeadLetter(Journal::open(path, order.options()?)?),
            (None, OnErrorOrder::Skip) => OnError::Skip,
            (None, OnErrorOrder::Fail) => OnError::Fail,
        };
        let settings = Settings {
            wait: order.wait.into(),
            on_error,
            rebuild: order.rebuild != Rebuild::Nothing,
            followers: order.wait_follower,
            on_difference: order.on_difference.into(),
            accept_differences: order.accept_differences,
            ..Settings::default()
        };
        let stop = shared.stop.clone();
        let mut runner = match setup.stopped_by(move || stop.is_set()).start(settings) {
            Err(ServiceError::Stopped) => return Ok(()),
            started => started?,
        };
        for warning in runner.warnings() {
            tracing::warn!("{warning}");
        }
        pin(&order.cores)?;
        runner.run_with(&shared.stop, &shared.meter)?;
        Ok(())
    }
}

/// Pins this thread to these cores; to none when there are none. Threads that it has started before are not pinned.
///
/// # Errors
/// There is no such core.
#[doc(hidden)] // For the other crates of Millstream.
pub fn pin(cores: &[usize]) -> Result<(), Cause> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(format!("there is no core {core}").into());
        }
        set.set(*core);
    }
    let pinned = sched_setaffinity(None, &set);
    pinned.map_err(|error| format!("cannot stay on cores {cores:?}: {error}").into())
}
