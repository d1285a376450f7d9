//! A candidate: it looks at the record, takes the lease when it is over, and renews it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use millstream_journal::{Host, clock};

use super::{Arbiter, ArbiterError, LeaseRecord, Version};

/// How long a lease is.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimes {
    /// From when others see it renewed until they may take it.
    pub lease: Duration,
    /// By how much earlier its holder ends it.
    pub margin: Duration,
}

/// What a candidate has seen.
#[derive(Clone, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Seen {
    /// The record.
    pub record: LeaseRecord,
    version: Version,
    /// Since when it is seen unchanged, by the candidate's clock.
    since: Duration,
}

/// A lease that is held until this time of the candidate's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Held {
    /// When it ends.
    pub until: Duration,
}

/// One that leads, or would.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Candidate {
    arbiter: Box<dyn Arbiter>,
    times: LeaseTimes,
    /// The number of this process.
    process: u64,
    seen: Option<Seen>,
    /// Since when there is no record.
    absent_since: Option<Duration>,
    now: Box<dyn Fn() -> Duration + Send>,
}

impl Candidate {
    /// One that measures time by the clock of this machine, which also counts while the machine is suspended.
    #[must_use]
    pub fn new(arbiter: Box<dyn Arbiter>, times: LeaseTimes) -> Self {
        let now = || Duration::from_nanos(clock::boot_ns());
        Candidate::with_clock(arbiter, times, Box::new(now))
    }

    fn with_clock(
        arbiter: Box<dyn Arbiter>,
        times: LeaseTimes,
        now: Box<dyn Fn() -> Duration + Send>,
    ) -> Self {
        Candidate {
            arbiter,
            times,
            process: Host::real().random(),
            seen: None,
            absent_since: None,
            now,
        }
    }

    /// What was seen last.
    #[must_use]
    pub fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    /// Looks at the record.
    ///
    /// # Errors
    /// The arbiter does not answer.
    pub fn look(&mut self) -> Result<Option<&Seen>, ArbiterError> {
        let found = self.arbiter.read()?;
        // After the read: what it has found was there before.
        let since = (self.now)();
        self.absent_since = match found {
            None => self.absent_since.or(Some(since)),
            Some(_) => None,
        };
        // One that was restored may have the version of another one.
        self.seen = found.map(|(version, record)| match self.seen.take() {
            Some(seen) if (&seen.version, &seen.record) == (&version, &record) => seen,
            _ => Seen {
                record,
                version,
                since,
            },
        });
        Ok(self.seen.as_ref())
    }

    /// For how long the lease that was seen is over; `None` while it is not. Where there is no record, it may have
    /// vanished while its lease was held.
    #[must_use]
    pub fn over_for(&self) -> Option<Duration> {
        let end = match &self.seen {
            None => self.absent_since? + self.times.lease,
            Some(seen) => seen.since + seen.record.lease(),
        };
        (self.now)().checked_sub(end)
    }

    /// Takes the lease that was seen, which is over: the record becomes what `change` makes of it, or of an empty one.
    /// Returns `None` if another one was faster.
    ///
    /// # Errors
    /// The arbiter does not answer. The lease may be taken all the same: it is waited for then, as for that of another
    /// one.
    pub fn take(
        &mut self,
        change: impl FnOnce(&mut LeaseRecord),
    ) -> Result<Option<Held>, ArbiterError> {
        let mut record = self
            .seen
            .as_ref()
            .map_or_else(LeaseRecord::default, |seen| seen.record.clone());
        change(&mut record);
        record.process = self.process;
        self.put(record, self.times.lease)
    }

    /// Renews the lease; the record becomes what `change` makes of it. Returns `None` if another one has taken it.
    ///
    /// # Errors
    /// The arbiter does not answer. It can be tried again.
    pub fn renew(
        &mut self,
        change: impl Fn(&mut LeaseRecord),
    ) -> Result<Option<Held>, ArbiterError> {
        while let Some(mut record) = self.own_record() {
            change(&mut record);
            if let Some(held) = self.put(record, self.times.lease)? {
                return Ok(Some(held));
            }
            // The other one may have been this one, whose answer was lost.
            self.look()?;
        }
        Ok(None)
    }

    /// Gives the lease back: it is over for all that see that. Returns whether this one still had it.
    ///
    /// # Errors
    /// The arbiter does not answer.
    pub fn release(&mut self) -> Result<bool, ArbiterError> {
        match self.own_record() {
            None => Ok(false),
            Some(record) => Ok(self.put(record, Duration::ZERO)?.is_some()),
        }
    }

    /// The record that was seen, if it is one of this process.
    fn own_record(&self) -> Option<LeaseRecord> {
        let record = &self.seen.as_ref()?.record;
        (record.process == self.process).then(|| record.clone())
    }

    /// Puts a record in the place of the one that was seen.
    fn put(
        &mut self,
        mut record: LeaseRecord,
        lease: Duration,
    ) -> Result<Option<Held>, ArbiterError> {
        record.beat += 1;
        record.lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        // Before it is asked for: others see it later.
        let begin = (self.now)();
        let version = self.seen.as_ref().map(|seen| &seen.version);
        let Some(version) = self.arbiter.replace(version, &record)? else {
            return Ok(None);
        };
        self.seen = Some(Seen {
            record,
            version,
            since: (self.now)(),
        });
        let length = lease.saturating_sub(self.times.margin);
        Ok(Some(Held {
            until: begin + length,
        }))
    }
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("times", &self.times)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
