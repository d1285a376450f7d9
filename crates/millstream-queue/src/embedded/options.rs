//! How a directory of queues is opened in process.

use std::path::PathBuf;

use crate::config::{Config, Sync};
use crate::error::QueueError;

/// How a directory of queues is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When an item is durable, where the configuration does not say. Default: before the item is acknowledged.
    pub sync: Sync,
    /// The configuration file, in the format of a server's.
    pub config: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sync: Sync::Always,
            config: None,
        }
    }
}

impl Options {
    pub(super) fn read_config(&self) -> Result<Config, QueueError> {
        let config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        Ok(config.or_sync(self.sync))
    }
}
