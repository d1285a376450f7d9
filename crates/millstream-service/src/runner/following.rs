//! Followers of the outputs: the number of inputs that the service may be ahead of them is limited.

use std::time::Duration;

use millstream_journal::Journal;

use crate::error::ServiceError;
use crate::settings::Settings;
use millstream_replication::{Followers, ReplicationError};

/// How many inputs are taken before the followers must have the outputs of all of them.
pub(super) const INPUTS_AHEAD_MAX: u32 = 256;

/// The followers of the output journal, and the number of inputs that the service is ahead of them.
pub(super) struct Following {
    followers: Followers,
    count: usize,
    output: Journal,
    /// They have all outputs before this one.
    acknowledged: u64,
    /// Inputs that were taken since.
    pub(super) inputs: u32,
}

impl Following {
    /// The followers that the settings require. They must first acknowledge the outputs from before the start.
    pub fn of(output: Option<&Journal>, settings: &Settings) -> Result<Option<Self>, ServiceError> {
        if settings.followers == 0 {
            return Ok(None);
        }
        let output = output.ok_or(ServiceError::NoOutput)?;
        Ok(Some(Following {
            followers: Followers::of(output),
            count: settings.followers,
            output: output.clone(),
            acknowledged: 0,
            inputs: INPUTS_AHEAD_MAX,
        }))
    }

    /// The component has been called with an input.
    pub fn took(&mut self) {
        self.inputs += 1;
    }

    pub fn wait(&mut self, limit: Duration) -> Result<bool, ServiceError> {
        let next = self.output.next()?;
        if next > self.acknowledged {
            match self.followers.wait(next - 1, self.count, Some(limit)) {
                Ok(()) => self.acknowledged = next,
                Err(ReplicationError::NotFollowed { .. }) => return Ok(false),
                Err(ReplicationError::Journal(error)) => return Err(error.into()),
                Err(error) => {
                    return Err(ServiceError::Followers {
                        output: self.output.path().display().to_string(),
                        cause: error,
                    });
                }
            }
        }
        self.inputs = 0;
        Ok(true)
    }
}
