//! What process 0 has decided, from outside: the judge of what each process has committed.

use super::disk::{Disk, Record};
use crate::crash::Broken;

/// A flow continues after a crash as if there had been none.
const PROMISE: u32 = 9;

/// The epochs that process 0 has committed, with the value of each process that had changes.
#[derive(Debug, Default)]
pub(super) struct Judge {
    decided: Vec<(u64, Vec<Option<u64>>)>,
}

pub(super) fn broken(what: String) -> Broken {
    Broken {
        promise: PROMISE,
        what,
    }
}

impl Judge {
    /// The last decided epoch.
    pub(super) fn last(&self) -> u64 {
        self.decided.last().map_or(0, |(epoch, _)| *epoch)
    }

    /// The commit record of process 0 is durable. Each process with changes must have its prepared record durable.
    pub(super) fn decide(
        &mut self,
        epoch: u64,
        run: u64,
        changed: &[bool],
        disks: &[&Disk],
        values: impl Fn(usize) -> Option<u64>,
    ) -> Result<(), Broken> {
        if epoch <= self.last() {
            let last = self.last();
            return Err(broken(format!("epoch {epoch} is committed after {last}")));
        }
        let mut kept = Vec::new();
        for (process, changed) in changed.iter().enumerate() {
            let value = values(process);
            let has = |value: u64| {
                process == 0 || disks[process].is_durable(&Record::Prepared { epoch, run, value })
            };
            match (changed, value) {
                (true, Some(value)) if has(value) => kept.push(Some(value)),
                (true, _) => {
                    return Err(broken(format!(
                        "epoch {epoch} is committed, and the changes of process {process} are not durable"
                    )));
                }
                (false, _) => kept.push(None),
            }
        }
        self.decided.push((epoch, kept));
        Ok(())
    }

    /// What process `process` must have committed.
    pub(super) fn of(&self, process: usize) -> Vec<(u64, u64)> {
        let values = self.decided.iter();
        values
            .filter_map(|(epoch, values)| values[process].map(|value| (*epoch, value)))
            .collect()
    }

    /// A run has begun: each process has what was decided, no more and no less.
    pub(super) fn check(&self, process: usize, disk: &Disk) -> Result<(), Broken> {
        let expected = self.of(process);
        let found = disk.committed();
        if expected == found {
            return Ok(());
        }
        let at = expected
            .iter()
            .zip(&found)
            .take_while(|(a, b)| a == b)
            .count();
        Err(broken(format!(
            "process {process} has {:?} where epoch {:?} was decided",
            found.get(at),
            expected.get(at)
        )))
    }
}
