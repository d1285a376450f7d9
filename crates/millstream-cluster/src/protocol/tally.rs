//! Which epochs all processes have prepared.

/// The prepared epochs of each process.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    processes: Vec<Prepared>,
    /// The last epoch that all have prepared.
    decided: u64,
}

#[derive(Clone, Debug)]
struct Prepared {
    /// The last prepared epoch.
    epoch: u64,
    /// The epochs after the last decided one in which the process has changes.
    changed: Vec<u64>,
    /// The epoch after which the process has no parts.
    last: Option<u64>,
}

/// An epoch that all processes have prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) epoch: u64,
    pub(super) changed: Vec<bool>,
    pub(super) last: bool,
}

impl Tally {
    /// Of a run whose epochs follow `epoch`.
    pub(super) fn new(processes: usize, epoch: u64) -> Self {
        let none = Prepared {
            epoch,
            changed: Vec::new(),
            last: None,
        };
        Tally {
            processes: vec![none; processes],
            decided: epoch,
        }
    }

    /// A process has prepared an epoch.
    ///
    /// # Errors
    /// It is not the one after the last that the process has prepared, or the process had no more parts.
    pub(super) fn prepared(
        &mut self,
        process: usize,
        epoch: u64,
        changed: bool,
        last: bool,
    ) -> Result<(), String> {
        let this = &mut self.processes[process];
        if epoch != this.epoch + 1 || this.last.is_some() {
            return Err(format!(
                "it has prepared epoch {epoch} after epoch {}{}",
                this.epoch,
                if this.last.is_some() {
                    ", its last"
                } else {
                    ""
                }
            ));
        }
        this.epoch = epoch;
        if changed {
            this.changed.push(epoch);
        }
        this.last = last.then_some(epoch);
        Ok(())
    }

    /// The next epoch, if all have prepared it or an earlier one as their last.
    pub(super) fn decide(&mut self) -> Option<Decided> {
        let epoch = self.decided + 1;
        let has = |this: &Prepared| this.epoch >= epoch || this.last.is_some();
        let ready = self.processes.iter().all(has);
        if !ready || self.processes.iter().all(|this| this.epoch < epoch) {
            return None;
        }
        self.decided = epoch;
        let mut changed = Vec::new();
        for this in &mut self.processes {
            changed.push(this.changed.contains(&epoch));
            this.changed.retain(|later| *later > epoch);
        }
        let ended = |this: &Prepared| this.last.is_some_and(|last| last <= epoch);
        let last = self.processes.iter().all(ended);
        Some(Decided {
            epoch,
            changed,
            last,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_decided_when_all_have_prepared_it_or_their_last() {
        let mut tally = Tally::new(3, 10);
        tally.prepared(0, 11, false, false).unwrap();
        tally.prepared(1, 11, true, true).unwrap();
        assert_eq!(tally.decide(), None);
        tally.prepared(2, 11, false, false).unwrap();
        let decided = tally.decide().unwrap();
        assert_eq!((decided.epoch, decided.last), (11, false));
        assert_eq!(decided.changed, [false, true, false]);
        assert_eq!(tally.decide(), None);
        tally.prepared(2, 12, true, true).unwrap();
        assert_eq!(tally.decide(), None);
        tally.prepared(0, 12, false, true).unwrap();
        let decided = tally.decide().unwrap();
        assert_eq!((decided.epoch, decided.last), (12, true));
        assert_eq!(decided.changed, [false, false, true]);
        assert_eq!(tally.decide(), None);
    }

    #[test]
    fn epochs_come_in_order() {
        let mut tally = Tally::new(2, 0);
        assert!(tally.prepared(1, 2, false, false).is_err());
        tally.prepared(1, 1, false, true).unwrap();
        assert!(tally.prepared(1, 1, false, false).is_err());
        let error = tally.prepared(1, 2, false, false).unwrap_err();
        assert!(error.contains("its last"), "{error}");
    }
}
