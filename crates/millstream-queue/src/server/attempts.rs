//! Limits the rate of password attempts: after a wrong password, no other from the same origin is checked for a
//! second, on whatever connection it comes.
//!
//! Authenticated connections and other origins are not affected. The clients of a machine share its address. All IPv6
//! addresses of a network of 64 bits count as one origin, and so does each user on a Unix socket.
//!
//! The invariant: there are at most [`KEYS_MAX`] entries; the first to expire is removed first.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The time for which nothing is checked after a wrong password.
pub(super) const PENALTY: Duration = Duration::from_secs(1);
/// The number of origins. When it is exceeded, the first entry to expire is removed.
const KEYS_MAX: usize = 4_096;

/// The origin of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ThrottleKey {
    Address(IpAddr),
    /// A user of this machine, by number; `None` if the system does not say.
    User(Option<u32>),
}

impl ThrottleKey {
    /// The origin with this address.
    pub(super) fn of(address: IpAddr) -> Self {
        ThrottleKey::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        })
    }
}

/// The time until which no password of an origin is checked, on the steady clock in microseconds.
#[derive(Debug, Default)]
pub(super) struct Attempts(HashMap<ThrottleKey, u64>);

impl Attempts {
    /// Records a wrong password.
    pub(super) fn failed(&mut self, key: ThrottleKey, now_us: u64) {
        let until_us = now_us.saturating_add(PENALTY.as_micros() as u64);
        if self.0.len() >= KEYS_MAX && !self.0.contains_key(&key) {
            self.0.retain(|_, until_us| *until_us > now_us);
        }
        if self.0.len() >= KEYS_MAX
            && !self.0.contains_key(&key)
            && let Some(&first) = self
                .0
                .iter()
                .min_by_key(|(_, until)| **until)
                .map(|(at, _)| at)
        {
            self.0.remove(&first);
        }
        self.0.insert(key, until_us);
    }

    /// The time until which a password of this origin must wait; `None` if it need not.
    #[inline]
    pub(super) fn wait_until(&self, key: ThrottleKey, now_us: u64) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&key).copied().filter(|until| *until > now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ThrottleKey {
        ThrottleKey::of(text.parse().unwrap())
    }

    #[test]
    fn a_place_waits_and_others_do_not() {
        let mut attempts = Attempts::default();
        let bad = key("10.0.0.1");
        attempts.failed(bad, 5);
        assert_eq!(attempts.wait_until(bad, 6), Some(1_000_005));
        assert_eq!(attempts.wait_until(key("10.0.0.2"), 6), None);
        assert_eq!(attempts.wait_until(ThrottleKey::User(Some(0)), 6), None);
        assert_eq!(attempts.wait_until(bad, 1_000_005), None);
        attempts.failed(bad, 2_000_000);
        assert_eq!(attempts.wait_until(bad, 2_000_001), Some(3_000_000));
    }

    #[test]
    fn addresses_that_one_client_can_choose_are_one_place() {
        assert_eq!(key("2001:db8:1:2::3"), key("2001:db8:1:2:ffff::4"));
        assert_ne!(key("2001:db8:1:2::3"), key("2001:db8:1:3::3"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest_first() {
        let mut attempts = Attempts::default();
        let user = |number| ThrottleKey::User(Some(number));
        for number in 0..KEYS_MAX as u32 + 10 {
            attempts.failed(user(number), u64::from(number));
        }
        assert_eq!(attempts.0.len(), KEYS_MAX);
        assert_eq!(attempts.wait_until(user(9), 5_000), None);
        assert!(attempts.wait_until(user(10), 5_000).is_some());
        attempts.failed(user(0), 10_000_000);
        assert_eq!(attempts.0.len(), 1, "all others are over");
    }
}
