//! `touch`: the time of open items begins anew.

use std::time::Duration;

use super::Session;
use crate::broker::Broker;
use crate::moment::Moment;
use crate::protocol::{KeyFault, Touch, TouchKey, reply};
use crate::storage::Storage;

/// The longest time: memcached's bound of 30 days, beyond which a number is a date there.
const SECONDS_MAX: u64 = 2_592_000;

impl Session {
    pub(super) fn touch<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        touch: Touch<'_>,
        now: Moment,
    ) {
        let key = match TouchKey::parse(touch.key) {
            Ok(key) => key,
            Err(fault) => return reply::client_error(&mut self.output, &fault),
        };
        if touch.id.is_some() && key.id.is_some() {
            return reply::client_error(&mut self.output, &KeyFault::Ids);
        }
        let seconds = touch.seconds;
        if seconds > SECONDS_MAX {
            let why = format!("touch takes 0 to {SECONDS_MAX} seconds");
            return reply::client_error(&mut self.output, &why);
        }
        let limit = (seconds > 0).then(|| Duration::from_secs(seconds));
        let touched = broker.touch(self.id, key.name, touch.id.or(key.id), limit, now);
        self.write(if touched {
            reply::TOUCHED
        } else {
            reply::NOT_FOUND
        });
    }
}
