//! Opening a journal: to read, or to append with the options of the verbs that do.

use std::path::Path;

use bytesize::ByteSize;
use millstream_journal::{Journal, Options, Sync};

use crate::failure::Failure;
use crate::outcome::Outcome;

/// How a journal is opened to append.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct AppendOptions {
    /// When records survive a loss of power: never, always (before they are acknowledged), or a time like 100ms.
    #[arg(long, value_name = "WHEN", default_value = "never")]
    pub(super) sync: Sync,
    /// The size of a segment of a new journal, like 64MiB.
    #[arg(long, value_name = "SIZE")]
    pub(super) segment_bytes: Option<ByteSize>,
}

impl AppendOptions {
    /// As options of the journal.
    pub(super) fn options(&self) -> Options {
        let options = Options::default().with_sync(self.sync);
        match self.segment_bytes {
            Some(bytes) => options.with_segment_bytes(bytes.as_u64()),
            None => options,
        }
    }
}

/// An error for the changes of queues, which their server writes and removes: without its snapshot a copy is useless.
pub(super) fn check_no_changes(path: &Path) -> Outcome {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real.file_name().is_some_and(|name| name == ".changes") {
        Err(Failure::usage(format!(
            "{}: the changes of queues are written and pruned by `millstream queue serve` and `queue follow` alone",
            path.display()
        ))
        .into())
    } else {
        Ok(())
    }
}

/// Opens a journal read-only.
pub(super) fn open_to_read(path: &Path) -> Outcome<Journal> {
    Ok(Journal::open(path, Options::read_only())?)
}
