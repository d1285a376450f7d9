//! Followers of the outputs: the service does not run away from them.

use std::time::Duration;

use millstream_journal::Journal;

use super::{LOOK, Runner};
use crate::error::ServiceError;
use crate::settings::{Settings, Stop};
use millstream_replication::{Followers, ReplicationError};

/// How many inputs are taken before the followers must have the outputs of all of them.
const INPUTS_AHEAD_MAX: u32 = 256;

/// The followers of the output journal, and how far the service is ahead of them.
pub(super) struct Following {
    followers: Followers,
    count: usize,
    output: Journal,
    /// They have all outputs before this one.
    acknowledged: u64,
    /// Inputs that were taken since.
    inputs: u32,
}

impl Following {
    /// The followers that the settings ask for. What was put out before the start is waited for first.
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

    fn wait(&mut self, limit: Duration) -> Result<bool, ServiceError> {
        let next = self.output.next()?;
        if next > self.acknowledged {
            match self.followers.wait(next - 1, self.count, Some(limit)) {
                Ok(()) => self.acknowledged = next,
                Err(ReplicationError::NotFollowed { .. }) => return Ok(false),
                Err(ReplicationError::Journal(error)) => return Err(error.into()),
                Err(error) => {
                    return Err(ServiceError::Followers {
                        output: self.output.path().display().to_string(),
                        cause: error.into(),
                    });
                }
            }
        }
        self.inputs = 0;
        Ok(true)
    }
}

impl<C> Runner<C> {
    /// Whether no more inputs should be taken before the [followers have the outputs](Self::wait_followed).
    #[inline]
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        let following = self.following.as_ref();
        following.is_some_and(|following| following.inputs >= INPUTS_AHEAD_MAX)
    }

    /// Whether there are followers to wait for.
    #[must_use]
    pub fn has_followers(&self) -> bool {
        self.following.is_some()
    }

    /// Waits until the followers have all outputs, for `limit` at most; true when they have, or when none are asked for.
    ///
    /// # Errors
    /// The output journal or the position of a follower cannot be read.
    pub fn wait_followed(&mut self, limit: Duration) -> Result<bool, ServiceError> {
        match &mut self.following {
            Some(following) => following.wait(limit),
            None => Ok(true),
        }
    }

    /// Waits for the followers until the service is to stop.
    pub(super) fn follow(&mut self, stop: &Stop) -> Result<(), ServiceError> {
        while !self.wait_followed(LOOK)? && !stop.is_set() {}
        Ok(())
    }
}
