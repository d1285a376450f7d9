//! The state directory of a process: its records of epochs, of which the last ones may not be durable.

use millstream_flow::cluster::{CommitId, StateOffer};

use millstream_journal::random::Random;

/// A record. `value` stands for the changes of the process in the epoch: it is unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Prepared {
        epoch: u64,
        run: u64,
        value: u64,
    },
    Commit {
        epoch: u64,
        run: u64,
        cluster: u64,
        /// Of process 0.
        members: Vec<CommitId>,
        /// Of the prepared record before it; `None` if this process had no changes.
        value: Option<u64>,
    },
}

/// The records of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) records: Vec<Record>,
    durable: usize,
}

impl Disk {
    pub(super) fn append(&mut self, record: Record) {
        self.records.push(record);
    }

    /// The records up to `end` are durable.
    pub(super) fn synced(&mut self, end: usize) {
        self.durable = self.durable.max(end.min(self.records.len()));
    }

    pub(super) fn is_durable(&self, record: &Record) -> bool {
        self.records[..self.durable].contains(record)
    }

    /// The machine loses power: some of what is not durable is gone.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        let at_risk = (self.records.len() - self.durable) as u64;
        let kept = self.durable + random.below(at_risk + 1) as usize;
        self.records.truncate(kept);
    }

    /// A process opens the directory: what it reads, it makes durable.
    pub(super) fn open(&mut self) {
        self.durable = self.records.len();
    }

    /// The epoch, run and value of the prepared record that no commit follows.
    pub(super) fn prepared(&self) -> Option<(u64, u64, u64)> {
        match self.records.last() {
            Some(Record::Prepared { epoch, run, value }) => Some((*epoch, *run, *value)),
            _ => None,
        }
    }

    pub(super) fn truncate_prepared(&mut self) {
        if self.prepared().is_some() {
            self.records.pop();
            self.durable = self.durable.min(self.records.len());
        }
    }

    /// The committed epochs with their values.
    pub(super) fn committed(&self) -> Vec<(u64, u64)> {
        let of = |record: &Record| match record {
            Record::Commit {
                epoch,
                value: Some(value),
                ..
            } => Some((*epoch, *value)),
            _ => None,
        };
        self.records.iter().filter_map(of).collect()
    }

    pub(super) fn offer(&self, processes: usize) -> StateOffer {
        let mut offer = StateOffer::default();
        for record in &self.records {
            if let Record::Commit {
                epoch,
                run,
                cluster,
                members,
                ..
            } = record
            {
                offer = StateOffer {
                    cluster: Some(*cluster),
                    processes: Some(processes),
                    committed: Some(CommitId {
                        epoch: *epoch,
                        run: *run,
                    }),
                    prepared: None,
                    members: members.clone(),
                    ..StateOffer::default()
                };
            }
        }
        let prepared = self.prepared();
        offer.prepared = prepared.map(|(epoch, run, _)| CommitId { epoch, run });
        offer
    }
}
