//! The file `.group` in a directory of queues: which group of machines they belong to, and where its arbiter is.
//!
//! With it, queues are not served without their arbiter, and an arbiter whose record was lost, or is another one's, is
//! noticed.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use crate::error::Cause;

const GROUP: &str = ".group";

/// A group of machines.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Group {
    /// Its number.
    pub number: u64,
    /// Its arbiter, as text.
    pub arbiter: String,
}

impl Group {
    /// The group of the queues in a directory, if they belong to one.
    ///
    /// # Errors
    /// The file cannot be read, or is none of a group.
    pub fn of(folder: &Path) -> Result<Option<Self>, Cause> {
        let path = folder.join(GROUP);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        let parsed = text
            .trim_end()
            .split_once(' ')
            .and_then(|(number, arbiter)| {
                let number = u64::from_str_radix(number, 16).ok()?;
                Some(Group {
                    number,
                    arbiter: arbiter.to_owned(),
                })
            });
        match parsed {
            Some(group) => Ok(Some(group)),
            None => Err(format!("{}: no number of a group and its arbiter", path.display()).into()),
        }
    }

    /// Notes that the queues in a directory belong to this group.
    pub(super) fn note(&self, folder: &Path) -> Result<(), Cause> {
        let path = folder.join(GROUP);
        let new = folder.join(".group.new");
        let mut file = File::create(&new)?;
        writeln!(file, "{:016x} {}", self.number, self.arbiter)?;
        file.sync_all()?;
        fs::rename(new, path)?;
        File::open(folder)?.sync_all()?;
        Ok(())
    }
}
