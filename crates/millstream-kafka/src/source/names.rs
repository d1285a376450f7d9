//! The names of the partitions of a source: `orders/3`.

use crate::error::Error;

/// Returns the name of a partition of the source.
pub(super) fn name_of((topic, partition): (&str, i32)) -> String {
    format!("{topic}/{partition}")
}

/// Returns the topic and the number of a partition of the source by its name.
pub(super) fn parse_name(name: &str) -> Result<(&str, i32), Error> {
    let parsed = name.rsplit_once('/');
    let parsed = parsed.and_then(|(topic, number)| Some((topic, number.parse().ok()?)));
    parsed.ok_or(Error::Format("the name of a saved partition has no number"))
}
