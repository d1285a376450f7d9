//! How the other processes of a run are doing, as they have reported to process 0.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::now_ns;
use crate::cluster::Status;

/// What a process has reported.
#[derive(Clone, Default)]
struct Known {
    /// What an observer of the process has sent last, and when it arrived here.
    latest: Option<(u64, Arc<Vec<u8>>)>,
    /// Its report, once it has ended.
    report: Option<Arc<Vec<u8>>>,
}

/// How a process is doing.
#[derive(Clone, Debug)]
pub struct ProcessStatus {
    /// The number of the process.
    pub process: usize,
    /// What its observer has sent last; none if it has none, or has sent nothing yet.
    pub sent: Option<Arc<Vec<u8>>>,
    /// The time since that arrived.
    pub age: Duration,
    /// Whether the process has ended without a failure.
    pub ended: bool,
}

/// What all processes have reported, by number.
pub(crate) struct Statuses {
    known: Mutex<Vec<Known>>,
    changed: Condvar,
}

impl Statuses {
    pub(crate) fn new(processes: usize) -> Self {
        Statuses {
            known: Mutex::new(vec![Known::default(); processes]),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn take(&self, process: usize, status: Status) {
        if let Some(known) = self.lock().get_mut(process) {
            let bytes = Arc::new(status.bytes);
            if status.last {
                known.report = Some(bytes)
            } else {
                known.latest = Some((now_ns(), bytes))
            }
        }
        self.changed.notify_all();
    }

    /// How the processes other than process 0 are doing.
    pub(crate) fn all(&self) -> Vec<ProcessStatus> {
        let now = now_ns();
        let known = self.lock();
        let others = known.iter().enumerate().skip(1);
        let status = |(process, known): (usize, &Known)| ProcessStatus {
            process,
            sent: known.latest.as_ref().map(|(_, bytes)| Arc::clone(bytes)),
            age: Duration::from_nanos(
                known
                    .latest
                    .as_ref()
                    .map_or(0, |(at, _)| now.saturating_sub(*at)),
            ),
            ended: known.report.is_some(),
        };
        others.map(status).collect()
    }

    /// Waits for the reports of the processes other than process 0, at most for `limit`; returns those that have come.
    pub(crate) fn reports(&self, limit: Duration) -> Vec<(usize, Arc<Vec<u8>>)> {
        let until = now_ns() + limit.as_nanos() as u64;
        let mut known = self.lock();
        while known.iter().skip(1).any(|one| one.report.is_none()) {
            let left = Duration::from_nanos(until.saturating_sub(now_ns()));
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let all = known.iter().enumerate();
        all.filter_map(|(process, known)| Some((process, Arc::clone(known.report.as_ref()?))))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
