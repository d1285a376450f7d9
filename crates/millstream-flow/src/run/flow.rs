//! Starts and runs a described flow.

use crate::dataflow::plan::Plan;
use crate::describe::stream::Flow;
use crate::error::FlowError;
use crate::metrics::Report;
use crate::mutex::lock;
use crate::run::options::Options;
use crate::run::running::Running;
use crate::run::start::{run_here, start};

impl Flow {
    /// Starts the flow on threads of its own. [`Running::wait`] waits for its end, and returns what fails later.
    ///
    /// # Errors
    /// A mistake in the description, as of [`check`](Self::check); an option out of range.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("numbers"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2])).sink("out", out.sink());
    /// let running = flow.start(Options::default())?;
    /// running.wait()?;
    /// assert_eq!(out.take(), [1, 2]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn start(&self, options: Options) -> Result<Running, FlowError> {
        start(options, |options| self.plan(options))
    }

    /// Runs the flow until all sources have ended, or a stop. Returns the metrics of the run.
    ///
    /// # Errors
    /// A mistake in the description, a connector that cannot be opened, a step that fails.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("numbers"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2])).sink("out", out.sink());
    /// let report = flow.run(Options::default())?;
    /// assert!(report.step("in").is_some());
    /// assert_eq!(out.take(), [1, 2]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn run(&self, options: Options) -> Result<Report, FlowError> {
        self.start(options)?.wait()
    }

    /// Runs the flow as [`run`](Self::run) with one worker, on the thread that calls, where a debugger sees its steps.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("here"), testing::Collected::new());
    /// let caller = std::thread::current().id();
    /// flow.source("in", testing::items([1]))
    ///     .map(move |_: i64| std::thread::current().id() == caller)
    ///     .sink("out", out.sink());
    /// flow.run_here(Options::default())?;
    /// assert_eq!(out.take(), [true]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn run_here(&self, options: Options) -> Result<Report, FlowError> {
        run_here(options, |options| self.plan(options))
    }

    fn plan(&self, options: &Options) -> Result<Plan, FlowError> {
        let rehearsal = options.rehearsal.as_deref();
        let clustered = options.cluster.is_some();
        lock(&self.graph).plan(rehearsal, options.recovery.is_some(), clustered)
    }
}
