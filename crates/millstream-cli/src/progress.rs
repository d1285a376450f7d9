//! How much of a long piece of work is done, in one line on standard error, where that is a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Records between two looks at the clock.
const EVERY: u64 = 4096;
/// Between two updates of the line.
const PAUSE: Duration = Duration::from_millis(100);

/// A line that disappears when it is dropped.
pub(crate) struct Progress {
    total: u64,
    done: u64,
    what: &'static str,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    /// A line for `total` of `what`.
    pub(crate) fn new(total: u64, what: &'static str) -> Self {
        Progress {
            total,
            done: 0,
            what,
            shown: None,
            is_terminal: io::stderr().is_terminal(),
        }
    }

    /// One more is done.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(EVERY) {
            self.show();
        }
    }

    /// One more of a few is done.
    pub(crate) fn next(&mut self) {
        self.at(self.done + 1);
    }

    /// So many are done.
    pub(crate) fn at(&mut self, done: u64) {
        self.done = done;
        self.show();
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "how often the line changes; no result depends on it"
    )]
    fn show(&mut self) {
        if !self.is_terminal || self.shown.is_some_and(|shown| shown.elapsed() < PAUSE) {
            return;
        }
        self.shown = Some(Instant::now());
        let percent = u128::from(self.done) * 100 / u128::from(self.total.max(1));
        let Progress {
            total, done, what, ..
        } = self;
        // Work does not fail because its progress cannot be shown.
        let _ = write!(io::stderr(), "\r\x1b[K{done} of {total} {what}, {percent}%");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
