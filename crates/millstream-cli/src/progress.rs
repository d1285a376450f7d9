//! A progress bar on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Records between two updates of the bar.
const EVERY: u64 = 4096;

/// A bar that disappears when it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    done: u64,
}

impl Progress {
    /// A bar for `total` of `what`.
    pub(crate) fn new(total: u64, what: &'static str) -> Self {
        let bar = ProgressBar::new(total);
        let template = format!("{{wide_bar}} {{human_pos}} of {{human_len}} {what}, {{eta}} left");
        // The template is constant; without it the default does as well.
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Progress { bar, done: 0 }
    }

    /// One more is done.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(EVERY) {
            self.bar.set_position(self.done);
        }
    }

    /// One more of a few is done.
    pub(crate) fn next(&mut self) {
        self.at(self.done + 1);
    }

    /// So many are done.
    pub(crate) fn at(&mut self, done: u64) {
        self.done = done;
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
