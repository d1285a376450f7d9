//! Options of the verbs that append: durability, and the sizes of a journal that is made.

use bytesize::ByteSize;
use millstream_journal::{Options, Sync};

/// How a journal is opened to append.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Making {
    /// When records survive a loss of power: never, always (before they are acknowledged), or a time like 100ms.
    #[arg(long, value_name = "WHEN", default_value = "never")]
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
