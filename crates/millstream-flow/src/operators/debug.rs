//! `inspect_debug`: writes items to standard error, with their epoch and worker.
//!
//! ```
//! use millstream_flow::{Flow, Options, testing};
//!
//! let flow = Flow::new("debug");
//! let out = testing::Collected::new();
//! flow.source("numbers", testing::items([7])).inspect_debug("seen").sink("out", out.sink());
//! flow.run(Options::default())?; // writes: seen epoch=- worker=0: 7
//! assert_eq!(out.take(), [7]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::fmt::{Debug, Write as _};
use std::io::Write as _;

use crate::batch::Data;
use crate::checkpoint::{Changes, Restore};
use crate::describe::stream::Stream;
use crate::error::{Failure, FlowError};
use crate::step::{Context, Stateful, Step};

impl<T: Data + Debug> Stream<T> {
    /// Writes each item to standard error as `LABEL epoch=E worker=W: ITEM`, and passes it on as it is.
    /// Without a state directory there are no epochs, and `E` is `-`.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("debug"), testing::Collected::new());
    /// flow.source("in", testing::items([7]))
    ///     .inspect_debug("seen")
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [7]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn inspect_debug(&self, label: &str) -> Stream<T> {
        let label = label.to_owned();
        self.step("inspect_debug", "", move |_| {
            Ok(Show {
                label: label.clone(),
                ended: 0,
            })
        })
    }
}

/// Writes items.
struct Show {
    label: String,
    /// The number of epochs of this run that have ended.
    ended: u64,
}

impl<T: Data + Debug> Step<Vec<T>, Vec<T>> for Show {
    fn apply(
        &mut self,
        input: &mut Vec<T>,
        output: &mut Vec<T>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let epoch = cx.epoch_after(self.ended);
        let epoch = epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
        let mut lines = String::new();
        for item in input.iter() {
            // Writing to memory cannot fail, and a closed standard error is not a failure of the flow.
            let _ = writeln!(
                lines,
                "{} epoch={epoch} worker={}: {item:?}",
                self.label, cx.worker
            );
        }
        let _ = std::io::stderr().lock().write_all(lines.as_bytes());
        std::mem::swap(input, output);
        Ok(())
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for Show {
    fn save(&mut self, _: &mut Changes, _: &mut Context) -> Result<(), Failure> {
        self.ended += 1;
        Ok(())
    }
    fn restore(&mut self, _: &Restore<'_>) -> Result<(), FlowError> {
        Ok(())
    }
}
