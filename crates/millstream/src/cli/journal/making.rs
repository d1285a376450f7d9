//! Options of the verbs that append: durability, and the sizes of a journal that is made.

use bytesize::ByteSize;
use millstream_journal::{Options, Sync};

use super::moment;

/// How a journal is opened to append.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Making {
    /// When records survive a loss of power: never, always (before they are acknowledged), or a time like 100ms.
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = parse_sync)]
    pub(super) sync: Sync,
    /// The size of a segment of a journal that is made, like 64MiB.
    #[arg(long, value_name = "SIZE")]
    pub(super) segment_bytes: Option<ByteSize>,
}

impl Making {
    /// As options of the journal.
    pub(super) fn options(&self) -> Options {
        let options = Options::default().with_sync(self.sync);
        match self.segment_bytes {
            Some(bytes) => options.with_segment_bytes(bytes.as_u64()),
            None => options,
        }
    }
}

fn parse_sync(text: &str) -> Result<Sync, String> {
    match text {
        "never" => Ok(Sync::Never),
        "always" => Ok(Sync::Always),
        time => match moment::parse_duration(time) {
            Ok(time) if !time.is_zero() => Ok(Sync::Every(time)),
            _ => Err("never, always, or a time above 0 like 100ms".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sync_is_one_of_three() {
        assert_eq!(parse_sync("never"), Ok(Sync::Never));
        assert_eq!(parse_sync("always"), Ok(Sync::Always));
        assert_eq!(
            parse_sync("50ms"),
            Ok(Sync::Every(Duration::from_millis(50)))
        );
        for wrong in ["", "0s", "sometimes", "-1s"] {
            assert!(parse_sync(wrong).is_err(), "{wrong}");
        }
    }
}
