//! Reading the files again while the server runs.

use millstream_journal::chain;
use tracing::{info, warn};

use super::core::{Core, State};
use super::files::{LoadedSettings, broker_limits};
use crate::clock;

impl Core {
    /// Reads all files again; the settings hold from now on, for existing connections too. Returns the settings that
    /// need a restart, each with the reason.
    ///
    /// # Errors
    /// The first invalid file. Nothing changes.
    pub(super) fn reload(&self, state: &mut State) -> Result<Vec<String>, String> {
        let mut loaded = LoadedSettings::read(&self.options).map_err(|error| {
            let line = format!("the old configuration holds: {}", chain(&error));
            warn!("{line}");
            line
        })?;
        let mut fixed = Vec::new();
        let item_bytes = loaded.live.limits.item_bytes;
        if item_bytes > state.item_bytes_max {
            fixed.push(format!(
                "limits.item_bytes = {} takes effect at the next start: until then it is {}, the largest record of the open journals",
                item_bytes, state.item_bytes_max
            ));
            loaded.live = loaded
                .live
                .with_item_bytes(state.item_bytes_max, self.options.shutdown);
        }
        state
            .broker
            .set_limits(broker_limits(&loaded.live.limits, state.descriptors_max));
        state.broker.configure(loaded.config, clock::now());
        state.live = loaded.live;
        // Each connection applies the new settings, also one that waits.
        for entry in state.entries.iter().flatten() {
            entry.waker.wake_by_ref();
        }
        self.wake_and_set_timer(state);
        self.spin_changed.notify_one();
        info!("configuration read");
        state.live.warn_of_rights();
        fixed.iter().for_each(|line| warn!("{line}"));
        Ok(fixed)
    }
}
