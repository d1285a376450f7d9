//! A start: the component comes to where it was before, and the service to behind the last input that has its effect.
//!
//! The state comes from a snapshot, if there are any; from there on from the component's own outputs, if it hears them, else from the
//! inputs, whose outputs are held back where they are there already.

use millstream_wire::Lineage;

use super::super::error::ServiceError;
use super::super::inlet::Taken;
use super::super::resume::Resume;
use super::super::schedule::Entry;
use super::super::snapshot::Position;
use super::{Runner, lost};

impl<C> Runner<C> {
    /// Brings the component to where it was before the restart.
    pub(super) fn catch_up(
        &mut self,
        resume: Option<&Resume>,
        inputs: &[String],
    ) -> Result<(), ServiceError> {
        let kept = self.restore(resume)?;
        self.hear_own(kept.as_ref(), resume)?;
        let mut entries = match &self.schedule {
            Some(schedule) => {
                schedule.entries(inputs, kept.as_ref().and_then(|kept| kept.schedule))?
            }
            None => return self.catch_up_alone(resume, kept.as_ref()),
        };
        while let Some((number, entry)) = entries.next()? {
            self.repeat(number, entry, inputs.len() as u32, resume)?;
        }
        match (resume, &self.progress.resume) {
            (Some(resume), Some(_)) => Err(self.lost(resume)),
            _ => Ok(()),
        }
    }

    fn lost(&self, resume: &Resume) -> ServiceError {
        lost(
            self.output.as_ref().map(|output| output.journal.path()),
            resume,
        )
    }

    /// Whether the component is called again with inputs whose effect is there.
    fn repeats(&self) -> bool {
        self.settings.rebuild && self.own.is_none()
    }

    /// Takes the state of the newest snapshot that is not ahead of any journal: a loss of power may have taken records away.
    fn restore(&mut self, resume: Option<&Resume>) -> Result<Option<Position>, ServiceError> {
        let (Some(keeper), Some(snapshots), Some(output)) =
            (&mut self.keeper, &self.snapshots, &self.output)
        else {
            return Ok(None);
        };
        let outputs = output.journal.next()?;
        let scheduled = self
            .schedule
            .as_ref()
            .map(|schedule| schedule.journal.next());
        let scheduled = scheduled.transpose()?;
        let mut ends = Vec::new();
        for inlet in &self.inlets {
            ends.push((&inlet.name, inlet.end()?));
        }
        let found = snapshots.newest(|kept| {
            let end = |name| ends.iter().find(|(known, _)| *known == name);
            kept.outputs <= outputs
                && kept
                    .schedule
                    .is_none_or(|at| scheduled.is_some_and(|end| at <= end))
                && kept
                    .inputs
                    .iter()
                    .all(|(name, at)| end(name).is_none_or(|(_, end)| at <= end))
        })?;
        let Some((kept, state, sequence)) = found else {
            return Ok(None);
        };
        (keeper.restore)(&mut self.component, &state)
            .map_err(|cause| snapshots.fault(sequence, cause))?;
        let mut covered = false;
        for (number, inlet) in (0..).zip(&mut self.inlets) {
            if let Some((_, at)) = kept.inputs.iter().find(|(name, _)| *name == inlet.name) {
                inlet.seek(*at)?;
                covered |= resume
                    .is_some_and(|it| it.lineage.input == number && it.lineage.sequence < *at);
            }
        }
        // The number behind those of the inputs is that of the schedule.
        covered |= resume.is_some_and(|it| {
            it.lineage.input as usize == self.inlets.len()
                && kept.schedule.is_some_and(|at| it.lineage.sequence < at)
        });
        if covered {
            self.progress.resume = None;
        }
        self.progress.go_on_at(kept.time_ns);
        Ok(Some(kept))
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
        match kept {
            Some(kept) => own.seek(kept.outputs)?,
            None if own.position() > 0 => {
                return Err(ServiceError::Pruned {
                    journal: own.name.clone(),
                    first: own.position(),
                });
            }
            None => {}
        }
        while own.position() < resume.first {
            if own.take(&mut self.component, &mut self.progress)? == Taken::Nothing {
                break;
            }
        }
        Ok(())
    }

    /// With one input, its own order is that in which it was taken.
    fn catch_up_alone(
        &mut self,
        resume: Option<&Resume>,
        kept: Option<&Position>,
    ) -> Result<(), ServiceError> {
        let repeats = self.repeats();
        let (Some(resume), Some(inlet), Some(_)) =
            (resume, self.inlets.first_mut(), &self.progress.resume)
        else {
            return Ok(());
        };
        if !repeats {
            inlet.seek(resume.lineage.sequence)?;
        } else if kept.is_none() && inlet.position() > 0 {
            return Err(ServiceError::Pruned {
                journal: inlet.name.clone(),
                first: inlet.position(),
            });
        }
        while self.progress.resume.is_some() {
            if inlet.take(&mut self.component, &mut self.progress)? == Taken::Nothing {
                return Err(self.lost(resume));
            }
        }
        Ok(())
    }

    /// Does again what the schedule says was done. `schedule` is the schedule's own number among the inputs.
    fn repeat(
        &mut self,
        number: u64,
        entry: Entry,
        schedule: u32,
        resume: Option<&Resume>,
    ) -> Result<(), ServiceError> {
        let lineage = match entry {
            Entry::Record { input, sequence } => Lineage { input, sequence },
            Entry::Timer { .. } => Lineage {
                input: schedule,
                sequence: number,
            },
        };
        let before =
            self.progress.resume.is_some() && resume.is_some_and(|it| it.lineage != lineage);
        let repeats = !before || self.repeats();
        match entry {
            Entry::Record { input, sequence } => {
                let inlet = &mut self.inlets[input as usize];
                let gone = inlet.position() > sequence;
                if repeats && gone {
                    return Err(ServiceError::Pruned {
                        journal: inlet.name.clone(),
                        first: inlet.position(),
                    });
                }
                if repeats {
                    inlet.seek(sequence)?;
                    inlet.take(&mut self.component, &mut self.progress)?;
                } else if !gone {
                    inlet.seek(sequence + 1)?;
                }
            }
            Entry::Timer { timer, time_ns } if repeats => {
                self.tick(timer as usize, lineage, time_ns)?;
            }
            Entry::Timer { .. } => {}
        }
        Ok(())
    }
}
