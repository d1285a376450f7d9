//! The interface to the machine: clocks, randomness, the identity of this boot, and background threads.
//!
//! Nothing else in this crate asks the system for any of them, so that a simulation can replace them and repeat a run
//! from a seed.
//!
//! ```
//! use millstream_journal::{Host, Options};
//! let options = Options { host: Host::simulated(|| 42, || 7), ..Options::default() };
//! assert_eq!(options.host.time_ns(), 42);
//! ```

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{monotonic_ns, wall_ns};

type Source = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Clocks, randomness and identity, real or simulated.
#[derive(Clone)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Host {
    simulated: Option<Simulated>,
    boot: u128,
    namespace: u32,
}

#[derive(Clone)]
struct Simulated {
    time_ns: Source,
    monotonic_ns: Source,
    random: Source,
}

impl Host {
    /// This machine.
    #[must_use]
    pub fn real() -> Self {
        Host {
            simulated: None,
            boot: boot_id(),
            namespace: pid_namespace(),
        }
    }

    /// A host whose time (ns since 1970) and random numbers are given, and that has no background threads: what they
    /// would do is done inside the calls.
    #[must_use]
    pub fn simulated(
        time_ns: impl Fn() -> u64 + Send + Sync + 'static,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let time_ns: Source = Arc::new(time_ns);
        let simulated = Simulated {
            monotonic_ns: Arc::clone(&time_ns),
            time_ns,
            random: Arc::new(random),
        };
        Host {
            simulated: Some(simulated),
            boot: 1,
            namespace: 0,
        }
    }

    /// The same simulated host with a clock for durations, in ns, beside the one for times: that one may be set, this
    /// one never goes back. A real host stays as it is.
    #[must_use]
    pub fn with_monotonic(
        mut self,
        monotonic_ns: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        if let Some(simulated) = &mut self.simulated {
            simulated.monotonic_ns = Arc::new(monotonic_ns);
        }
        self
    }

    /// The same host after it was started again, when `boot` differs. 0 is unknown: never the same boot.
    #[must_use]
    pub fn with_boot(self, boot: u128) -> Self {
        Host { boot, ..self }
    }

    /// Wall time in ns since 1970.
    #[inline]
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        match &self.simulated {
            None => wall_ns(),
            Some(simulated) => (simulated.time_ns)(),
        }
    }

    /// Time since an arbitrary moment, which goes on also when the wall clock is set.
    #[must_use]
    pub fn monotonic(&self) -> Duration {
        Duration::from_nanos(match &self.simulated {
            None => monotonic_ns(),
            Some(simulated) => (simulated.monotonic_ns)(),
        })
    }

    /// A number that no other call returns, on any machine.
    #[must_use]
    pub fn random(&self) -> u64 {
        if let Some(simulated) = &self.simulated {
            return (simulated.random)();
        }
        // The standard library seeds its hash tables with what the system calls random.
        RandomState::new().hash_one(wall_ns())
    }

    pub(crate) fn boot(&self) -> u128 {
        self.boot
    }

    /// Where numbers of processes mean the same as here; 0 is unknown.
    pub(crate) fn namespace(&self) -> u32 {
        self.namespace
    }

    pub(crate) fn has_threads(&self) -> bool {
        self.simulated.is_none()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.simulated.is_some() {
            "simulated"
        } else {
            "real"
        };
        write!(f, "Host({kind}, boot {:x})", self.boot)
    }
}

/// The kernel's name for this boot. Without one every opening takes the long way, as after a crash of the machine.
fn boot_id() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

/// The number in `pid:[4026531836]`.
fn pid_namespace() -> u32 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = link
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or(0)
}
