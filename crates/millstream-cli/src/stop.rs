//! Ctrl-C and SIGTERM: the first asks the verb to finish, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// Whether a signal asked the program to finish.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listen to the signals from now on.
    pub fn on_signals() -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the shutdown looks at the flag before this signal has set it.
            flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
                .map_err(Failure::failed)?;
            flag::register(signal, stop.clone()).map_err(Failure::failed)?;
        }
        Ok(Self(stop))
    }

    /// The flag itself, for work that does not handle signals.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether the signal has come.
    #[inline]
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
