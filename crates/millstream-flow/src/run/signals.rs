//! Handles SIGINT and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Handlers of SIGINT and SIGTERM, active while this exists: the first signal sets a flag, a second one ends
/// the process.
pub(super) struct Signals {
    noted: Arc<AtomicBool>,
    hooks: Vec<signal_hook::SigId>,
}

impl Signals {
    pub(super) fn hook() -> Self {
        let noted = Arc::new(AtomicBool::new(false));
        let mut hooks = Vec::new();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The order matters: the shutdown reads the flag before this signal has raised it.
            let at_once = signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&noted),
            );
            // Registering fails only for signals that cannot be caught.
            hooks.extend(at_once.ok());
            hooks.extend(signal_hook::flag::register(signal, Arc::clone(&noted)).ok());
        }
        Signals { noted, hooks }
    }

    /// Returns a function that says whether a signal has come.
    pub(super) fn notes(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let noted = Arc::clone(&self.noted);
        move || noted.load(Ordering::Relaxed)
    }

    /// Whether a signal has come.
    pub(super) fn noted(&self) -> bool {
        self.noted.load(Ordering::Relaxed)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for hook in self.hooks.drain(..) {
            signal_hook::low_level::unregister(hook);
        }
    }
}
