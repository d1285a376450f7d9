//! The handle of a running flow: stop it, wait for it, read its metrics.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::now_ns;
use crate::cluster::Link;
use crate::control::Control;
use crate::error::{FlowError, chain};
use crate::metrics::Report;
use crate::mutex::lock;
use crate::panics::caught;
use crate::run::options::Options;
use crate::run::signals::Signals;
use crate::run::watch::Watch;

/// The connections for data, by the number of the other process; `None` at this one's.
pub(super) type Links = Vec<Option<Box<dyn Link>>>;

/// The threads of the workers. In a mutex, as the results of threads are not `Sync`, and this handle is.
pub(super) type Threads = Mutex<Option<timely::communication::WorkerGuards<()>>>;

/// The interval at which a wait checks whether the run has ended.
const LONG: Duration = Duration::from_secs(1);
/// After how much time a wait for the ends of the other processes is logged.
const ENDS_LATE_NS: u64 = 1_000_000_000;
/// How long process 0 waits at its end for the reports of the others.
const REPORTS_WAIT: Duration = Duration::from_secs(5);

/// A flow that runs on threads of its own.
///
/// When it is dropped, the flow is [stopped](Self::stop), and a failure that [`wait`](Self::wait) has not returned is
/// logged.
#[must_use = "a flow is stopped when its handle is dropped: call wait"]
pub struct Running {
    pub(super) name: String,
    pub(super) started: u64,
    pub(super) control: Arc<Control>,
    pub(super) threads: Threads,
    pub(super) committer: Option<JoinHandle<()>>,
    pub(super) signals: Option<Signals>,
    /// The connections to other processes, until the workers start.
    pub(super) links: Option<Links>,
    pub(super) options: Options,
}

impl Running {
    /// A run that was stopped before it began.
    pub(super) fn stopped(name: String, options: Options) -> Self {
        let control = Control::new(options.workers, None);
        (0..options.workers).for_each(|_| control.ends.worker_ended());
        Running {
            name,
            started: now_ns(),
            control: Arc::new(control),
            threads: Mutex::default(),
            committer: None,
            signals: None,
            links: None,
            options,
        }
    }

    /// Takes the connections to other processes. The wait for them is no part of the run.
    pub(super) fn meet(&mut self, links: Option<Links>) {
        if links.is_some() {
            self.started = now_ns();
        }
        self.links = links;
    }

    /// Asks the flow to end; [`wait`](Running::wait) returns when it has. Its sources read no more, and the
    /// items in its steps are processed. If this takes more than a second the run is abandoned: each worker
    /// finishes its current item. With a state directory the next start resumes from the last commit; without
    /// one the remaining items are dropped. Their number is reported on standard error and by
    /// [`Control::unfinished`].
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Returns a handle with which another thread can stop the flow.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// True if all workers have ended; waits for that at most for `limit`.
    #[must_use]
    pub fn ended_within(&self, limit: Duration) -> bool {
        self.control.ended_within(limit)
    }

    /// Returns the metrics as last published; at the end they are complete.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            flow: self.name.clone(),
            elapsed: Duration::from_nanos(now_ns().saturating_sub(self.started)),
            workers: self.control.figures.snapshots(),
            outboxes: self.control.figures.outboxes(),
            lags: self.control.figures.lags(),
            links: self.control.load.links(),
            others: Vec::new(),
        }
    }

    /// Returns a view of the run for another thread.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn watch(&self) -> Watch {
        Watch {
            flow: self.name.clone(),
            started: self.started,
            control: Arc::clone(&self.control),
        }
    }

    /// Waits for the end of the flow: with several processes until all have ended.
    ///
    /// # Errors
    /// The failure that ended the flow.
    pub fn wait(self) -> Result<Report, FlowError> {
        self.wait_with(&|| ())
    }

    /// As [`wait`](Self::wait). `looks` is called many times a second while this process has ended and waits for the
    /// others; it may
    /// [stop](Control::stop) the flow, and then they are not waited for.
    ///
    /// # Errors
    /// The failure that ended the flow.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn wait_with(mut self, looks: &dyn Fn()) -> Result<Report, FlowError> {
        let interval = match &self.options.on_metrics {
            Some((interval, _)) => *interval,
            None => Duration::from_secs(3600),
        };
        let signals = self.signals.take();
        let tick = match &signals {
            Some(_) => Duration::from_millis(50),
            None => interval.min(LONG),
        };
        let mut next_report = now_ns() + interval.as_nanos() as u64;
        while !self.ended_within(tick.min(interval)) {
            if signals.as_ref().is_some_and(Signals::noted) {
                self.control.stop();
            }
            if now_ns() >= next_report {
                next_report += interval.as_nanos() as u64;
                self.call_back();
            }
        }
        self.report_forwarders();
        self.report_unfinished();
        let control = self.control();
        self.join_threads(&|| {
            if signals.as_ref().is_some_and(Signals::noted) {
                control.stop();
            }
            looks();
        });
        drop(signals);
        if !self.control.life.has_failed() {
            self.call_back();
        }
        match self.control.life.take_failure() {
            Some(error) => Err(error),
            None => {
                let mut report = self.report();
                report.others = self.reports_of_others();
                Ok(report)
            }
        }
    }

    /// Joins the committer, and the threads of the workers, which have ended, and of the connections to other
    /// processes, if they end. `looks` is called at intervals while this process waits for the ends of the others.
    fn join_threads(&mut self, looks: &dyn Fn()) {
        // The last epoch is committed by now, or its failure is in `control`.
        let _ = self.committer.take().map(|committer| committer.join());
        // The other processes keep their ends of the connections open until they know that this one has ended.
        self.leave();
        self.wait_others(looks);
        let threads = lock(&self.threads).take();
        if self.control.ends.wait_links() {
            // A panic was caught inside the worker, and its error is in `control`.
            let _ = threads.map(|threads| threads.join());
        } else {
            // A connection that is lost never ends.
            std::mem::forget(threads);
        }
    }

    /// In process 0 of several: the reports of the others, which end at about the same time.
    fn reports_of_others(&self) -> Vec<(usize, serde_json::Value)> {
        let others = self.control.load.others();
        let Some(others) = others.filter(|others| others.membership.process == 0) else {
            return Vec::new();
        };
        let reports = others.statuses().reports(REPORTS_WAIT).into_iter();
        let read = |(process, bytes): (usize, Arc<Vec<u8>>)| {
            Some((process, serde_json::from_slice(&bytes).ok()?))
        };
        reports.filter_map(read).collect()
    }

    /// Notifies the other processes that this one has ended, if it has not failed: of that they are notified at once.
    fn leave(&self) {
        if let (Some(member), Some(others)) =
            (self.control.life.member(), self.control.load.others())
            && !self.control.life.has_failed()
        {
            others.send_status(true, self.report().to_json().to_string().into_bytes());
            member.ended();
        }
        if let Some(others) = self.control.load.others() {
            others.end();
        }
    }

    /// Waits until all processes have ended: one that dies before would be alone at its next start, if the others had
    /// left.
    fn wait_others(&self, looks: &dyn Fn()) {
        let Some(member) = self.control.life.member() else {
            return;
        };
        let says_ns = now_ns() + ENDS_LATE_NS;
        let mut said = false;
        while !self.control.ends.wait_others() {
            looks();
            if !said && now_ns() >= says_ns {
                said = true;
                let name = &self.name;
                tracing::info!(
                    flow = name.as_str(),
                    "flow \"{name}\": it has ended here, and waits for the end of the other processes"
                );
            }
        }
        if !self.control.stopping() {
            member.flush();
        }
    }

    /// Reports the items that an abandoned run has not processed.
    fn report_unfinished(&self) {
        let left = self.control.unfinished();
        if !self.control.abandoned() || left == 0 {
            return;
        }
        let name = &self.name;
        let what = if self.control.keeps_state() {
            "the next start takes them up from the last commit"
        } else {
            "they are dropped"
        };
        tracing::warn!(
            flow = name.as_str(),
            "flow \"{name}\": stopped with {left} items in its steps: {what}"
        );
    }

    /// Warns of deliveries in progress that the run does not wait for.
    fn report_forwarders(&self) {
        let left = self.control.ends.forwarders_left();
        if left > 0 {
            let name = &self.name;
            tracing::warn!(
                flow = name.as_str(),
                "flow \"{name}\": stopped during a delivery of {left} of its sinks; the next start finds out whether it succeeded"
            );
        }
    }

    /// Ends the flow without waiting for the items in its steps, and reports how many remain. A worker that is
    /// inside a step ends after its current item.
    pub fn abandon(mut self) {
        if self.control.load.others().is_some() {
            // The other processes must not wait for this one.
            self.control.stop();
        }
        self.control.abandon();
        self.report_unfinished();
        self.leave();
        // The threads end by themselves; dropping their guards would wait for them.
        std::mem::forget(lock(&self.threads).take());
        std::mem::forget(self.committer.take());
    }

    fn call_back(&self) {
        if let Some((_, call)) = &self.options.on_metrics {
            let called = caught(|| "on_metrics".to_owned(), || call(&self.report()));
            called.unwrap_or_else(|error| self.control.life.fail(error));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if lock(&self.threads).is_none() {
            return;
        }
        self.control.stop();
        while !self.control.ended_within(LONG) {}
        self.join_threads(&|| ());
        if let Some(error) = self.control.life.take_failure() {
            let name = &self.name;
            tracing::error!(
                flow = name.as_str(),
                "flow \"{name}\": it has failed, and its handle was dropped without a wait for it: {}",
                chain(&error)
            );
        }
    }
}
