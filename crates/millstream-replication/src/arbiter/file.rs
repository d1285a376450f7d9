//! An arbiter in a directory: each version of the record is a file, `lease.N`, which is never changed.
//!
//! A version is made by a link to a finished file, which one of several writers gets, also over NFS. The newest file is
//! never removed. So a writer that was slow, and makes a version that was removed long ago, finds a newer one
//! afterwards, and knows that it has replaced nothing.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_journal::Host;

use super::{Arbiter, ArbiterError, LeaseRecord, Version};

/// How many older versions are kept, to look at.
const KEPT: u64 = 8;
const PREFIX: &str = "lease.";
/// A file that is being made: `new.OWN.NUMBER`.
const NEW: &str = "new.";

pub(super) struct FileArbiter {
    dir: PathBuf,
    /// A number of its own, in the names of its files.
    own: u64,
    made: AtomicU64,
}

impl FileArbiter {
    pub fn new(dir: &Path) -> Self {
        FileArbiter {
            dir: dir.to_owned(),
            own: Host::real().random(),
            made: AtomicU64::new(0),
        }
    }

    /// What an operation of the system has failed of.
    fn failed(&self, text: impl std::fmt::Display) -> ArbiterError {
        ArbiterError::new(format!("file:{}", self.dir.display()), text)
    }

    fn version(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{PREFIX}{number:020}"))
    }

    /// The numbers of the versions, in their order.
    fn versions(&self) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            found.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn newest(&self) -> io::Result<Option<u64>> {
        Ok(self.versions()?.last().copied())
    }

    /// Writes a file, and gives it the name of a version too.
    fn link(&self, new: &Path, number: u64, text: &str) -> io::Result<()> {
        let mut file = File::create_new(new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::hard_link(new, self.version(number))
    }

    /// Makes the file of a version, unless there is one. Returns whether it is this one's.
    fn make(&self, number: u64, text: &str) -> io::Result<bool> {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let new = self.dir.join(format!("{NEW}{:016x}.{made}", self.own));
        let linked = self.link(&new, number, text);
        // A server of files may have done it, and its answer was lost: then the file has two names.
        let links = fs::metadata(&new).map(|found| found.nlink());
        // A file too many does no harm.
        let _ = fs::remove_file(&new);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && links? < 2 => {
                return Ok(false);
            }
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        File::open(&self.dir)?.sync_all()?;
        Ok(true)
    }

    fn remove_old(&self, versions: &[u64], newest: u64) -> io::Result<()> {
        for old in versions.iter().filter(|old| **old + KEPT < newest) {
            match fs::remove_file(self.version(*old)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn put(&self, before: Option<u64>, text: &str) -> io::Result<Option<u64>> {
        if self.newest()? != before {
            return Ok(None);
        }
        let number = before.map_or(0, |before| before + 1);
        if !self.make(number, text)? {
            return Ok(None);
        }
        let versions = self.versions()?;
        if versions.last() != Some(&number) {
            // It was replaced meanwhile, or is an old one that was made again.
            return Ok(None);
        }
        self.remove_old(&versions, number)?;
        Ok(Some(number))
    }

    fn get(&self) -> io::Result<Option<(u64, String)>> {
        loop {
            let Some(newest) = self.newest()? else {
                return Ok(None);
            };
            match fs::read_to_string(self.version(newest)) {
                // It was replaced, and removed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                text => return Ok(Some((newest, text?))),
            }
        }
    }
}

impl Arbiter for FileArbiter {
    fn read(&self) -> Result<Option<(Version, LeaseRecord)>, ArbiterError> {
        let Some((number, text)) = self.get().map_err(|error| self.failed(error))? else {
            return Ok(None);
        };
        let record = LeaseRecord::from_json(&text).map_err(|why| {
            self.failed(format_args!("{}: {why}", self.version(number).display()))
        })?;
        Ok(Some((Version(number.to_string()), record)))
    }

    fn replace(
        &self,
        version: Option<&Version>,
        record: &LeaseRecord,
    ) -> Result<Option<Version>, ArbiterError> {
        let before = match version.map(|version| version.0.parse()) {
            None => None,
            Some(Ok(number)) => Some(number),
            // It is none of this directory.
            Some(Err(_)) => return Ok(None),
        };
        let put = self.put(before, &record.to_json());
        let put = put.map_err(|error| self.failed(error))?;
        Ok(put.map(|number| Version(number.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(beat: u64) -> LeaseRecord {
        LeaseRecord {
            beat,
            ..LeaseRecord::default()
        }
    }

    #[test]
    fn one_of_many_writers_replaces_a_version() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_owned();
        let first = FileArbiter::new(&dir);
        first.replace(None, &record(0)).unwrap().unwrap();
        let won: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let arbiter = FileArbiter::new(&dir);
                        let mut won = 0;
                        while won < 50 {
                            let (version, found) = arbiter.read().unwrap().unwrap();
                            let next = record(found.beat + 1);
                            won += u64::from(
                                arbiter.replace(Some(&version), &next).unwrap().is_some(),
                            );
                        }
                        won
                    })
                })
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum()
        });
        let (_, last) = first.read().unwrap().unwrap();
        // A version that was made and replaced before its writer looked counts for none of them: it read as lost.
        assert!(
            last.beat >= won,
            "{won} were told that they replaced {}",
            last.beat
        );
        let names = fs::read_dir(&dir).unwrap().count() as u64;
        assert!(names <= KEPT + 1 + 4, "{names} files");
    }

    #[test]
    fn a_version_that_was_removed_is_not_replaced_again() {
        let folder = tempfile::tempdir().unwrap();
        let arbiter = FileArbiter::new(folder.path());
        let mut version = arbiter.replace(None, &record(0)).unwrap();
        let old = version.clone();
        for beat in 1..30 {
            version = arbiter.replace(version.as_ref(), &record(beat)).unwrap();
        }
        assert!(
            arbiter
                .replace(old.as_ref(), &record(99))
                .unwrap()
                .is_none()
        );
        // The writer had looked before, and was slow: it makes the file of a version that was removed.
        assert!(arbiter.make(1, "late").unwrap());
        assert_eq!(arbiter.versions().unwrap().last(), Some(&29));
        assert_eq!(arbiter.read().unwrap().unwrap().1, record(29));
    }

    #[test]
    fn what_is_no_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let arbiter = FileArbiter::new(folder.path());
        fs::write(folder.path().join("lease.00000000000000000007"), "{}").unwrap();
        let error = arbiter.read().unwrap_err().to_string();
        assert!(
            error.contains("lease.00000000000000000007: no record of a lease"),
            "{error}"
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_no_empty_one() {
        // It may be one that is not mounted.
        let folder = tempfile::tempdir().unwrap();
        let arbiter = FileArbiter::new(&folder.path().join("away"));
        let error = arbiter.read().unwrap_err().to_string();
        assert!(error.contains("away: No such file or directory"), "{error}");
        assert!(arbiter.replace(None, &record(0)).is_err());
    }
}
