//! The timers of a runner: when they fire, and how they resume.

use std::time::Duration;

use millstream_journal::Bookmark;
use millstream_wire::Lineage;

use super::state::Runner;
use crate::error::ServiceError;
use crate::recorded::schedule::{Announcement, Entry, Next};
use crate::timers::{self, Due, Pending};

impl<C> Runner<C> {
    /// The timer that is due next.
    pub(super) fn next_due(&self) -> Option<Due> {
        let one_offs = { self.timers.iter().any(|timer| timer.is_one_off()) }
            .then(|| self.progress.current.one_offs());
        // A replay has the calls that are recorded.
        let recorded = |timer: usize| {
            let replay = self.replay.as_ref();
            replay.is_some_and(|replay| replay.recorded.get(timer) == Some(&true))
        };
        timers::next_due(&self.timers, one_offs.as_deref(), |timer| !recorded(timer))
    }

    /// The time of the machine. Where it was set, timers follow.
    fn now(&mut self) -> i64 {
        let (now_ns, step_ns) = self.wall.read(&self.host);
        if step_ns != 0 {
            for timer in &mut self.timers {
                timer.step(step_ns, now_ns);
            }
            self.progress.current.one_offs().step(step_ns);
        }
        self.progress.current.set_wall(now_ns);
        now_ns
    }

    /// Calls the timer that is due, unless the next record is of an earlier time; false if there is none.
    pub(super) fn fire_due(&mut self, record_ns: Option<u64>) -> Result<bool, ServiceError> {
        if self.timers.is_empty() {
            return Ok(false);
        }
        let now_ns = self.now();
        let Some(due) = self.next_due() else {
            return Ok(false);
        };
        if due.due_ns > now_ns || record_ns.is_some_and(|time_ns| due.due_ns > time_ns as i64) {
            return Ok(false);
        }
        let timer = &mut self.timers[due.timer];
        let (time_ns, next) = match due.name.clone() {
            Some(name) => (due.due_ns, Next::Named(name)),
            None => (timer.take(now_ns), Next::At(timer.next_ns())),
        };
        let entry = Entry::Timer {
            timer: due.timer as u32,
            time_ns,
            next,
        };
        let entry = match &self.schedule {
            Some(schedule) => {
                let sequence = schedule.append(&entry)?;
                schedule.journal.bookmark(sequence + 1)?
            }
            None => Bookmark::after(0, 0),
        };
        let lineage = Lineage {
            input: self.inlets.len() as u32,
            sequence: entry.next - 1,
            checksum: entry.checksum.unwrap_or(0),
        };
        self.tick(due.timer, due.name.as_deref(), lineage, time_ns)?;
        Ok(true)
    }

    /// How long it is until a timer is due.
    pub(super) fn time_to_timer(&mut self) -> Duration {
        if self.timers.is_empty() {
            return Duration::MAX;
        }
        let now_ns = self.now();
        let left_ns = |due: Due| due.due_ns.saturating_sub(now_ns).max(0) as u64;
        self.next_due()
            .map_or(Duration::MAX, |due| Duration::from_nanos(left_ns(due)))
    }

    /// The current numbers of the timers of an announcement, which says when each comes next.
    pub(super) fn announced_timers(&mut self, announced: &Announcement) -> Vec<Option<usize>> {
        for timer in &mut self.timers {
            timer.set_recorded(None);
        }
        let numbers = announced.timers.iter().map(|timer| {
            let number = self.timer_named(&timer.name);
            if let Some(number) = number {
                self.timers[number].set_recorded(Some(timer.next_ns));
            }
            number
        });
        numbers.collect()
    }

    /// A tick is recorded: returns the name of a one-off timer.
    pub(super) fn recorded_tick<'a>(
        &mut self,
        timer: Option<usize>,
        next: &'a Next,
    ) -> Option<&'a str> {
        match next {
            Next::Named(name) => Some(name),
            Next::At(next_ns) => {
                if let Some(timer) = timer {
                    self.timers[timer].set_recorded(Some(*next_ns));
                }
                None
            }
        }
    }

    /// The one-off timers of a snapshot, with the current names of their methods; those of removed methods end.
    pub(super) fn restore_one_offs(&mut self, pending: &[Pending]) {
        let current = pending.iter().filter_map(|it| {
            let timer = self.timers[self.timer_named(&it.timer)?].name.clone();
            Some(Pending {
                timer,
                ..it.clone()
            })
        });
        let current = current.collect();
        self.progress.current.one_offs().set(current);
    }

    /// The service starts: timers that were missed are due now.
    pub(super) fn resume_timers(&mut self) {
        if self.timers.is_empty() || self.replay.is_some() {
            return;
        }
        let now_ns = self.now();
        for timer in &mut self.timers {
            timer.resume(now_ns);
        }
        self.progress.current.one_offs().resume(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use millstream_journal::{Host, Journal, Options};

    use super::*;
    use crate::runner::service::Service;
    use crate::settings::Settings;
    use crate::timers::{Missed, Wall, When};

    const SECOND: Duration = Duration::from_secs(1);
    const SECOND_NS: u64 = 1_000_000_000;

    /// The clock of a machine, which may be set, and time as it passes.
    #[derive(Clone, Default)]
    struct Machine(Arc<(AtomicU64, AtomicU64)>);

    impl Machine {
        fn host(&self) -> Host {
            let wall = Arc::clone(&self.0);
            let steady = Arc::clone(&self.0);
            Host::simulated(move || wall.0.load(Relaxed), || 0)
                .with_monotonic(move || steady.1.load(Relaxed))
        }

        fn pass(&self, ns: u64) {
            self.set(ns as i64);
            self.0.1.fetch_add(ns, Relaxed);
        }

        fn set(&self, by_ns: i64) {
            self.0.0.fetch_add(by_ns as u64, Relaxed);
        }
    }

    /// A runner on this machine, with its timers as if they began now.
    fn runner(machine: &Machine, folder: &tempfile::TempDir, missed: Missed) -> Runner<Vec<i64>> {
        let output = Journal::open(folder.path().join("out"), Options::default()).unwrap();
        let service = Service::new(&output).unwrap();
        let timers = service.timers();
        let setup = service
            .component(Vec::new())
            .timer(
                "beat",
                When::every(SECOND).missed(missed),
                move |seen: &mut Vec<i64>, at_ns| {
                    if seen.is_empty() {
                        timers.start("once", "a", 5 * SECOND)?;
                    }
                    seen.push(at_ns);
                    Ok(())
                },
            )
            .one_off("once", |seen, _, at_ns| {
                seen.push(-at_ns);
                Ok(())
            });
        let mut runner = setup.start(Settings::default()).unwrap();
        runner.host = machine.host();
        runner.wall = Wall::new(&runner.host);
        let now_ns = runner.host.time_ns() as i64;
        { runner.timers.iter_mut() }.for_each(|timer| timer.begin(now_ns));
        runner
    }

    #[test]
    fn timers_go_on_while_the_clock_of_the_machine_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::default();
        machine.pass(1000 * SECOND_NS);
        let mut runner = runner(&machine, &folder, Missed::All);
        let ticks = |runner: &mut Runner<Vec<i64>>| {
            machine.pass(SECOND_NS);
            while runner.fire_due(None).unwrap() {}
            std::mem::take(runner.component())
                .into_iter()
                .map(|at_ns| at_ns / SECOND_NS as i64)
                .collect::<Vec<_>>()
        };
        assert_eq!(ticks(&mut runner), [1001]);
        runner.component().push(0); // no second one-off timer
        machine.set(3600 * SECOND_NS as i64);
        assert_eq!(ticks(&mut runner), [0, 4602]);
        machine.set(-3600 * SECOND_NS as i64);
        runner.component().push(0);
        assert_eq!(ticks(&mut runner), [0, 1003]);
        machine.set(-500 * SECOND_NS as i64);
        runner.component().push(0);
        assert_eq!(ticks(&mut runner), [0, 504]);
        runner.component().push(0);
        assert_eq!(ticks(&mut runner), [0, 505]);
        runner.component().push(0);
        // Five seconds after the first tick, however the clock was set.
        assert_eq!(ticks(&mut runner), [0, 506, -506]);
    }

    #[test]
    fn a_runner_that_was_busy_follows_the_rule() {
        for (missed, times) in [
            (Missed::Once, &[1001][..]),
            (Missed::Skip, &[1003]),
            (Missed::All, &[1001, 1002, 1003]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let machine = Machine::default();
            machine.pass(1000 * SECOND_NS);
            let mut runner = runner(&machine, &folder, missed);
            machine.pass(3 * SECOND_NS + SECOND_NS / 2);
            while runner.fire_due(None).unwrap() {}
            let seen: Vec<i64> = { runner.component().iter() }
                .map(|at_ns| at_ns / SECOND_NS as i64)
                .collect();
            assert_eq!(seen, times, "{missed:?}");
        }
    }
}
