//! Times in the configuration.

use std::time::Duration;

use millstream_journal::times;
use serde::{Deserialize, Deserializer};

/// A time such as `90s`, `15min` or `24h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        duration(from).map(Time)
    }
}

/// Deserializes a time such as `30s`.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    times::parse(&text).ok_or_else(|| {
        let why = format!("\"{text}\" is no time such as 500ms, 90s or 24h");
        serde::de::Error::custom(why)
    })
}
