//! The start of a service: the state of the component is rebuilt, and the service resumes after the last input that has its effect.
//!
//! The state comes from a snapshot, if there is one; after it from the component's own outputs, if it is called with them, else from the
//! inputs, whose outputs are suppressed where they are recorded already. The [schedule](crate::recorded::schedule) says in which order. Inputs
//! and timers that the service has no longer are skipped: their outputs stay.

use std::collections::BTreeMap;
use std::path::Path;

use millstream_wire::{InputName, Lineage};

use super::state::{GONE, Runner};
use crate::error::ServiceError;
use crate::inputs::inlet::{Inlet, Outcome};
use crate::inputs::names::Names;
use crate::recorded::resume::Resume;
use crate::recorded::schedule::{Announcement, InputPosition, Step};
use crate::recorded::snapshot::Position;

/// The state of a start.
struct Past<'a> {
    resume: Option<&'a Resume>,
    /// The current inputs and timers of those in the schedule.
    inputs: Vec<Option<u32>>,
    timers: Vec<Option<usize>>,
    /// Whether the order after the last announcement is that of the only input.
    is_implicit: Option<bool>,
    /// Whether the last entry was that of the last output, on an input that the service has no longer.
    at_gone: bool,
    /// Whether the state is that of a snapshot.
    is_restored: bool,
    /// The ticks after the snapshot that are not repeated, by timer: the service does not have the timer any longer.
    skipped_ticks: BTreeMap<String, u64>,
}

impl Past<'_> {
    /// Which ticks are missing from a state that has earlier ones of the same timer.
    fn warnings(&self, output: &Path) -> Vec<String> {
        let skipped = self.skipped_ticks.iter().filter(|_| self.is_restored);
        let warning = |(timer, count): (&String, &u64)| {
            format!(
                "{}: the state is without the {count} tick(s) of the timer {timer} after the last snapshot, for the service does not have this \
                 timer any longer. Stop a service before you take a timer away",
                output.display()
            )
        };
        skipped.map(warning).collect()
    }
}

/// A snapshot, the current numbers of its inputs, its state, and its number.
type RestoredSnapshot = (Position, Vec<Option<u32>>, Vec<u8>, u64);

impl<C> Runner<C> {
    /// Rebuilds the state that the component had before the restart.
    pub(super) fn catch_up(
        &mut self,
        resume: Option<&Resume>,
        names: &Names,
    ) -> Result<(), ServiceError> {
        let kept = self.restore(resume, names)?;
        self.hear_own(kept.as_ref(), resume)?;
        let mut past = Past {
            resume,
            inputs: Vec::new(),
            timers: Vec::new(),
            is_implicit: None,
            at_gone: false,
            is_restored: kept.is_some(),
            skipped_ticks: BTreeMap::new(),
        };
        let from = kept.as_ref().map(|kept| kept.schedule);
        if let Some(schedule) = &self.schedule {
            let mut entries = schedule.entries(from)?;
            while let Some((number, step)) = entries.next()? {
                if let Some(announced) = entries.announced() {
                    self.repeat(&mut past, announced, names, (number, step))?;
                }
            }
        }
        if let Some(output) = &self.output {
            self.warnings.extend(past.warnings(&output.journal.path()));
        }
        self.repeat_implicit(&past)?;
        self.end_replay(past.is_implicit != Some(false));
        for inlet in &self.inlets {
            // What comes next must be there, also for a service that had no output yet.
            inlet.needs(inlet.position())?;
        }
        Ok(())
    }

    fn lost(&self, resume: &Resume) -> ServiceError {
        let output = self.output.as_ref().map(|it| it.journal.path());
        ServiceError::Lost {
            output: output.unwrap_or_default().display().to_string(),
            journal: resume.input.path.clone(),
            sequence: resume.lineage.sequence,
        }
    }

    /// Whether the component is called again with inputs whose effect is there.
    fn repeats(&self) -> bool {
        self.settings.rebuild && self.own.is_none()
    }

    /// Whether the last input with an effect was not repeated yet.
    fn is_before(&self, resume: Option<&Resume>, lineage: Lineage) -> bool {
        self.progress.resume.is_some() && resume.is_some_and(|it| it.lineage != lineage)
    }

    /// Restores the newest snapshot that is not ahead of any journal: a loss of power may have removed records.
    fn restore(
        &mut self,
        resume: Option<&Resume>,
        names: &Names,
    ) -> Result<Option<Position>, ServiceError> {
        let Some((kept, places, state, sequence)) = self.newest_snapshot(names)? else {
            return Ok(None);
        };
        if let (Some(snapshotter), Some(snapshots)) = (&mut self.snapshotter, &self.snapshots) {
            (snapshotter.restore)(&mut self.component, &state)
                .map_err(|cause| snapshots.fault(sequence, cause))?;
        }
        let mut covered = false;
        for (place, (name, at)) in places.into_iter().zip(&kept.inputs) {
            covered |= resume.is_some_and(|it| {
                let same = match place {
                    Some(number) => it.lineage.input == number,
                    None => it.lineage.input == GONE && it.is_of(name),
                };
                same && it.lineage.sequence < *at
            });
            if let Some(number) = place {
                let inlet = &mut self.inlets[number as usize];
                inlet.seek(*at)?;
                // Until the announcement of the snapshot says where it began.
                (inlet.placed, inlet.start) = (true, 0);
            }
        }
        // The number after those of the inputs is that of the schedule.
        covered |= resume.is_some_and(|it| {
            it.lineage.input as usize == self.inlets.len() && it.lineage.sequence < kept.schedule
        });
        if covered {
            self.progress.resume = None;
        }
        self.progress.go_on_at(kept.time_ns);
        // The next snapshot makes this one the last but one.
        self.last_snapshot = Some(self.inlets.iter().map(Inlet::position).collect());
        Ok(Some(kept))
    }

    /// The newest snapshot that fits the journals, the current numbers of its inputs, its state and its number.
    fn newest_snapshot(&self, names: &Names) -> Result<Option<RestoredSnapshot>, ServiceError> {
        let (Some(snapshots), Some(output), Some(schedule)) =
            (&self.snapshots, &self.output, &self.schedule)
        else {
            return Ok(None);
        };
        let (outputs, scheduled) = (output.journal.next()?, schedule.journal.next()?);
        let ends: Result<Vec<u64>, ServiceError> = self.inlets.iter().map(Inlet::end).collect();
        let ends = ends?;
        let found = snapshots.newest(|kept| {
            let has_input = |(name, at): &(InputName, u64)| {
                names
                    .find(name)
                    .is_none_or(|place| *at <= ends[place as usize])
            };
            kept.outputs <= outputs
                && kept.schedule <= scheduled
                && kept.inputs.iter().all(has_input)
        })?;
        Ok(found.map(|(kept, state, sequence)| {
            let places = kept
                .inputs
                .iter()
                .map(|(name, _)| names.find(name))
                .collect();
            (kept, places, state, sequence)
        }))
    }

    /// Calls the component with its own outputs, up to those of the last input: that one is repeated.
    fn hear_own(
        &mut self,
        kept: Option<&Position>,
        resume: Option<&Resume>,
    ) -> Result<(), ServiceError> {
        let (Some(own), Some(resume), Some(_)) = (&mut self.own, resume, &self.progress.resume)
        else {
            return Ok(());
        };
        own.seek(kept.map_or(0, |kept| kept.outputs))?;
        while own.position() < resume.first {
            if own.take(&mut self.component, &mut self.progress)? == Outcome::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Repeats the calls in the schedule.
    fn repeat(
        &mut self,
        past: &mut Past<'_>,
        announced: &Announcement,
        names: &Names,
        (number, step): (u64, Step),
    ) -> Result<(), ServiceError> {
        if std::mem::take(&mut past.at_gone) {
            // Something came after it, so it had all its effects.
            self.progress.resume = None;
        }
        match step {
            Step::Announced => self.renumber(past, announced, names),
            Step::Record { input, sequence } => match past.inputs.get(input).copied().flatten() {
                Some(input) => self.repeat_record(past, Lineage { input, sequence }),
                None => {
                    if let Some(InputPosition { input: name, .. }) = announced.inputs.get(input) {
                        past.at_gone = past.resume.is_some_and(|it| {
                            it.lineage.input == GONE
                                && it.lineage.sequence == sequence
                                && it.is_of(name)
                        });
                        self.leave(name, sequence, sequence + 1);
                    }
                    Ok(())
                }
            },
            Step::Timer { timer, time_ns } => {
                let lineage = Lineage {
                    input: self.inlets.len() as u32,
                    sequence: number,
                };
                let is_last = past.resume.is_some_and(|it| it.lineage == lineage);
                let repeats = self.repeats() || !self.is_before(past.resume, lineage);
                let number = past.timers.get(timer).copied().flatten();
                if let (None, Some(name)) = (number, announced.timers.get(timer)) {
                    *past.skipped_ticks.entry(name.clone()).or_default() += 1;
                }
                match number {
                    Some(timer) if repeats => {
                        self.fire_until(time_ns)?;
                        return self.tick(timer, lineage, time_ns);
                    }
                    // What this timer still had to do is not done by anything now.
                    None if is_last => self.progress.resume = None,
                    _ => {}
                }
                Ok(())
            }
        }
    }

    /// Inputs and timers have new numbers. Calls before it in the order of an only input are repeated first.
    fn renumber(
        &mut self,
        past: &mut Past<'_>,
        announced: &Announcement,
        names: &Names,
    ) -> Result<(), ServiceError> {
        let inputs = announced.inputs.iter();
        past.inputs = inputs.map(|place| names.find(&place.input)).collect();
        let timers = announced.timers.iter();
        past.timers = timers.map(|name| self.timer_named(name)).collect();
        past.is_implicit = Some(announced.is_implicit());
        for (place, number) in announced.inputs.iter().zip(past.inputs.clone()) {
            match number {
                Some(number) => self.repeat_to(past, number, place, announced.outputs)?,
                None => self.pass(past, place),
            }
        }
        for place in &announced.gone {
            match names.find(&place.input) {
                // It has been added again since, and the snapshot holds its earlier state.
                Some(number) if past.is_restored && !self.inlets[number as usize].placed => {
                    let inlet = &mut self.inlets[number as usize];
                    (inlet.start, inlet.placed) = (place.start, true);
                    inlet.go_to(place.next)?;
                }
                Some(_) => {}
                None => self.pass(past, place),
            }
        }
        Ok(())
    }

    /// Skips the records taken from an input that the service no longer has: all have had their effects.
    fn pass(&mut self, past: &Past<'_>, place: &InputPosition) {
        let is_done = past.resume.is_some_and(|it| {
            it.lineage.input == GONE && it.is_of(&place.input) && it.lineage.sequence < place.next
        });
        if is_done {
            self.progress.resume = None;
        }
        self.leave(&place.input, place.start, place.next);
    }

    /// Stores the position in an input that the service no longer has, if it took a record of it.
    fn leave(&mut self, input: &InputName, start: u64, next: u64) {
        let same = |place: &&mut InputPosition| place.input.identity == input.identity;
        match self.gone.iter_mut().find(same) {
            Some(place) => place.next = place.next.max(next),
            None if next == 0 => {}
            None => self.gone.push(InputPosition {
                input: input.clone(),
                start,
                next,
            }),
        }
    }

    /// Moves an input to its position in an announcement; `outputs` existed then.
    fn repeat_to(
        &mut self,
        past: &Past<'_>,
        number: u32,
        place: &InputPosition,
        outputs: u64,
    ) -> Result<(), ServiceError> {
        let repeats = self.repeats();
        let has_outputs = match &self.output {
            Some(output) => outputs <= output.journal.next()?,
            None => true,
        };
        let inlet = &mut self.inlets[number as usize];
        inlet.start = place.start;
        if !inlet.placed {
            // All that it ever took is needed; without a state only what has not had its effects.
            if repeats || place.start >= inlet.first()? {
                inlet.seek(place.start)?;
            }
            inlet.placed = true;
        }
        if !repeats {
            return match has_outputs {
                true => self.skip_to(past, number, place.next),
                // A loss of power took outputs away: the last one that is left says where to go on.
                false => Ok(()),
            };
        }
        while self.inlets[number as usize].position() < place.next {
            if self.take_from(number as usize)? == Outcome::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Moves to `next` without calling the component: all records before have had their effects. Only the last input with an output is
    /// repeated, if it is still there.
    fn skip_to(&mut self, past: &Past<'_>, number: u32, next: u64) -> Result<(), ServiceError> {
        let pending = self.progress.resume.is_some();
        let resume = past
            .resume
            .filter(|it| pending && it.lineage.input == number);
        let inlet = &mut self.inlets[number as usize];
        if let Some(resume) = resume.filter(|it| it.lineage.sequence < next) {
            if resume.lineage.sequence >= inlet.first()? {
                inlet.seek(resume.lineage.sequence)?;
                inlet.take(&mut self.component, &mut self.progress)?;
            } else {
                self.progress.resume = None;
            }
        }
        let inlet = &mut self.inlets[number as usize];
        let next = next.min(inlet.end()?);
        // One that comes before the oldest record is found missing in the end, unless a later announcement is beyond.
        if next > inlet.position() || next < inlet.first()? {
            inlet.go_to(next)?;
        }
        Ok(())
    }

    /// Repeats the call of an entry.
    fn repeat_record(&mut self, past: &Past<'_>, lineage: Lineage) -> Result<(), ServiceError> {
        let Lineage { input, sequence } = lineage;
        let repeats = self.repeats() || !self.is_before(past.resume, lineage);
        let inlet = &mut self.inlets[input as usize];
        if inlet.placed && inlet.position() > sequence {
            return Ok(()); // a snapshot has it
        }
        if inlet.skip_pruned && sequence < inlet.first()? {
            inlet.placed = true;
            if past.resume.is_some_and(|it| it.lineage == lineage) {
                self.progress.resume = None;
            }
            return Ok(());
        }
        if !repeats {
            inlet.go_to(sequence + 1)?;
            inlet.placed = true;
            return Ok(());
        }
        inlet.seek(sequence)?;
        inlet.placed = true;
        self.take_from(input as usize)?;
        Ok(())
    }

    /// With one input, the rest was taken in the order of the input, after the entries of the schedule.
    fn repeat_implicit(&mut self, past: &Past<'_>) -> Result<(), ServiceError> {
        let (Some(resume), Some(_)) = (past.resume, &self.progress.resume) else {
            return Ok(());
        };
        let number = resume.lineage.input;
        if number == GONE {
            return Err(self.unfinished(resume));
        }
        // After a loss of power that took the schedule away, the outputs say how many inputs there were.
        let is_implicit = past.is_implicit.unwrap_or(resume.inputs == 1);
        let repeats = self.repeats();
        let Some(inlet) = self.inlets.get_mut(number as usize).filter(|_| is_implicit) else {
            return Err(self.lost(resume));
        };
        if inlet.skip_pruned && resume.lineage.sequence < inlet.first()? {
            self.progress.resume = None;
            return Ok(());
        }
        if !repeats {
            inlet.seek(resume.lineage.sequence)?;
        } else if !inlet.placed {
            // The input was empty at the last announcement and is another journal's copy now, or a loss of power took the schedule
            // away: the service began with the first record of all.
            inlet.start = 0;
            inlet.seek(0)?;
        }
        inlet.placed = true;
        while self.progress.resume.is_some() {
            let inlet = &mut self.inlets[number as usize];
            if inlet.take(&mut self.component, &mut self.progress)? == Outcome::Nothing {
                return Err(self.lost(resume));
            }
        }
        Ok(())
    }

    fn unfinished(&self, resume: &Resume) -> ServiceError {
        // Nothing but the wording depends on the path.
        if resume.input.path.ends_with(".schedule") {
            return self.lost(resume);
        }
        let output = self.output.as_ref().map(|output| output.journal.path());
        ServiceError::Unfinished {
            output: output.unwrap_or_default().display().to_string(),
            journal: resume.input.path.clone(),
            sequence: resume.lineage.sequence,
        }
    }
}
