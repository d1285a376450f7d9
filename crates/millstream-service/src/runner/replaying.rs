//! The part of a runner that [replays](super::replay): recorded inputs in recorded order, and timers between them.

use millstream_wire::Lineage;

use super::state::Runner;
use crate::error::ServiceError;
use crate::inputs::inlet::Outcome;
use crate::recorded::schedule::Step;

impl<C> Runner<C> {
    /// Finds out which timers are recorded, before anything is called.
    pub(super) fn begin_replay(&mut self) -> Result<(), ServiceError> {
        let mut recorded = vec![false; self.timers.len()];
        if let (Some(schedule), Some(_)) = (&self.schedule, &self.replay) {
            let mut entries = schedule.entries(None)?;
            while let Some((_, step)) = entries.next()? {
                if let (Step::Announced, Some(announced)) = (step, entries.announced()) {
                    let timers = announced.timers.iter();
                    for timer in timers.filter_map(|timer| self.timer_named(&timer.name)) {
                        recorded[timer] = true;
                    }
                }
            }
        }
        if let Some(replay) = &mut self.replay {
            replay.recorded = recorded;
        }
        Ok(())
    }

    /// Ends a replay where the recorded order ends: the service has not taken later records.
    pub(super) fn end_replay(&mut self, is_implicit: bool) {
        if self.replay.is_some() && self.schedule.is_some() && !is_implicit {
            self.inlets.clear();
        }
    }

    /// Takes the next record of an input. In a replay, timers that are not recorded come due before it.
    pub(super) fn take_from(&mut self, number: usize) -> Result<Outcome, ServiceError> {
        if self.replay.is_some()
            && let Some((time_ns, _)) = self.inlets[number].peek()?
        {
            self.fire_until(i64::try_from(time_ns).unwrap_or(i64::MAX))?;
        }
        self.inlets[number].take(&mut self.component, &mut self.progress)
    }

    /// In a replay, calls the timers that are not recorded for each time that they come due until `time_ns`.
    pub(super) fn fire_until(&mut self, time_ns: i64) -> Result<(), ServiceError> {
        let Some(replay) = &mut self.replay else {
            return Ok(());
        };
        if !std::mem::replace(&mut replay.has_begun, true) {
            self.timers
                .iter_mut()
                .for_each(|timer| timer.begin(time_ns));
            // Those that are recorded are never due.
            for (timer, recorded) in self.timers.iter_mut().zip(&replay.recorded) {
                if *recorded {
                    timer.end();
                }
            }
            return Ok(());
        }
        while let Some(due) = self.next_due()
            && due.due_ns <= time_ns
            && due.due_ns < i64::MAX
        {
            self.timers[due.timer].take(due.due_ns);
            // No journal records it.
            let lineage = Lineage {
                input: self.inlets.len() as u32,
                sequence: 0,
                checksum: 0,
            };
            self.tick(due.timer, due.name.as_deref(), lineage, due.due_ns)?;
        }
        Ok(())
    }
}
