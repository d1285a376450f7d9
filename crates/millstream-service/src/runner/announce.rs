//! The position of a service in each of its inputs: recorded in its schedule, and as cursors of the inputs.
//!
//! A cursor follows the schedule, so that no record is pruned that a start needs. It is written when the service starts
//! and ends, with each snapshot, and rarely in between: a call does not wait for it.

use std::time::Duration;

use millstream_journal::{CursorMode, Error as JournalError};

use super::needs::Needs;
use super::state::Runner;
use crate::error::ServiceError;
use crate::inputs::inlet::Inlet;
use crate::inputs::names::{Names, name_of};
use crate::recorded::schedule::{Announcement, InputPosition, TimerPosition};

/// How many calls there are between two announcements of a service that is never idle; a power of two.
pub(super) const CALLS: u64 = 1 << 16;
/// The time between two announcements of a service that is idle at times.
const IDLE: Duration = Duration::from_secs(10);

impl<C> Runner<C> {
    /// Records the positions in the inputs; returns the number of the announcement in the schedule.
    #[cold]
    pub(super) fn announce(&mut self) -> Result<Option<u64>, ServiceError> {
        let timers = self.timer_positions();
        let (Some(schedule), Some(output)) = (&mut self.schedule, &self.output) else {
            return Ok(None);
        };
        let mut inputs = Vec::new();
        for inlet in &mut self.inlets {
            // Before the identity is read: that of a journal with records does not change.
            inlet.was_empty = inlet.end()? == 0;
            let at = inlet.bookmark()?;
            inputs.push(InputPosition {
                input: name_of(&inlet.journal)?,
                start: inlet.start,
                next: at.next,
                checksum: at.checksum,
            });
        }
        // An empty journal may have become a copy of one of the others.
        Names::new(self.inlets.iter().map(|inlet| &inlet.journal))?;
        let announcement = Announcement {
            outputs: output.journal.bookmark(output.journal.next()?)?,
            timers,
            gone: self.gone.clone(),
            inputs,
        };
        let number = schedule.announce(&announcement)?;
        let is_implicit = announcement.is_implicit();
        let mut inputs = self.announced.iter().zip(&announcement.inputs);
        if inputs.any(|(before, now)| before.input.identity != now.input.identity) {
            self.progress.current.rename_inputs();
        }
        self.announced_at = self.host.monotonic();
        self.announced = announcement.inputs;
        if self.needs == Needs::New {
            for (inlet, place) in self.inlets.iter().zip(&self.announced) {
                inlet.protect_from(place.next)?;
            }
            if !is_implicit {
                schedule.pass(number)?;
            }
        }
        Ok(Some(number))
    }

    fn timer_positions(&self) -> Vec<TimerPosition> {
        let timers = self.timers.iter();
        timers
            .map(|timer| TimerPosition {
                name: timer.name.clone(),
                next_ns: timer.next_ns(),
            })
            .collect()
    }

    /// Records the positions of an idle service, if they have changed and some time has passed.
    pub(super) fn announce_idle(&mut self) -> Result<(), ServiceError> {
        let now = self.host.monotonic();
        if self.schedule.is_none() || !self.has_moved() {
            return Ok(());
        }
        let first_taken = |inlet: &Inlet<C>| inlet.was_empty && inlet.position() > 0;
        if self.inlets.iter().any(first_taken) || now.saturating_sub(self.announced_at) > IDLE {
            self.announce()?;
        }
        Ok(())
    }

    /// Records the positions of a service that ends, if they have changed.
    pub(super) fn announce_end(&mut self) -> Result<(), ServiceError> {
        if self.has_moved() {
            self.announce()?;
        }
        Ok(())
    }

    /// Whether inputs have been taken since the last announcement.
    fn has_moved(&self) -> bool {
        let places = self.announced.iter().map(|place| place.next);
        !self.inlets.iter().map(|inlet| inlet.position()).eq(places)
    }

    /// Takes a cursor on each input, which is named after the output journal, and sets it to the first record that this
    /// way of rebuilding needs.
    pub(super) fn protect_inputs(&mut self) -> Result<(), ServiceError> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        let name = format!("service.{:016x}", output.journal.lineage()? >> 64);
        for inlet in &mut self.inlets {
            let known = inlet
                .journal
                .cursors()?
                .iter()
                .any(|cursor| cursor.name == name);
            let cursor = match inlet.journal.cursor(&name, CursorMode::Shared) {
                Err(JournalError::ReadOnly { .. }) => {
                    self.warnings.push(format!(
                        "{}: may only be read, so no cursor keeps its records from being pruned",
                        inlet.name
                    ));
                    continue;
                }
                cursor => cursor?,
            };
            let place = match self.needs {
                Needs::All => inlet.start,
                Needs::New => inlet.position(),
                Needs::Snapshots if known => cursor.position()?.min(inlet.position()),
                Needs::Snapshots => inlet.position().min(inlet.start.max(inlet.first()?)),
            };
            inlet.cursor = Some(cursor);
            inlet.protect_from(place)?;
        }
        Ok(())
    }
}
