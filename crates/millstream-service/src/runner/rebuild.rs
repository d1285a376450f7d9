//! The start of a service: the state of the component is rebuilt, and the service resumes after the last input that has
//! its effect.
//!
//! The state comes from a snapshot, if there is one; after it from the component's own outputs, if it is called with
//! them, else from the inputs, whose outputs are compared with the recorded ones and not recorded again. The
//! [schedule](crate::recorded::schedule) says in which order. Inputs and timers that the service has no longer are
//! skipped: their outputs stay.

use std::collections::BTreeMap;
use std::path::Path;

use millstream_journal::{Bookmark, Error as JournalError};
use millstream_wire::{InputName, Lineage};

use super::state::{GONE, Runner};
use crate::error::ServiceError;
use crate::inputs::inlet::{Inlet, Outcome};
use crate::inputs::names::{Names, same_directory};
use crate::outputs::difference::Differences;
use crate::outputs::earlier::{Earlier, Extent};
use crate::panics;
use crate::recorded::resume::Resume;
use crate::recorded::schedule::{Announcement, EntryId, InputPosition, Step};
use crate::recorded::snapshot::{Position, RestoreError};
use crate::settings::OnDifference;

/// The state of a start.
struct Past<'a> {
    resume: Option<&'a Resume>,
    /// The last announcement that is not ahead of the outputs: all effects of inputs before it are recorded.
    finished: Option<u64>,
    /// The current inputs and timers of those in the schedule.
    inputs: Vec<Option<u32>>,
    timers: Vec<Option<usize>>,
    /// Whether the order after the last announcement is that of the only input.
    is_implicit: Option<bool>,
    /// Whether the last entry was that of the last output, on an input that the service has no longer.
    at_gone: bool,
    /// Whether the state is that of a snapshot.
    is_restored: bool,
    /// Whether the order of the oldest calls has been pruned. Those are not repeated.
    is_unordered: bool,
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
        finished: Option<u64>,
        names: &Names,
    ) -> Result<(), ServiceError> {
        if let Some(resume) = resume {
            self.confirm_resume(resume)?;
        }
        self.progress.last = resume.map(|resume| resume.lineage);
        let kept = self.restore(resume, names)?;
        self.begin_again(kept.as_ref(), resume)?;
        self.hear_own(kept.as_ref(), resume)?;
        let mut past = Past {
            resume,
            finished,
            inputs: Vec::new(),
            timers: Vec::new(),
            is_implicit: None,
            at_gone: false,
            is_restored: kept.is_some(),
            skipped_ticks: BTreeMap::new(),
            is_unordered: false,
        };
        let from = kept.as_ref().map(|kept| kept.schedule.next - 1);
        if let Some(schedule) = &self.schedule {
            past.is_unordered = from.is_none() && schedule.is_pruned()?;
            if past.is_unordered && self.repeats() && !self.settings.skip_pruned {
                let first = schedule.journal.first()?;
                let missing = format!(
                    "its records before {first} have been pruned, and no snapshot has the state after them"
                );
                return Err(self.unordered(missing));
            }
            let mut entries = schedule.entries(from)?;
            while let Some((id, step)) = entries.next()? {
                if let Some(announced) = entries.announced() {
                    self.progress.is_finished = past.finished >= Some(id.sequence);
                    self.repeat(&mut past, announced, names, (id, step))?;
                }
            }
        }
        self.progress.is_finished = false;
        if let Some(output) = &self.output {
            self.warnings.extend(past.warnings(&output.journal.path()));
        }
        self.repeat_implicit(&past)?;
        self.warnings.extend(self.progress.end_again());
        self.end_replay(past.is_implicit != Some(false));
        for inlet in &self.inlets {
            // What comes next must be there, also for a service that had no output yet.
            inlet.needs(inlet.position())?;
        }
        Ok(())
    }

    /// The error for a last output whose cause the schedule does not have.
    fn without_entry(&self, resume: &Resume) -> ServiceError {
        self.unordered(format!(
            "the entry of record {} of {}, whose effect is the last output, is missing",
            resume.lineage.sequence, resume.input.path
        ))
    }

    /// Whether the component is called again with inputs whose effect is there.
    fn repeats(&self) -> bool {
        self.settings.rebuild && self.own.is_none()
    }

    /// Whether the component is called with this input: for its state, or because not all of its effects may be
    /// recorded.
    fn takes(&self, lineage: Lineage) -> bool {
        let is_before_last = self.progress.last.is_some_and(|last| last != lineage);
        self.repeats() || !(self.progress.is_finished || is_before_last)
    }

    /// From now on the component is called with earlier inputs.
    fn begin_again(
        &mut self,
        kept: Option<&Position>,
        resume: Option<&Resume>,
    ) -> Result<(), ServiceError> {
        let (Some(output), Some(schedule)) = (&self.output, &self.schedule) else {
            return Ok(());
        };
        let unfinished = self.settings.on_difference != OnDifference::Recorded;
        // A state that lacks pruned inputs has other outputs.
        let finished = unfinished && self.repeats() && !self.settings.skip_pruned;
        let from = match resume {
            _ if finished => kept.map_or(0, |kept| kept.outputs.next),
            Some(resume) => resume.first,
            None => output.journal.next()?,
        };
        let inputs = self.inlets.iter().map(|inlet| &inlet.journal);
        let earlier = Earlier::new(
            &output.journal,
            Names::new(inputs.chain([&schedule.journal]))?,
            Extent {
                from,
                finished,
                unfinished,
            },
        )?;
        let differences = Differences::new(&output.journal, &self.settings);
        self.progress
            .begin_again(earlier, differences, self.asked.take());
        Ok(())
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
            let restored = panics::call(&mut self.component, |component| {
                Ok((snapshotter.restore)(component, &state, kept.version))
            });
            match restored.unwrap_or_else(|panic| Err(RestoreError::Failed(panic))) {
                Ok(()) => {}
                Err(RestoreError::Unreadable(cause)) => {
                    let fault = snapshots.unreadable(sequence, &cause);
                    self.warnings
                        .push(format!("{fault}: the state is rebuilt from the inputs"));
                    self.unreadable = Some(fault);
                    return Ok(None);
                }
                Err(RestoreError::Failed(cause)) => {
                    return Err(snapshots.not_restored(sequence, cause));
                }
            }
            self.check_silence()?;
        }
        for (place, (_, at)) in places.into_iter().zip(&kept.inputs) {
            if let Some(number) = place {
                let inlet = &mut self.inlets[number as usize];
                inlet.seek(at.next)?;
                // Until the announcement of the snapshot says where it began.
                (inlet.placed, inlet.start) = (true, 0);
            }
        }
        if resume.is_some_and(|it| it.last < kept.outputs.next) {
            self.progress.last = None;
        }
        self.progress.go_on_at(kept.time_ns);
        self.restore_one_offs(&kept.timers);
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
        let first = schedule.journal.first()?;
        let found = snapshots.newest(|kept| {
            let inputs = kept.inputs.iter().filter_map(|(name, at)| {
                let place = names.find(name)?;
                Some((&self.inlets[place as usize].journal, *at))
            });
            let own = [
                (&output.journal, kept.outputs),
                (&schedule.journal, kept.schedule),
            ];
            for (journal, at) in own.into_iter().chain(inputs) {
                match journal.confirm(at) {
                    Ok(()) => {}
                    Err(JournalError::Lost { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(kept.schedule.next > first)
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

    /// Calls the component with its own outputs, but not with those of the last input if more of them may be missing:
    /// that one is repeated.
    fn hear_own(
        &mut self,
        kept: Option<&Position>,
        resume: Option<&Resume>,
    ) -> Result<(), ServiceError> {
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        let end = match (resume, self.progress.last) {
            (Some(resume), Some(_)) => resume.first,
            _ => own.end()?,
        };
        let time_ns = self.progress.time_ns();
        self.progress.is_finished = true;
        own.seek(kept.map_or(0, |kept| kept.outputs.next))?;
        while own.position() < end {
            if own.take(&mut self.component, &mut self.progress)? == Outcome::Nothing {
                break;
            }
        }
        // Outputs are later than their inputs, whose time the component sees.
        self.progress.go_on_at(time_ns);
        Ok(())
    }

    /// Repeats the calls in the schedule.
    fn repeat(
        &mut self,
        past: &mut Past<'_>,
        announced: &Announcement,
        names: &Names,
        (id, step): (EntryId, Step),
    ) -> Result<(), ServiceError> {
        if std::mem::take(&mut past.at_gone) {
            // Something came after it, so it had all its effects.
            self.progress.last = None;
        }
        match step {
            Step::Announced => self.renumber(past, announced, names),
            Step::Record {
                input,
                sequence,
                checksum,
            } => match past.inputs.get(input).copied().flatten() {
                Some(input) => self.repeat_record(Lineage {
                    input,
                    sequence,
                    checksum,
                }),
                None => {
                    if let Some(InputPosition { input: name, .. }) = announced.inputs.get(input) {
                        past.at_gone = past.resume.is_some_and(|it| {
                            it.lineage.input == GONE
                                && it.lineage.sequence == sequence
                                && it.is_of(name)
                        });
                        self.leave(name, sequence, Bookmark::after(sequence, checksum));
                    }
                    Ok(())
                }
            },
            Step::Timer {
                timer,
                time_ns,
                next,
            } => {
                let lineage = Lineage {
                    input: self.inlets.len() as u32,
                    sequence: id.sequence,
                    checksum: id.checksum,
                };
                let is_last = past.resume.is_some_and(|it| it.lineage == lineage);
                let takes = self.takes(lineage);
                let number = past.timers.get(timer).copied().flatten();
                if let (None, Some(timer)) = (number, announced.timers.get(timer)) {
                    *past.skipped_ticks.entry(timer.name.clone()).or_default() += 1;
                    let mut next = lineage;
                    next.sequence += 1;
                    self.progress.leave(next);
                }
                let name = self.recorded_tick(number, &next);
                match number {
                    Some(timer) if takes => {
                        self.fire_until(time_ns)?;
                        return self.tick(timer, name, lineage, time_ns);
                    }
                    // What this timer still had to do is not done by anything now.
                    None if is_last => self.progress.last = None,
                    _ => {}
                }
                self.progress.has_seen(time_ns);
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
        let was_implicit = past.is_implicit;
        let binds = self.binds(announced)?;
        let inputs = announced.inputs.iter();
        past.inputs = inputs.map(|place| names.find(&place.input)).collect();
        past.timers = self.announced_timers(announced);
        past.is_implicit = Some(announced.is_implicit());
        for (place, number) in announced.inputs.iter().zip(past.inputs.clone()) {
            match number {
                Some(number) => {
                    if binds {
                        self.confirm(&self.inlets[number as usize].journal, place.bookmark())?;
                    }
                    self.repeat_to(past, number, place, binds, was_implicit)?;
                }
                None => {
                    self.check_replaced(place)?;
                    self.pass(past, place);
                }
            }
        }
        for place in &announced.gone {
            match names.find(&place.input) {
                // It has been added again since, and the snapshot holds its earlier state.
                Some(number) if past.is_restored && !self.inlets[number as usize].placed => {
                    let inlet = &mut self.inlets[number as usize];
                    (inlet.start, inlet.placed) = (place.start, true);
                    inlet.go_to(place.next)?;
                    self.confirm(&self.inlets[number as usize].journal, place.bookmark())?;
                }
                Some(_) => {}
                None => self.pass(past, place),
            }
        }
        Ok(())
    }

    /// Refuses an input that another journal has replaced under its path: its records would be taken for those of the
    /// one before.
    fn check_replaced(&self, place: &InputPosition) -> Result<(), ServiceError> {
        let path = Path::new(&place.input.path);
        let replaced = |inlet: &&Inlet<C>| same_directory(path, &inlet.journal.path());
        match self.inlets.iter().find(replaced) {
            Some(inlet) if place.next > place.start => Err(ServiceError::Replaced {
                journal: inlet.name.clone(),
                taken: place.next,
                output: self.output_name(),
            }),
            _ => Ok(()),
        }
    }

    /// The path of the output.
    fn output_name(&self) -> String {
        let output = self.output.as_ref().map(|it| it.journal.path());
        output.unwrap_or_default().display().to_string()
    }

    /// Skips the records taken from an input that the service no longer has: all have had their effects.
    fn pass(&mut self, past: &Past<'_>, place: &InputPosition) {
        let is_done = past.resume.is_some_and(|it| {
            it.lineage.input == GONE && it.is_of(&place.input) && it.lineage.sequence < place.next
        });
        if is_done {
            self.progress.last = None;
        }
        self.leave(&place.input, place.start, place.bookmark());
    }

    /// Stores the position in an input that the service no longer has, if it took a record of it.
    fn leave(&mut self, input: &InputName, start: u64, at: Bookmark) {
        let Bookmark { next, checksum } = at;
        self.progress.leave_input(input.identity, next);
        let same = |place: &&mut InputPosition| place.input.identity == input.identity;
        match self.gone.iter_mut().find(same) {
            Some(place) if place.next >= next => {}
            Some(place) => (place.next, place.checksum) = (next, checksum),
            None if next == 0 => {}
            None => self.gone.push(InputPosition {
                input: input.clone(),
                start,
                next,
                checksum,
            }),
        }
    }

    /// Moves an input to its position in an announcement, if that binds. After an announcement with an implicit order,
    /// the records before the position have no entries.
    fn repeat_to(
        &mut self,
        past: &Past<'_>,
        number: u32,
        place: &InputPosition,
        binds: bool,
        was_implicit: Option<bool>,
    ) -> Result<(), ServiceError> {
        let repeats = self.repeats();
        let inlet = &mut self.inlets[number as usize];
        inlet.start = place.start;
        if !inlet.placed {
            // All that it ever took is needed; without a state only what has not had its effects.
            if past.is_unordered && repeats {
                inlet.go_to(place.next)?;
            } else if repeats || place.start >= inlet.first()? {
                inlet.seek(place.start)?;
            }
            inlet.placed = true;
        }
        if !repeats {
            return if binds {
                self.skip_to(number, place.next)
            } else {
                // A loss of power took outputs away: the last one that is left says where to go on.
                Ok(())
            };
        }
        let position = inlet.position();
        if was_implicit == Some(false) && binds && position < place.next {
            let missing = missing_entries(position, place.next, &inlet.name);
            return Err(self.unordered(missing));
        }
        while self.inlets[number as usize].position() < place.next {
            if self.take_from(number as usize)? == Outcome::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// Moves to `next` without calling the component: all records before have had their effects.
    fn skip_to(&mut self, number: u32, next: u64) -> Result<(), ServiceError> {
        let inlet = &mut self.inlets[number as usize];
        let next = next.min(inlet.end()?);
        // One that comes before the oldest record is found missing in the end, unless a later announcement is beyond.
        match next.checked_sub(1).filter(|last| *last >= inlet.position()) {
            Some(last) => self.pass_record(number, last),
            None if next < inlet.first()? => inlet.go_to(next),
            None => Ok(()),
        }
    }

    /// Moves to the record after this one, with which the component was called in an earlier run: it has seen its time.
    fn pass_record(&mut self, input: u32, sequence: u64) -> Result<(), ServiceError> {
        let inlet = &mut self.inlets[input as usize];
        if sequence >= inlet.first()? {
            inlet.go_to(sequence)?;
            if let Some((time_ns, _)) = inlet.peek()? {
                self.progress
                    .has_seen(i64::try_from(time_ns).unwrap_or(i64::MAX));
            }
        }
        inlet.go_to(sequence + 1)
    }

    /// Repeats the call of an entry.
    fn repeat_record(&mut self, lineage: Lineage) -> Result<(), ServiceError> {
        let Lineage {
            input, sequence, ..
        } = lineage;
        let takes = self.takes(lineage);
        let inlet = &mut self.inlets[input as usize];
        if inlet.placed && inlet.position() > sequence {
            return Ok(()); // a snapshot has it
        }
        if inlet.skip_pruned && sequence < inlet.first()? {
            inlet.placed = true;
            if self.progress.last == Some(lineage) {
                self.progress.last = None;
            }
            return Ok(());
        }
        let position = inlet.position();
        if inlet.placed && self.settings.rebuild && self.own.is_none() && position < sequence {
            let missing = missing_entries(position, sequence, &inlet.name);
            return Err(self.unordered(missing));
        }
        inlet.placed = true;
        if !takes && sequence < inlet.first()? {
            return inlet.go_to(sequence + 1);
        }
        // The records of an input have one entry after the other.
        if inlet.position() != sequence {
            inlet.seek(sequence)?;
        }
        let next = inlet.peek()?;
        let same = next.filter(|(_, checksum)| *checksum == lineage.checksum);
        let Some((time_ns, _)) = same else {
            let end = inlet.end()?;
            return Err(self.lost(&self.inlets[input as usize].journal, sequence, end));
        };
        if takes {
            return self.take_from(input as usize).map(drop);
        }
        // The component was called with it in an earlier run, and has seen its time.
        let time_ns = i64::try_from(time_ns).unwrap_or(i64::MAX);
        self.progress.has_seen(time_ns);
        self.inlets[input as usize].pass()
    }

    /// With one input, the rest was taken in the order of the input, after the entries of the schedule.
    fn repeat_implicit(&mut self, past: &Past<'_>) -> Result<(), ServiceError> {
        let (Some(resume), Some(_)) = (past.resume, self.progress.last) else {
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
            return Err(self.without_entry(resume));
        };
        if inlet.skip_pruned && resume.lineage.sequence < inlet.first()? {
            self.progress.last = None;
            return Ok(());
        }
        if !repeats {
            inlet.seek(resume.lineage.sequence)?;
        } else if !inlet.placed {
            // The input was empty at the last announcement and is another journal's copy now, or a loss of power took
            // the schedule away: the service began with the first record of all.
            inlet.start = 0;
            inlet.seek(0)?;
        }
        inlet.placed = true;
        while self.progress.last.is_some() {
            let inlet = &mut self.inlets[number as usize];
            if inlet.take(&mut self.component, &mut self.progress)? == Outcome::Nothing {
                let sequence = resume.lineage.sequence;
                let next = inlet.end()?;
                return Err(self.lost(&self.inlets[number as usize].journal, sequence, next));
            }
        }
        Ok(())
    }

    fn unfinished(&self, resume: &Resume) -> ServiceError {
        // Nothing but the wording depends on the path.
        if resume.input.path.ends_with(".schedule") {
            return self.without_entry(resume);
        }
        let output = self.output.as_ref().map(|output| output.journal.path());
        ServiceError::Unfinished {
            output: output.unwrap_or_default().display().to_string(),
            journal: resume.input.path.clone(),
            sequence: resume.lineage.sequence,
        }
    }
}

/// The records of an input of which the schedule does not say when they were taken.
fn missing_entries(from: u64, to: u64, input: &str) -> String {
    match to - from {
        1 => format!("the entry of record {from} of {input} is missing"),
        _ => format!(
            "the entries of the records {from} to {} of {input} are missing",
            to - 1
        ),
    }
}
