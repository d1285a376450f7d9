//! The threads that the journals of a process share for their work in the background.
//!
//! A [`Job`] is the work of one opening. A thread calls it for one piece at a time, and the job says when it wants the
//! next call. A job that wants none costs nothing until it is [called](Member::call_at) again.
//!
//! Jobs of one file system form a *group*. A group starts a thread when a call is due and its others are busy, up to
//! [`THREADS_MAX`], and ends a thread that had nothing to do for [`LINGER`]. So a disk that stalls holds up the
//! journals of its own file system only, and among those only when all these threads wait for it. A group has a thread
//! at all times while one of its jobs is *timed*: such a call must not depend on whether a thread can be started then.
//!
//! A thread may run on the cores on which the threads that joined the group could run then: it may be started by one
//! that is kept on a core since.
//!
//! One thread of a group waits for the next call that is due (the *watcher*); others sleep until they are needed. A
//! forked child has none of its parent's threads and begins with groups of its own.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::clock::monotonic_ns;
use crate::mutex::lock;

/// The most threads of a group: so many syncs may be in progress at a time.
const THREADS_MAX: usize = 8;
/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(2);

/// Work in the background.
pub(crate) trait Job: Send + Sync + 'static {
    /// Does a piece of it. Returns when to be called next, by the monotonic clock; `None`: only when it is asked for.
    fn turn(&self) -> Option<Duration>;

    /// A turn has panicked with these words: there will be no further one.
    fn panicked(&self, what: &str);
}

/// A job among those of its group.
pub(crate) struct Member {
    group: &'static Group,
    id: u64,
    is_timed: bool,
}

/// The jobs of one file system, and their threads. It stays until the process ends.
#[derive(Default)]
struct Group {
    state: Mutex<State>,
    /// The watcher waits here.
    due: Condvar,
    /// Threads that are not needed now wait here.
    needed: Condvar,
    /// A turn has ended of a job that leaves.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    jobs: HashMap<u64, Entry>,
    queue: BTreeSet<(Duration, u64)>,
    last_id: u64,
    threads: usize,
    /// How many of the threads have not looked for work yet.
    starting: usize,
    spare: usize,
    is_watched: bool,
    timed: usize,
    /// Where its threads may run.
    cores: Cores,
    /// How many threads wait for the end of a turn.
    leaving: usize,
}

struct Entry {
    job: Arc<dyn Job>,
    /// When it is called next, and then so in the queue, unless a thread calls it now.
    due: Option<Duration>,
    is_running: bool,
    has_panicked: bool,
}

/// The groups of this process.
struct Groups {
    process: u32,
    by_device: Mutex<HashMap<u64, &'static Group>>,
    /// Those of a forked child, which must not look into the others: a thread that does not exist in it may have locked
    /// them.
    of_child: OnceLock<&'static Groups>,
}

impl Groups {
    fn of_process() -> &'static Groups {
        static FIRST: OnceLock<&'static Groups> = OnceLock::new();
        let mut place = &FIRST;
        loop {
            let groups = match place.get() {
                Some(groups) => groups,
                None => {
                    let new: &'static Groups = Box::leak(Box::new(Groups {
                        process: std::process::id(),
                        by_device: Mutex::default(),
                        of_child: OnceLock::new(),
                    }));
                    *place.get_or_init(|| new)
                }
            };
            if groups.process == std::process::id() {
                return groups;
            }
            place = &groups.of_child;
        }
    }

    fn group(&self, device: u64) -> &'static Group {
        let mut groups = lock(&self.by_device);
        groups
            .entry(device)
            .or_insert_with(|| Box::leak(Box::default()))
    }
}

/// Adds a job of the file system `device`. It is called when it [asks](Member::call_at) for it.
///
/// # Errors
/// No thread can be started for a timed job.
pub(crate) fn join(device: u64, job: Arc<dyn Job>, is_timed: bool) -> io::Result<Member> {
    let group = Groups::of_process().group(device);
    let mut state = lock(&group.state);
    state.cores.add_own();
    if is_timed && state.threads == 0 {
        group.start_thread(&mut state)?;
    }
    state.timed += usize::from(is_timed);
    state.last_id += 1;
    let id = state.last_id;
    state.jobs.insert(
        id,
        Entry {
            job,
            due: None,
            is_running: false,
            has_panicked: false,
        },
    );
    Ok(Member {
        group,
        id,
        is_timed,
    })
}

impl Member {
    /// Calls the job at this moment, or at an earlier one that it has asked for.
    pub(crate) fn call_at(&self, at: Duration) {
        let mut state = lock(&self.group.state);
        if state.call_at(self.id, at) {
            self.group.notify(&mut state);
        }
    }

    /// Calls the job as soon as possible.
    pub(crate) fn call(&self) {
        self.call_at(now());
    }

    /// Ends the calls of the job. A turn that is in progress ends first.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.group.state);
        while state.jobs.get(&self.id).is_some_and(|job| job.is_running) {
            state.leaving += 1;
            state = wait(&self.group.ended, state);
            state.leaving -= 1;
        }
        let Some(entry) = state.jobs.remove(&self.id) else {
            return;
        };
        if let Some(due) = entry.due {
            state.queue.remove(&(due, self.id));
        }
        state.timed -= usize::from(self.is_timed);
        if state.timed == 0 {
            self.group.needed.notify_all();
        }
        if state.queue.is_empty() {
            self.group.due.notify_all();
        }
    }
}

impl State {
    /// Notes a call. Returns whether a thread must know of it.
    fn call_at(&mut self, id: u64, at: Duration) -> bool {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return false;
        };
        if entry.has_panicked || entry.due.is_some_and(|due| due <= at) {
            return false;
        }
        let before = entry.due.replace(at);
        if entry.is_running {
            return false;
        }
        if let Some(before) = before {
            self.queue.remove(&(before, id));
        }
        self.queue.insert((at, id));
        self.queue.first() == Some(&(at, id))
    }

    /// Takes the job whose call is due, if there is one.
    fn take_due(&mut self) -> Option<(u64, Arc<dyn Job>)> {
        let (due, id) = *self.queue.first()?;
        if due > now() {
            return None;
        }
        self.queue.pop_first();
        let entry = self.jobs.get_mut(&id)?;
        entry.due = None;
        entry.is_running = true;
        Some((id, Arc::clone(&entry.job)))
    }
}

impl Group {
    /// The first call of the queue is another one: lets a thread see to it.
    fn notify(&'static self, state: &mut State) {
        if state.is_watched {
            self.due.notify_one();
        } else if state.spare > 0 {
            self.needed.notify_one();
        } else if state.threads < THREADS_MAX && state.starting == 0 {
            // Without another thread the next one that has time sees to it.
            let _later = self.start_thread(state);
        }
    }

    fn start_thread(&'static self, state: &mut State) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("journals".to_owned());
        thread.spawn(|| self.run())?;
        state.threads += 1;
        state.starting += 1;
        Ok(())
    }

    fn run(&'static self) {
        let mut state = lock(&self.state);
        state.starting -= 1;
        state.cores.stay();
        loop {
            state = if let Some((id, job)) = state.take_due() {
                self.call(state, id, job)
            } else if let (false, Some((due, _))) = (state.is_watched, state.queue.first()) {
                let left = due.saturating_sub(now());
                state.is_watched = true;
                state = wait_for(&self.due, state, left).0;
                state.is_watched = false;
                state
            } else {
                state.spare += 1;
                // The last one stays for timed jobs.
                let stays = state.timed > 0 && state.threads == 1;
                let (after, is_over) = if stays {
                    (wait(&self.needed, state), false)
                } else {
                    wait_for(&self.needed, state, LINGER)
                };
                state = after;
                state.spare -= 1;
                // A notice may have come just when the time was over.
                let is_needed = !state.is_watched && !state.queue.is_empty();
                let is_last = state.timed > 0 && state.threads == 1;
                if is_over && !is_needed && !is_last {
                    state.threads -= 1;
                    return;
                }
                state
            };
        }
    }

    /// Calls a job that was taken from the queue. Meanwhile another thread watches the rest of the queue.
    fn call<'a>(
        &'static self,
        mut state: MutexGuard<'a, State>,
        id: u64,
        job: Arc<dyn Job>,
    ) -> MutexGuard<'a, State>
    where
        Self: 'a,
    {
        if !state.queue.is_empty() && !state.is_watched {
            self.notify(&mut state);
        }
        drop(state);
        let turn = catch_unwind(AssertUnwindSafe(|| job.turn()));
        if let Err(panic) = &turn {
            job.panicked(panic_text(&**panic));
        }
        // It may be the last owner of what was mapped: not under the lock.
        drop(job);
        let mut state = lock(&self.state);
        let Some(entry) = state.jobs.get_mut(&id) else {
            return state;
        };
        entry.is_running = false;
        entry.has_panicked = turn.is_err();
        // A call that was asked for during the turn, and the one that the turn has asked for.
        let asked = entry.due.take();
        let next = turn.unwrap_or(None).into_iter().chain(asked).min();
        if let Some(at) = next
            && state.call_at(id, at)
            && at > now()
            && state.is_watched
        {
            self.due.notify_one();
        }
        if state.leaving > 0 {
            self.ended.notify_all();
        }
        state
    }
}

/// The cores on which a thread may run.
#[cfg(target_os = "linux")]
#[derive(Default)]
struct Cores(rustix::thread::CpuSet);

#[cfg(target_os = "linux")]
impl Cores {
    /// Adds those of this thread.
    fn add_own(&mut self) {
        use rustix::thread::{CpuSet, sched_getaffinity};
        // More cores than a set has numbers for: threads stay where they are started.
        if let Ok(own) = sched_getaffinity(None) {
            for core in (0..CpuSet::MAX_CPU).filter(|core| own.is_set(*core)) {
                self.0.set(core);
            }
        }
    }

    /// Lets this thread run on them.
    fn stay(&self) {
        if self.0.count() > 0 {
            // Only speed depends on it.
            let _tried = rustix::thread::sched_setaffinity(None, &self.0);
        }
    }
}

/// Threads run where the system lets them.
#[cfg(not(target_os = "linux"))]
#[derive(Default)]
struct Cores;

#[cfg(not(target_os = "linux"))]
impl Cores {
    fn add_own(&mut self) {}

    fn stay(&self) {}
}

fn now() -> Duration {
    Duration::from_nanos(monotonic_ns())
}

fn wait<'a>(changed: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    changed.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for this time at most; returns whether all of it has passed.
fn wait_for<'a>(
    changed: &Condvar,
    state: MutexGuard<'a, State>,
    time: Duration,
) -> (MutexGuard<'a, State>, bool) {
    let (state, waited) = changed
        .wait_timeout(state, time)
        .unwrap_or_else(PoisonError::into_inner);
    (state, waited.timed_out())
}

/// Returns the message of a panic from its payload.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Says that it was called, and does what it is ordered.
    struct Told {
        calls: Mutex<Sender<()>>,
        orders: Mutex<Receiver<Order>>,
        panics: AtomicUsize,
    }

    enum Order {
        End,
        Again,
        Panic,
    }

    impl Job for Told {
        fn turn(&self) -> Option<Duration> {
            lock(&self.calls).send(()).unwrap();
            match lock(&self.orders).recv() {
                Ok(Order::Again) => Some(now()),
                Ok(Order::Panic) => panic!("as it was told"),
                Ok(Order::End) | Err(_) => None,
            }
        }

        fn panicked(&self, what: &str) {
            assert_eq!(what, "as it was told");
            self.panics.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn told() -> (Arc<Told>, Receiver<()>, Sender<Order>) {
        let ((calls, called), (order, orders)) = (channel(), channel());
        let told = Told {
            calls: Mutex::new(calls),
            orders: Mutex::new(orders),
            panics: AtomicUsize::new(0),
        };
        (Arc::new(told), called, order)
    }

    #[test]
    fn a_call_during_a_turn_is_not_lost_and_a_turn_may_ask_for_the_next() {
        let (job, called, order) = told();
        let member = join(u64::MAX, job, false).unwrap();
        member.call();
        called.recv().unwrap();
        member.call();
        order.send(Order::End).unwrap();
        called.recv().unwrap();
        order.send(Order::Again).unwrap();
        called.recv().unwrap();
        order.send(Order::End).unwrap();
        member.leave();
        member.call();
        assert!(called.try_recv().is_err());
    }

    #[test]
    fn jobs_that_hang_hold_up_only_their_own_group() {
        let stuck = u64::MAX - 1;
        let other = u64::MAX - 2;
        let hang: Vec<_> = (0..2 * THREADS_MAX).map(|_| told()).collect();
        let hang = hang.iter().map(|(job, called, _order)| {
            let member = join(stuck, Arc::clone(job) as _, true).unwrap();
            member.call();
            (member, called)
        });
        let hang: Vec<_> = hang.collect();
        for (_, called) in &hang[..THREADS_MAX] {
            called.recv().unwrap();
        }
        assert!(
            hang[THREADS_MAX..]
                .iter()
                .all(|(_, called)| called.try_recv().is_err())
        );
        let (job, called, order) = told();
        let member = join(other, job, true).unwrap();
        member.call();
        called.recv().unwrap();
        order.send(Order::End).unwrap();
        member.leave();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_a_pinned_one_starts_is_not_pinned() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        struct Cores(Mutex<Sender<CpuSet>>);
        impl Job for Cores {
            fn turn(&self) -> Option<Duration> {
                lock(&self.0)
                    .send(sched_getaffinity(None).unwrap())
                    .unwrap();
                None
            }
            fn panicked(&self, _what: &str) {}
        }
        let all = sched_getaffinity(None).unwrap();
        let (sender, cores) = channel();
        let member = join(u64::MAX - 4, Arc::new(Cores(Mutex::new(sender))), false).unwrap();
        let mut one = CpuSet::new();
        one.set((0..).find(|core| all.is_set(*core)).unwrap());
        sched_setaffinity(None, &one).unwrap();
        member.call();
        assert!(cores.recv().unwrap() == all);
        member.leave();
        sched_setaffinity(None, &all).unwrap();
    }

    #[test]
    fn a_panic_ends_the_calls_of_its_job_only() {
        let group = u64::MAX - 3;
        let (job, called, order) = told();
        let member = join(group, Arc::clone(&job) as _, true).unwrap();
        let (other_job, other_called, other_order) = told();
        let other = join(group, other_job, true).unwrap();
        member.call();
        called.recv().unwrap();
        order.send(Order::Panic).unwrap();
        member.call();
        other.call();
        other_called.recv().unwrap();
        other_order.send(Order::End).unwrap();
        other.leave();
        member.leave();
        assert_eq!(job.panics.load(Ordering::SeqCst), 1);
        assert!(called.try_recv().is_err());
    }
}
