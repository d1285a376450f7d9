//! Syncs of a journal that many requests share: all that arrive during a sync wait for the next one.

use std::sync::Arc;

use millstream_flow::error::Cause;
use millstream_journal::{Error, chain};
use tokio::sync::{Notify, watch};

/// Requests that wait for a sync, and the progress of the syncs.
#[derive(Default)]
pub(crate) struct GroupSync {
    unsynced: Notify,
    synced: watch::Sender<Synced>,
}

/// The progress of the syncs.
#[derive(Clone, Debug, Default)]
struct Synced {
    /// The number of the first record that may not survive a loss of power.
    before: u64,
    failed: Option<String>,
}

impl GroupSync {
    /// Waits until the record `sequence` survives a loss of power.
    pub(crate) async fn wait_durable(&self, sequence: u64) -> Result<(), Cause> {
        self.unsynced.notify_one();
        let mut synced = self.synced.subscribe();
        let synced = synced.wait_for(|synced| synced.before > sequence || synced.failed.is_some());
        let synced = synced.await?.clone();
        match synced.failed {
            Some(error) if synced.before <= sequence => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Calls `sync` whenever there are new records. It returns the number of the first record that may not survive.
    /// Ends after an error, which all later requests receive.
    pub(crate) async fn keep_synced(
        &self,
        sync: Arc<impl Fn() -> Result<u64, Error> + Send + Sync + 'static>,
    ) {
        loop {
            self.unsynced.notified().await;
            let sync = Arc::clone(&sync);
            let sync = move || sync().map_err(|error| chain(&error).to_string());
            let synced = tokio::task::spawn_blocking(sync).await;
            match synced.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(before) => self.synced.send_modify(|synced| synced.before = before),
                Err(error) => {
                    self.synced
                        .send_modify(|synced| synced.failed = Some(error));
                    return;
                }
            }
        }
    }
}
