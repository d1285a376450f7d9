//! How a worker waits for input: it spins for a while if input comes quickly, and sleeps otherwise.
//!
//! The wake-up of a sleeping thread takes about 5 us, and 30 to 50 us on a virtual machine whose core has stopped; some of them take
//! milliseconds. A worker that is fed without a pause would pay it each time it has caught up. So it polls for a moment before it
//! sleeps, if that would have helped the last time, and not while other threads need the core. An idle flow sleeps.

use std::io;
use std::time::Duration;

use millstream_journal::contention::{Contention, waited_by_this_thread};

use crate::clock::now_ns;
use crate::run::poller::Poller;

/// The time for which a worker polls before it sleeps.
const SPIN_NS: u64 = 50_000;
/// Input after this time, for a sleeping thread, would have reached one that spins in time: the wake-up takes time too.
const QUICK_NS: u64 = 2 * SPIN_NS;

/// The waits of a worker.
pub(super) struct Waiting<W> {
    contention: Contention<W>,
    /// The time until which others need the core.
    paused_until_ns: u64,
    /// Whether the last input came within the time of a spin.
    quick: bool,
}

/// The waits of this thread. With one core no other thread could bring the input while it spins.
pub(super) fn of_this_thread() -> Waiting<impl FnMut() -> Option<u64>> {
    let alone = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    Waiting {
        contention: Contention::new(waited_by_this_thread()),
        paused_until_ns: if alone { u64::MAX } else { 0 },
        quick: false,
    }
}

impl<W: FnMut() -> Option<u64>> Waiting<W> {
    /// Waits in the poller for input or a wake-up, at most for `limit`.
    pub(super) fn wait(&mut self, poller: &mut Poller, limit: Duration) -> io::Result<()> {
        if limit.is_zero() {
            return poller.wait(Some(limit)).map(drop);
        }
        let began = now_ns();
        let spins = self.quick && began >= self.paused_until_ns;
        if spins && self.spin(poller, began, limit)? {
            return Ok(());
        }
        let spun = Duration::from_nanos(now_ns().saturating_sub(began));
        let found = poller.wait(Some(limit.saturating_sub(spun)))?;
        self.quick = found && now_ns().saturating_sub(began) < QUICK_NS;
        Ok(())
    }

    /// Polls for the time of a spin; true if there was input, or the limit was reached.
    fn spin(&mut self, poller: &mut Poller, began: u64, limit: Duration) -> io::Result<bool> {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        loop {
            if poller.wait(Some(Duration::ZERO))? {
                return Ok(true);
            }
            let now = now_ns();
            let spun = now.saturating_sub(began);
            if spun >= limit_ns {
                return Ok(true);
            }
            if spun >= SPIN_NS {
                return Ok(false);
            }
            if let Some(pause_us) = self.contention.check(now / 1000) {
                self.paused_until_ns = now + pause_us * 1000;
                return Ok(false);
            }
        }
    }
}
