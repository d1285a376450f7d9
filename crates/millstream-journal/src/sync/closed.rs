//! Making the records of a journal durable that is not open: its files are synced as they are.
//!
//! Its watermark stays where it is, so that after a loss of power the next opening checks the records after it.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::format::{files, segment};
use crate::storage::{Mapped, Storage};

/// Makes the records and the record sets of the journal at `path` survive a loss of power, without opening it. It costs
/// one sync for each file; no thread, lock or descriptor is kept.
///
/// # Errors
/// [`Error::NotFound`]; an error of the system: what was not durable before may be lost.
///
/// ```
/// use millstream_journal::{Journal, Options, Sync, sync_closed};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders");
/// let options = Options { sync: Sync::Never, ..Options::default() };
/// Journal::open(&path, options)?.writer()?.append(b"first")?;
/// sync_closed(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(hidden)] // For the other crates of Millstream.
pub fn sync_closed(path: impl AsRef<Path>) -> Result<()> {
    let storage = Mapped::new(path);
    let names = files::list(&storage)?;
    let holds = |name: &&String| segment::number(name).is_some() || files::is_record_set(name);
    for name in names.iter().filter(holds) {
        let path = storage.path(name);
        let synced = File::open(&path).and_then(|file| file.sync_data());
        synced.map_err(|source| Error::Io {
            verb: "sync",
            path,
            source,
        })?;
    }
    Ok(())
}
