//! One place to which all workers write: a file, a journal.
//!
//! Invariant: what was written before a worker was told the end of an epoch belongs to that epoch or an
//! earlier one, and nothing else does. Workers end an epoch one after the other; what a worker writes of the
//! next one meanwhile is held back until the last has ended it, so that a place can be cut back to an epoch
//! by its length. What is held back counts as on its way, so that sources hold back when it is much.

use std::sync::Arc;

use crate::error::Cause;
use crate::run::control::Control;

/// A place that only grows.
pub trait Log: Send {
    /// What a batch becomes.
    type Piece: Default;
    /// Appends a batch, and leaves `piece` empty with its memory.
    ///
    /// # Errors
    /// What the system says.
    fn append(&mut self, piece: &mut Self::Piece) -> Result<(), Cause>;
    /// Hands on what is buffered; gives where the log ends.
    ///
    /// # Errors
    /// What the system says.
    fn flush(&mut self) -> Result<u64, Cause>;
    /// An epoch ends: hands on what is buffered; gives where the log ends, so that it can be cut back to there.
    ///
    /// # Errors
    /// What the system says.
    fn prepare(&mut self) -> Result<u64, Cause> {
        self.flush()
    }
}

/// One writer of a log that several share.
struct Share<P> {
    /// The epoch that it writes.
    epoch: u64,
    held: Vec<(u64, P)>,
}

/// A log and those who write to it.
pub struct Together<L: Log> {
    log: L,
    /// The earliest epoch that somebody writes.
    epoch: u64,
    shares: Vec<Share<L::Piece>>,
    control: Arc<Control>,
}

impl<L: Log> Together<L> {
    /// Nobody writes to `log` yet.
    pub fn new(log: L, control: &Arc<Control>) -> Self {
        Together {
            log,
            epoch: 0,
            shares: Vec::new(),
            control: Arc::clone(control),
        }
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &L {
        &self.log
    }

    /// The log, to be changed.
    pub fn log_mut(&mut self) -> &mut L {
        &mut self.log
    }

    /// Another writer; gives its number.
    pub fn join(&mut self) -> usize {
        self.shares.push(Share {
            epoch: 0,
            held: Vec::new(),
        });
        self.shares.len() - 1
    }

    /// Writes a batch, or holds it back.
    ///
    /// # Errors
    /// What the log says.
    pub fn write(&mut self, share: usize, piece: &mut L::Piece) -> Result<(), Cause> {
        let this = &mut self.shares[share];
        if this.epoch > self.epoch {
            self.control.sent(0, 0);
            this.held.push((this.epoch, std::mem::take(piece)));
            return Ok(());
        }
        self.log.append(piece)
    }

    /// Hands on what is buffered.
    ///
    /// # Errors
    /// What the log says, as for all verbs here.
    pub fn flush(&mut self) -> Result<u64, Cause> {
        self.log.flush()
    }

    /// A writer has ended `epoch`; gives where the log ends if it was the last to do so.
    ///
    /// # Errors
    /// What the log says.
    pub fn prepare(&mut self, share: usize, epoch: u64) -> Result<Option<u64>, Cause> {
        self.go_on(share, epoch + 1)
    }

    /// A writer has no more to write; returns where the log ends if it was the last one.
    ///
    /// The epochs that the last one leaves behind are complete by that, also those that the others had ended before: what it returned for
    /// the epoch that it ended itself comes before their output.
    ///
    /// # Errors
    /// What the log says.
    pub fn leave(&mut self, share: usize) -> Result<Option<u64>, Cause> {
        self.go_on(share, u64::MAX)?;
        if self.epoch == u64::MAX {
            return Ok(Some(self.log.prepare()?));
        }
        self.log.flush()?;
        Ok(None)
    }

    fn go_on(&mut self, share: usize, epoch: u64) -> Result<Option<u64>, Cause> {
        self.shares[share].epoch = epoch;
        let earliest = self.shares.iter().map(|share| share.epoch).min();
        let earliest = earliest.unwrap_or(epoch);
        if earliest == self.epoch {
            return Ok(None);
        }
        let end = self.log.prepare()?;
        self.epoch = earliest;
        for share in &mut self.shares {
            for (epoch, mut piece) in std::mem::take(&mut share.held) {
                if epoch > earliest {
                    share.held.push((epoch, piece));
                } else {
                    self.control.handled(0, 0);
                    self.log.append(&mut piece)?;
                }
            }
        }
        Ok(Some(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text(String);

    impl Log for Text {
        type Piece = String;
        fn append(&mut self, piece: &mut String) -> Result<(), Cause> {
            self.0 += piece;
            Ok(())
        }
        fn flush(&mut self) -> Result<u64, Cause> {
            Ok(self.0.len() as u64)
        }
    }

    #[test]
    fn what_belongs_to_a_later_epoch_waits_for_those_who_have_not_ended_this_one() {
        let control = Arc::new(Control::new(2, None));
        let mut log = Together::new(Text(String::new()), &control);
        let (a, b) = (log.join(), log.join());
        let write = |log: &mut Together<Text>, who, text: &str| {
            log.write(who, &mut text.to_owned()).expect("it is memory");
        };
        write(&mut log, a, "a1 ");
        assert_eq!(log.prepare(a, 1).expect("memory"), None);
        write(&mut log, a, "a2 ");
        write(&mut log, b, "b1 ");
        assert_eq!(log.log().0, "a1 b1 ");
        assert_eq!(log.prepare(b, 1).expect("memory"), Some(6));
        assert_eq!(log.log().0, "a1 b1 a2 ");
        write(&mut log, b, "b2 ");
        assert_eq!(log.prepare(b, 2).expect("memory"), None);
        assert_eq!(log.leave(b).expect("memory"), None);
        write(&mut log, a, "a2 ");
        assert_eq!(log.prepare(a, 2).expect("memory"), Some(15));
    }

    #[test]
    fn the_last_to_leave_says_where_all_ends_in_whatever_epochs_the_others_were() {
        let control = Arc::new(Control::new(2, None));
        let mut log = Together::new(Text(String::new()), &control);
        let (a, b) = (log.join(), log.join());
        let write = |log: &mut Together<Text>, who, text: &str| {
            log.write(who, &mut text.to_owned()).expect("it is memory");
        };
        for epoch in 1..=3 {
            write(&mut log, b, &format!("b{epoch} "));
            assert_eq!(log.prepare(b, epoch).expect("memory"), None);
        }
        write(&mut log, b, "b4 ");
        assert_eq!(log.leave(b).expect("memory"), None);
        write(&mut log, a, "a1 ");
        // The end of the first epoch: the output of b that is held back comes after it.
        assert_eq!(log.prepare(a, 1).expect("memory"), Some(6));
        assert_eq!(log.leave(a).expect("memory"), Some(15));
        assert_eq!(log.log().0, "b1 a1 b2 b3 b4 ");
    }
}
