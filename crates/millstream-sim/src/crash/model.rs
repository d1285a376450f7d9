//! The reference model of a journal: plain vectors.
//!
//! Records are appended, then acknowledged, then perhaps durable. Records that are in flight when a process dies or the
//! power fails may be there afterwards, from the first one on, or not.

use std::sync::Arc;

/// Why a world failed: the promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The number of the promise.
    pub promise: u32,
    /// The difference that was found.
    pub what: String,
}

/// No promise: a sync was made to fail, and returned its error.
pub const SYNC_FAILED: u32 = 0;

/// A result of playing or judging.
pub type Judged<T> = Result<T, Broken>;

/// A broken promise as an error.
pub fn broken<T>(promise: u32, what: impl Into<String>) -> Judged<T> {
    Err(Broken {
        promise,
        what: what.into(),
    })
}

/// A record and the values that are known of it.
#[derive(Clone, Debug)]
struct Expected {
    body: Arc<[u8]>,
    /// Known once it was read.
    time_ns: Option<u64>,
    /// By the steady clock.
    appended_ns: u64,
    /// By the wall clock.
    wall_ns: u64,
}

/// What must be there.
#[derive(Clone, Debug, Default)]
pub struct Model {
    records: Vec<Expected>,
    /// Appended by a call that has not returned.
    in_flight: Vec<Expected>,
    /// All before this survives a loss of power.
    durable: u64,
    /// The oldest record, once as it surely was, once as it may be after a loss of power.
    first: [u64; 2],
    /// Where the cursor may be found, and where it was moved to last.
    cursor: Vec<u64>,
    moved: Option<u64>,
    is_cursor_lost: bool,
    /// How many of the last records were published by a process that died before it could say so.
    orphans: u64,
}

impl Model {
    /// How many records were acknowledged.
    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// The end, as far as writers know: the next append counts the records that a dead writer has published.
    pub fn known(&self) -> u64 {
        self.len() - self.orphans
    }

    /// An append begins, at these times of the steady clock and of the wall clock.
    pub fn begin(&mut self, bodies: &[Arc<[u8]>], now_ns: u64, wall_ns: u64) {
        let expected = bodies.iter().map(|body| Expected {
            body: Arc::clone(body),
            time_ns: None,
            appended_ns: now_ns,
            wall_ns,
        });
        self.in_flight = expected.collect();
    }

    /// The caller gave the append up.
    pub fn give_up(&mut self) {
        self.in_flight.clear();
    }

    /// The append has returned this sequence number.
    pub fn acknowledge(&mut self, first: u64) -> Judged<()> {
        if first != self.len() {
            return broken(
                3,
                format!("an append got number {first}, not {}", self.len()),
            );
        }
        if let Some(next) = self.in_flight.first() {
            // They were not acknowledged before: a loss of power could still take them until now.
            let now_ns = next.appended_ns;
            let first = self.records.len() - self.orphans as usize;
            for orphan in &mut self.records[first..] {
                orphan.appended_ns = now_ns;
            }
            self.orphans = 0;
        }
        self.records.append(&mut self.in_flight);
        Ok(())
    }

    /// All before `sequence` is promised to survive a loss of power.
    pub fn promise(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
    }

    /// How many records were appended at `now_ns` or before.
    pub fn appended_by(&self, now_ns: u64) -> u64 {
        self.records
            .partition_point(|record| record.appended_ns <= now_ns) as u64
    }

    /// A record was read: it must be the one that was appended at this number.
    pub fn check(&mut self, sequence: u64, time_ns: u64, body: &[u8]) -> Judged<()> {
        let acknowledged = self.records.len();
        let index = sequence as usize;
        let before = index.checked_sub(1).and_then(|before| {
            self.records
                .get(before)
                .or_else(|| self.in_flight.get(before - acknowledged))
        });
        let before_ns = before.and_then(|record| record.time_ns).unwrap_or(0);
        let expected = if index < acknowledged {
            self.records.get_mut(index)
        } else {
            self.in_flight.get_mut(index - acknowledged)
        };
        let Some(expected) = expected else {
            return broken(3, format!("record {sequence} was never appended"));
        };
        if *expected.body != *body {
            let what = format!(
                "record {sequence} has {} bytes that are not the {} appended",
                body.len(),
                expected.body.len()
            );
            return broken(3, what);
        }
        if expected.time_ns.is_some_and(|known| known != time_ns) {
            return broken(3, format!("the time of record {sequence} has changed"));
        }
        // That of the clock, or of a record of the second after it.
        let latest_ns = expected.wall_ns + 1_000_000_000;
        let is_right = (expected.wall_ns..=latest_ns).contains(&time_ns);
        if !is_right || time_ns < before_ns && before_ns <= latest_ns {
            let wall_ns = expected.wall_ns;
            let what = format!(
                "record {sequence} has time {time_ns} by a clock at {wall_ns}, after one of time {before_ns}"
            );
            return broken(3, what);
        }
        expected.time_ns = Some(time_ns);
        Ok(())
    }

    /// The records from `first` to `next` that were read: their numbers and times.
    pub fn times(&self, first: u64, next: u64) -> Vec<(u64, u64)> {
        let records = (0..).zip(self.records.iter().chain(&self.in_flight));
        records
            .filter(|(sequence, _)| (first..next).contains(sequence))
            .filter_map(|(sequence, record)| Some((sequence, record.time_ns?)))
            .collect()
    }

    /// Records may vanish from the front now.
    pub fn begin_prune(&mut self) {
        self.first[1] = self.len();
    }

    /// Records before this one were pruned. A loss of power may bring them back: to remove is no promise.
    pub fn prune(&mut self, first: u64) -> Judged<()> {
        self.check_first(first)?;
        self.first[1] = first;
        Ok(())
    }

    /// After a loss of power this is the oldest record.
    pub fn fix_first(&mut self, first: u64) -> Judged<()> {
        self.check_first(first)?;
        self.first = [first; 2];
        Ok(())
    }

    /// The oldest record is this one.
    pub fn check_first(&self, first: u64) -> Judged<()> {
        let [low, high] = self.first;
        if (low..=high).contains(&first) {
            Ok(())
        } else {
            broken(
                3,
                format!("the oldest record is {first}, not {low} to {high}"),
            )
        }
    }

    /// The cursor is on its way to this place.
    pub fn begin_move(&mut self, from: u64, sequence: u64) {
        self.cursor.extend([from, sequence]);
        self.moved = None;
    }

    /// The move has ended, and all processes see it.
    pub fn end_move(&mut self) {
        self.moved = self.cursor.last().copied();
    }

    /// The cursor will have this position after a loss of power, or one that it moves to later.
    pub fn fix_cursor(&mut self, sequence: u64) {
        self.cursor = vec![sequence];
    }

    /// A sync has failed, perhaps that of the cursor, which is then found anywhere or damaged.
    pub fn lose_cursor(&mut self) {
        self.is_cursor_lost = true;
    }

    /// Whether nothing is known of the cursor any more.
    pub fn is_cursor_lost(&self) -> bool {
        self.is_cursor_lost
    }

    /// The cursor was found there.
    pub fn check_cursor(&self, position: u64) -> Judged<()> {
        let is_known = match self.moved {
            Some(moved) => position == moved,
            // A new cursor is at the first record; one whose position was after the end is at the end.
            None => {
                self.cursor.is_empty()
                    || self.cursor.contains(&position)
                    || (self.first[0]..=self.first[1]).contains(&position)
                    || position == self.len()
            }
        };
        if is_known {
            Ok(())
        } else {
            let known = &self.cursor;
            broken(
                3,
                format!("a cursor is at {position}, where it never was: {known:?}"),
            )
        }
    }

    /// Processes have died, the machine has not: all acknowledged records are there, and of those in flight the first
    /// ones.
    pub fn check_after_kill(&mut self, next: u64) -> Judged<()> {
        if next < self.len() {
            let what = format!("{} records were acknowledged, {next} are there", self.len());
            return broken(1, what);
        }
        self.orphans += next - self.len();
        self.keep(next)
    }

    /// Power was lost: the durable records are there.
    pub fn check_after_power_loss(&mut self, next: u64) -> Judged<()> {
        if next < self.durable {
            let what = format!("{} records were durable, {next} are there", self.durable);
            return broken(2, what);
        }
        self.durable = next;
        self.orphans = 0;
        self.moved = None;
        if self.cursor.iter().any(|position| *position > next) {
            // The recovery moves a cursor that is after the end to the end, so that it skips no record that comes
            // there.
            self.cursor.push(next);
        }
        self.keep(next)
    }

    fn keep(&mut self, next: u64) -> Judged<()> {
        self.records.append(&mut self.in_flight);
        if next > self.len() {
            return broken(3, format!("record {} was never appended", self.len()));
        }
        self.records.truncate(next as usize);
        Ok(())
    }
}
