//! How a worker waits: for sockets, for a moment in time, or for another worker.
//!
//! Each worker owns one poller. A connector registers its sockets and gets a [`Readiness`]: a
//! flag that says whether a read is worth trying. Registration is edge-triggered, so a flag stays
//! up until the connector has seen `WouldBlock` and lowers it.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use mio::event::Source;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use timely::scheduling::Activator;

/// Whether a socket may have input.
#[derive(Clone, Debug)]
pub struct Readiness {
    ready: Rc<Cell<bool>>,
    token: usize,
}

impl Readiness {
    /// True when a read is worth trying.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.ready.get()
    }
    /// To be called after `WouldBlock`.
    pub fn lower(&self) {
        self.ready.set(false);
    }
}

struct Slot {
    ready: Rc<Cell<bool>>,
    activator: Rc<Activator>,
}

type Slots = Rc<RefCell<Vec<Option<Slot>>>>;

/// A source's hold on its worker's poller.
#[derive(Clone)]
pub struct Io {
    registry: Rc<Registry>,
    slots: Slots,
    activator: Rc<Activator>,
}

impl Io {
    /// Watches `socket` for input; its source runs when there is some.
    ///
    /// # Errors
    /// What the system says, for instance that there are too many open files.
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

    /// Stops watching a socket, which frees its place.
    pub fn forget(&self, socket: &mut impl Source, readiness: &Readiness) {
        // It fails for a socket that is closed already, which is what was wanted.
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
}

const WAKE: Token = Token(usize::MAX);

impl Poller {
    pub(crate) fn new() -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let registry = Rc::new(poll.registry().try_clone()?);
        let poller = Poller {
            poll,
            events: Events::with_capacity(256),
            registry,
            slots: Rc::default(),
        };
        Ok((poller, waker))
    }

    pub(crate) fn io(&self, activator: Activator) -> Io {
        Io {
            registry: Rc::clone(&self.registry),
            slots: Rc::clone(&self.slots),
            activator: Rc::new(activator),
        }
    }

    /// Waits for input, for a wake-up or for `limit`, and puts the sources with input on the list
    /// of what is to run.
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
        Ok(())
    }
}
