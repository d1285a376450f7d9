//! A service before it has a component: its output, and the clock that the component sees.

use std::path::Path;
use std::sync::Arc;

use millstream_journal::{CursorMode, Error as JournalError, Journal};
use millstream_wire::{Cause, Interface, Publisher};

use super::output::Output;
use super::replay::Replay;
use crate::error::ServiceError;
use crate::outputs::current::{Clock, Current, Timers};
use crate::outputs::outlet::Outlet;
use crate::recorded::schedule::Schedule;

/// A service before it has a component: the outputs that the component is made with.
pub struct Service {
    pub(super) current: Arc<Current>,
    pub(super) output: Option<Output>,
    /// The recorded order, when this is a replay.
    pub(super) replay: Option<Replay>,
}

impl Service {
    /// A service that writes to this journal.
    ///
    /// # Errors
    /// Another one does already.
    pub fn new(output: &Journal) -> Result<Self, ServiceError> {
        let cursor = output.cursor("service", CursorMode::Exclusive);
        let cursor = cursor.map_err(|error| match error {
            JournalError::CursorInUse { path, .. } => ServiceError::InUse {
                output: path.display().to_string(),
            },
            other => other.into(),
        })?;
        let journal = output.clone();
        Ok(Self {
            current: Arc::default(),
            output: Some(Output { journal, cursor }),
            replay: None,
        })
    }

    /// A service whose outputs go nowhere or to a [`Recorder`](millstream_wire::Recorder): to replay inputs. It takes
    /// all existing records.
    #[must_use]
    pub fn without_output() -> Self {
        Self {
            current: Arc::default(),
            output: None,
            replay: None,
        }
    }

    /// A publisher for the component: what it calls is recorded in the output journal.
    ///
    /// # Errors
    /// The journal cannot be written; the interface contradicts itself; there is no output.
    pub fn publisher<I: Interface + ?Sized>(&self) -> Result<Publisher<I, Outlet>, Cause> {
        Publisher::new(self.outlet()?)
    }

    /// A publisher's end of the output journal.
    ///
    /// # Errors
    /// The journal cannot be written; there is no output.
    pub fn outlet(&self) -> Result<Outlet, Cause> {
        let output = self
            .output
            .as_ref()
            .ok_or("a service without output has no publishers")?;
        Ok(Outlet::new(&output.journal, Arc::clone(&self.current))?)
    }

    /// The recorded time, the only one that the component may use.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock {
            current: Arc::clone(&self.current),
        }
    }

    /// The one-off timers of the component.
    #[must_use]
    pub fn timers(&self) -> Timers {
        self.clock().timers()
    }

    /// A service that repeats the calls of another one without recording them: that one writes, or wrote, to the
    /// journal `output`. Without one, or without its schedule, inputs are merged by the times of their records, and
    /// timers fire by these times.
    ///
    /// Its runner takes the recorded calls when it starts, and then later records in the order of the only input.
    ///
    /// # Errors
    /// The schedule cannot be read.
    pub fn replaying(output: Option<&Path>) -> Result<Self, ServiceError> {
        let schedule = match output {
            Some(output) => Schedule::recorded(output)?,
            None => None,
        };
        Ok(Self {
            replay: Some(Replay {
                schedule,
                ..Replay::default()
            }),
            ..Self::without_output()
        })
    }

    /// Whether this is a replay in a recorded order.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn is_recorded(&self) -> bool {
        let replay = self.replay.as_ref();
        replay.is_some_and(|replay| replay.schedule.is_some())
    }
}
