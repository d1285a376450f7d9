//! The loop of a runner: it takes the next input, calls the component, and makes a snapshot or an announcement when one
//! is due.

use std::time::Duration;

use millstream_journal::Wait;

use super::announce;
use super::asked::ASK_CHECK;
use super::following::INPUTS_AHEAD_MAX;
use super::state::{Runner, STOP_CHECK};
use crate::error::ServiceError;
use crate::inputs::inlet::Outcome;
use crate::panics;
use crate::recorded::schedule::Entry;
use crate::recorded::snapshot::Position;
use crate::settings::{Report, Stop};

/// How often a spinning runner finds no input before it reads the clock.
const SPINS: u32 = 1 << 20;

impl<C> Runner<C> {
    /// Takes one input, if there is one.
    ///
    /// # Errors
    /// The input cannot be taken and the policy is to fail; what the component called cannot be recorded.
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn turn(&mut self) -> Result<Outcome, ServiceError> {
        self.answer();
        let taken = match (&mut self.inlets[..], &self.timers[..]) {
            ([inlet], []) => {
                if self.durable {
                    inlet.make_durable()?;
                }
                let taken = inlet.take(&mut self.component, &mut self.progress)?;
                if let (Outcome::Nothing, Some(sampler)) = (taken, &mut self.progress.sampler) {
                    sampler.idle();
                }
                taken
            }
            _ => self.turn_of_several()?,
        };
        if taken == Outcome::Call {
            if let Some(following) = &mut self.following {
                following.took();
            }
            if let Some(snapshotter) = &mut self.snapshotter {
                snapshotter.since += 1;
                if snapshotter.since >= snapshotter.every {
                    self.take_snapshot()?;
                }
            } else if self.progress.report.calls.is_multiple_of(announce::CALLS) {
                self.announce()?;
            }
        }
        Ok(taken)
    }

    /// Makes a snapshot, if the component has been called since the last one.
    #[cold]
    fn take_snapshot(&mut self) -> Result<(), ServiceError> {
        let since = self
            .snapshotter
            .as_mut()
            .map(|snapshotter| &mut snapshotter.since);
        if since.map_or(0, std::mem::take) == 0 {
            return Ok(());
        }
        // A start from here finds the inputs and timers right there.
        let schedule = self.announce()?;
        let (Some(snapshotter), Some(snapshots), Some(output), Some(order)) = (
            &mut self.snapshotter,
            &mut self.snapshots,
            &self.output,
            &mut self.schedule,
        ) else {
            return Ok(());
        };
        let Some(schedule) = schedule else {
            return Ok(());
        };
        let places = self.announced.iter();
        let position = Position {
            time_ns: self.progress.time_ns(),
            outputs: output.journal.bookmark(output.journal.next()?)?,
            schedule: order.journal.bookmark(schedule + 1)?,
            inputs: places
                .map(|place| (place.input.clone(), place.bookmark()))
                .collect(),
            timers: self.progress.current.one_offs().pending(),
            version: snapshotter.version,
        };
        self.progress.current.close();
        let state = panics::call(&mut self.component, &mut snapshotter.save).map_err(|cause| {
            ServiceError::Unkept {
                output: output.journal.path().display().to_string(),
                cause,
            }
        })?;
        self.progress.check_silence(Some(&output.journal))?;
        snapshots.append(&position, &state)?;
        // With one input and no timer there is nothing to remove but announcements.
        if self.inlets.len() > 1 || !self.timers.is_empty() {
            order.pass(schedule)?;
        }
        // The last but one is needed when a loss of power has taken outputs away that the last one has seen.
        let places = self.announced.iter().map(|place| place.next).collect();
        if let Some(before) = self.last_snapshot.replace(places) {
            for (inlet, next) in self.inlets.iter().zip(before) {
                inlet.protect_from(next)?;
            }
        }
        Ok(())
    }

    fn turn_of_several(&mut self) -> Result<Outcome, ServiceError> {
        let is_replay = self.replay.is_some();
        let mut next: Option<(u64, usize, u32)> = None;
        for (at, inlet) in self.inlets.iter_mut().enumerate() {
            let time = if is_replay {
                inlet.peek()?
            } else {
                inlet.peek_order(&self.host)?
            };
            if let Some((time, checksum)) = time {
                next = next.into_iter().chain([(time, at, checksum)]).min();
            }
        }
        if is_replay {
            return match next {
                Some((_, at, _)) => self.take_from(at),
                None => Ok(Outcome::Nothing),
            };
        }
        if self.fire_due(next.map(|(time, ..)| time))? {
            return Ok(Outcome::Call);
        }
        let Some((_, at, checksum)) = next else {
            return Ok(Outcome::Nothing);
        };
        let input = at as u32;
        let sequence = self.inlets[at].position();
        if self.durable {
            self.inlets[at].make_durable()?;
        }
        if self.inlets[at].was_empty && self.schedule.is_some() {
            self.announce()?;
        }
        if let Some(schedule) = &self.schedule {
            schedule.append(&Entry::Record {
                input,
                sequence,
                checksum,
            })?;
        }
        self.inlets[at].take(&mut self.component, &mut self.progress)
    }

    /// Takes inputs until there are none.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn drain(&mut self) -> Result<Report, ServiceError> {
        self.follow(&Stop::default())?;
        while self.turn()? != Outcome::Nothing {
            if self.is_ahead() {
                self.follow(&Stop::default())?;
            }
        }
        self.follow(&Stop::default())?;
        self.take_snapshot()?;
        self.announce_end()?;
        self.move_cursor()?;
        Ok(self.progress.report)
    }

    /// Takes inputs, and waits for more, until it is stopped.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn run(&mut self, stop: &Stop) -> Result<Report, ServiceError> {
        self.follow(stop)?;
        while !stop.is_set() {
            let taken = self.turn()?;
            if taken == Outcome::Nothing || self.is_ahead() {
                self.follow(stop)?;
            }
            if taken == Outcome::Nothing {
                self.wait_for_input()?;
            }
        }
        self.take_snapshot()?;
        self.announce_end()?;
        self.move_cursor()?;
        Ok(self.progress.report)
    }

    /// Moves the cursor of this service to the end of its output, so that retention may remove old outputs.
    fn move_cursor(&mut self) -> Result<(), ServiceError> {
        if let (Some(output), true) = (&self.output, self.settings.wait != Wait::Spin) {
            let next = output.journal.next()?;
            if output.cursor.position()? != next {
                output.cursor.set(next)?;
            }
        }
        Ok(())
    }

    /// Waits until there may be an input, a twentieth of a second at most.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub fn wait_for_input(&mut self) -> Result<(), ServiceError> {
        self.progress.current.wait();
        self.move_cursor()?;
        self.check_silence()?;
        self.spins = self.spins.wrapping_add(1);
        if self.settings.wait != Wait::Spin || self.spins.is_multiple_of(SPINS) {
            self.announce_idle()?;
        }
        let look = if self.questions.is_some() {
            ASK_CHECK
        } else {
            STOP_CHECK
        };
        let mut limit = self.time_to_timer().min(look);
        let mut wait = self.settings.wait;
        if self.inlets.len() > 1 && wait != Wait::Spin {
            (wait, limit) = (Wait::BackOff, limit.min(Duration::from_millis(1)));
        }
        match (wait, self.inlets.first_mut()) {
            (Wait::Spin, _) => std::hint::spin_loop(),
            (wait, Some(inlet)) => {
                inlet.wait(wait, limit)?;
            }
            (_, None) => std::thread::park_timeout(limit),
        }
        Ok(())
    }

    /// Whether no more inputs should be taken before the [followers have the outputs](Self::wait_followed).
    #[inline]
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn is_ahead(&self) -> bool {
        let following = self.following.as_ref();
        following.is_some_and(|following| following.inputs >= INPUTS_AHEAD_MAX)
    }

    /// Whether there are followers to wait for.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn has_followers(&self) -> bool {
        self.following.is_some()
    }

    /// Waits until the followers have all outputs, for `limit` at most; true when they have, or when none are asked
    /// for.
    ///
    /// # Errors
    /// The output journal or the position of a follower cannot be read.
    pub fn wait_followed(&mut self, limit: Duration) -> Result<bool, ServiceError> {
        self.answer();
        match &mut self.following {
            Some(following) => following.wait(limit),
            None => Ok(true),
        }
    }

    /// Waits for the followers until the service is to stop.
    pub(super) fn follow(&mut self, stop: &Stop) -> Result<(), ServiceError> {
        while !self.wait_followed(STOP_CHECK)? && !stop.is_set() {}
        Ok(())
    }
}
