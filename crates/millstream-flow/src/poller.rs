//! The poller of a worker waits for sockets, for a deadline, or for another worker.
//!
//! Each worker owns one poller. A connector registers its sockets and receives a [`Readiness`]: a flag that
//! says whether a read may succeed. Registration is edge-triggered, so a flag stays up until the connector has
//! seen `WouldBlock` and lowers it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use timely::scheduling::Activator;

use crate::metrics::lag::LagGauge;

/// Whether a socket may have input.
#[derive(Clone, Debug)]
pub struct Readiness {
    ready: Rc<Cell<bool>>,
    token: usize,
}

impl Readiness {
    /// True if a read may succeed.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.ready.get()
    }
    /// Lowers the flag; must be called after `WouldBlock`.
    pub fn lower(&self) {
        self.ready.set(false);
    }
}

struct Slot {
    ready: Rc<Cell<bool>>,
    activator: Rc<Activator>,
}

type Slots = Rc<RefCell<Vec<Option<Slot>>>>;
type Wakes = Rc<RefCell<Vec<(Arc<AtomicBool>, Rc<Activator>)>>>;

/// Wakes a source from any thread, so that it is asked for a batch.
#[derive(Clone)]
pub struct Wake {
    called: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Wake {
    /// Wakes the source. Several calls before it is asked for a batch count as one.
    pub fn wake(&self) {
        if !self.called.swap(true, Ordering::SeqCst) {
            // It fails only after the worker has ended, and the source with it.
            let _ = self.waker.wake();
        }
    }
}

/// The access of a source to its worker's poller.
#[derive(Clone)]
pub struct Io {
    registry: Rc<Registry>,
    slots: Slots,
    activator: Rc<Activator>,
    waker: Arc<Waker>,
    wakes: Wakes,
    place: (usize, usize),
    /// The gauge of the partition that is being opened, if it was asked for.
    lag: Rc<RefCell<Option<LagGauge>>>,
}

impl Io {
    /// Returns the number of the worker that opens the source, from 0, and the number of workers.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn place(&self) -> (usize, usize) {
        self.place
    }

    /// Returns where the partition that is being opened reports its lag, from any thread.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn lag_gauge(&self) -> LagGauge {
        self.lag.borrow_mut().get_or_insert_default().clone()
    }

    /// Returns the gauge of the partition that was opened, if it asked for one.
    pub(crate) fn take_lag_gauge(&self) -> Option<LagGauge> {
        self.lag.borrow_mut().take()
    }

    /// Returns a handle that wakes the source from another thread.
    #[must_use]
    pub fn wake(&self) -> Wake {
        let called = Arc::new(AtomicBool::new(false));
        let activator = Rc::clone(&self.activator);
        self.wakes
            .borrow_mut()
            .push((Arc::clone(&called), activator));
        let waker = Arc::clone(&self.waker);
        Wake { called, waker }
    }

    /// As [`watch`](Self::watch), for a file descriptor: a socket, a pipe, an eventfd. Regular files cannot be
    /// watched.
    ///
    /// # Errors
    /// The descriptor is not open, or is of a kind that cannot be watched.
    pub fn watch_fd(&self, fd: RawFd) -> io::Result<Readiness> {
        self.watch(&mut SourceFd(&fd))
    }

    /// Runs the source again if the descriptor has input now, whether or not the input is new.
    ///
    /// # Errors
    /// The descriptor was closed.
    pub fn watch_fd_again(&self, fd: RawFd, readiness: &Readiness) -> io::Result<()> {
        let token = Token(readiness.token);
        let readable = Interest::READABLE;
        self.registry
            .reregister(&mut SourceFd(&fd), token, readable)
    }

    /// Stops watching a file descriptor.
    pub fn forget_fd(&self, fd: RawFd, readiness: &Readiness) {
        self.forget(&mut SourceFd(&fd), readiness);
    }

    /// Watches `socket` for input; its source runs when there is some.
    ///
    /// # Errors
    /// The error of the system, for instance that there are too many open files.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn watch(&self, socket: &mut impl Source) -> io::Result<Readiness> {
        let mut slots = self.slots.borrow_mut();
        let token = slots
            .iter()
            .position(Option::is_none)
            .unwrap_or(slots.len());
        self.registry
            .register(socket, Token(token), Interest::READABLE)?;
        let ready = Rc::new(Cell::new(true));
        let slot = Some(Slot {
            ready: Rc::clone(&ready),
            activator: Rc::clone(&self.activator),
        });
        match slots.get_mut(token) {
            Some(free) => *free = slot,
            None => slots.push(slot),
        }
        Ok(Readiness { ready, token })
    }

    /// Stops watching a socket and frees its slot.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn forget(&self, socket: &mut impl Source, readiness: &Readiness) {
        // It fails for a socket that is closed already, which needs no deregistration.
        let _ = self.registry.deregister(socket);
        if let Some(slot) = self.slots.borrow_mut().get_mut(readiness.token) {
            *slot = None;
        }
    }
}

/// A worker's poller.
pub(crate) struct Poller {
    poll: Poll,
    events: Events,
    registry: Rc<Registry>,
    slots: Slots,
    waker: Arc<Waker>,
    wakes: Wakes,
}

const WAKE: Token = Token(usize::MAX);

impl Poller {
    pub(crate) fn new() -> io::Result<(Self, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let registry = Rc::new(poll.registry().try_clone()?);
        let poller = Poller {
            poll,
            events: Events::with_capacity(256),
            registry,
            slots: Rc::default(),
            waker: Arc::clone(&waker),
            wakes: Rc::default(),
        };
        Ok((poller, waker))
    }

    pub(crate) fn io(&self, activator: Activator, place: (usize, usize)) -> Io {
        Io {
            registry: Rc::clone(&self.registry),
            slots: Rc::clone(&self.slots),
            activator: Rc::new(activator),
            waker: Arc::clone(&self.waker),
            wakes: Rc::clone(&self.wakes),
            place,
            lag: Rc::default(),
        }
    }

    /// Waits for input, for a wake-up or for `limit`, and activates the sources with input.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, limit) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let slots = self.slots.borrow();
        for event in &self.events {
            if let Some(Some(slot)) = slots.get(event.token().0) {
                slot.ready.set(true);
                slot.activator.activate();
            }
        }
        for (called, activator) in self.wakes.borrow().iter() {
            if called.load(Ordering::SeqCst) && called.swap(false, Ordering::SeqCst) {
                activator.activate();
            }
        }
        Ok(())
    }
}
