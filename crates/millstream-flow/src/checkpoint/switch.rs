//! Replaces the state directories of one division by those of another.
//!
//! Everything is done by renames within `DIR`, each of which may already have been done: after a crash the same steps
//! are taken again. New entries come from `DIR/scaling/next/pN`; what they replace goes to `DIR/scaling/old`, and is
//! removed at the end with the plan.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use millstream_journal::storage::{create_dir_durably, sync_entry};

use super::directories::{Layout, names, process_dir};
use crate::error::{Cause, context};

/// The directory of a division that is being prepared or made.
const SCALING: &str = "scaling";
/// The entries of a state directory that a division writes anew. All others stay with the process of the same number.
const DIVIDED: [&str; 4] = ["epochs", "files", "queues", "stopped"];

/// The number of processes of a division that was interrupted in `dir`.
pub(super) fn interrupted(dir: &Path) -> Option<usize> {
    Plan::of(dir).map(|plan| plan.to.processes())
}

/// A division that was decided on.
pub(super) struct Plan {
    pub(super) from: Layout,
    pub(super) to: Layout,
    /// The directories that are put aside, and where they are kept.
    pub(super) aside: Vec<(PathBuf, PathBuf)>,
}

impl Plan {
    fn path(dir: &Path) -> PathBuf {
        dir.join(SCALING).join("plan")
    }

    /// The division that was decided on in `dir` and is not complete.
    pub(super) fn of(dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(Self::path(dir)).ok()?;
        let mut lines = text.lines();
        let (from, to) = lines.next()?.split_once(' ')?;
        let aside = lines.filter_map(|line| {
            let (from, to) = line.split_once('\t')?;
            Some((dir.join(from), dir.join(to)))
        });
        Some(Plan {
            from: Layout::of_number(from.parse().ok()?),
            to: Layout::of_number(to.parse().ok()?),
            aside: aside.collect(),
        })
    }

    /// Decides on the division that was written: from here on it is completed, also after a crash.
    pub(super) fn decide(&self, dir: &Path) -> Result<(), Cause> {
        let path = Self::path(dir);
        let draft = path.with_extension("draft");
        let mut text = format!("{} {}\n", self.from.number(), self.to.number());
        for (from, to) in &self.aside {
            let within = |path: &Path| path.strip_prefix(dir).unwrap_or(path).display().to_string();
            text += &format!("{}\t{}\n", within(from), within(to));
        }
        fs::write(&draft, text)?;
        File::open(&draft)?.sync_all()?;
        fs::rename(&draft, &path)?;
        sync_entry(&path)?;
        Ok(())
    }

    /// Completes the division. Each step may have been taken before.
    pub(super) fn complete(&self, dir: &Path) -> Result<(), Cause> {
        let old = dir.join(SCALING).join("old");
        fs::create_dir_all(&old)?;
        for (from, to) in &self.aside {
            create_dir_durably(to.parent().unwrap_or(dir))?;
            rename(from, to)?;
        }
        if self.from == Layout::Single && self.to != Layout::Single {
            for name in DIVIDED {
                rename(&dir.join(name), &old.join(name))?;
            }
        }
        for process in 0..self.to.processes() {
            self.complete_process(dir, process)?;
        }
        if let Layout::Processes(before) = self.from {
            let stay = match self.to {
                Layout::Single => 0,
                Layout::Processes(after) => after,
            };
            for process in stay..before {
                rename(&process_dir(dir, process), &old.join(format!("p{process}")))?;
            }
        }
        File::open(dir)?.sync_all()?;
        fs::remove_file(Self::path(dir))?;
        sync_entry(&Self::path(dir))?;
        fs::remove_dir_all(dir.join(SCALING))?;
        Ok(())
    }

    /// Puts the new entries of one process in their place.
    fn complete_process(&self, dir: &Path, process: usize) -> Result<(), Cause> {
        let old = dir.join(SCALING).join("old");
        let next = process_dir(dir.join(SCALING).join("next"), process);
        let own = self.to.dir(dir, process);
        create_dir_durably(&own)?;
        let before = self.from.dir(dir, process);
        if process == 0 && before != own {
            move_undivided(&before, &own)?;
        }
        for name in names(&next)? {
            rename(&own.join(&name), &old.join(format!("p{process}.{name}")))?;
            rename(&next.join(&name), &own.join(&name))?;
        }
        File::open(&own)?.sync_all()?;
        Ok(())
    }
}

/// Creates the directory for new state directories, and removes what an earlier attempt has left.
pub(super) fn begin(dir: &Path) -> Result<PathBuf, Cause> {
    let scaling = dir.join(SCALING);
    if scaling.exists() {
        fs::remove_dir_all(&scaling)?;
    }
    let next = scaling.join("next");
    create_dir_durably(&next)?;
    Ok(next)
}

/// Moves what is not divided anew from the directory of one layout to that of another.
fn move_undivided(from: &Path, to: &Path) -> Result<(), Cause> {
    if !from.exists() {
        return Ok(());
    }
    for name in names(from)? {
        let is_process =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let is_other = name == SCALING || name.strip_prefix('p').is_some_and(is_process);
        if !is_other && !DIVIDED.contains(&&*name) {
            rename(&from.join(&name), &to.join(&name))?;
        }
    }
    File::open(from)?.sync_all()?;
    Ok(())
}

/// Renames, unless it was done before.
fn rename(from: &Path, to: &Path) -> Result<(), Cause> {
    #[cfg(test)]
    tests::count()?;
    match fs::rename(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !from.exists() => Ok(()),
        Err(error) => Err(context(
            format_args!("{} to {}", from.display(), to.display()),
            error,
        )),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::checkpoint::division::write_stopped;
    use crate::key::Shards;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::super::opened::Opened;
    use super::super::record::{SourceMark, TimeMark};
    use super::super::rescale::rescale;
    use super::super::store::Saved;
    use super::super::{Changes, Commit, Recovery, processes_in};
    use super::*;

    thread_local! {
        /// The number of renames until the process dies.
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Counts a rename.
    pub(super) fn count() -> Result<(), Cause> {
        match LEFT.get().checked_sub(1) {
            Some(left) => {
                LEFT.set(left);
                Ok(())
            }
            None => Err("the process dies".into()),
        }
    }

    /// A state of one process with keys in all shards.
    fn state(dir: &Path) {
        let mut store = Opened::open(dir, false)
            .and_then(Opened::truncate)
            .expect("it opens");
        let mut changes = Changes::new("count", Shards::default());
        for key in 0..600usize {
            let shard = key % Shards::default().count();
            let saved = key.to_le_bytes();
            let state = (key * 3).to_le_bytes();
            changes.copy(shard, key as u64, &saved, (1, &state));
        }
        let commit = Commit {
            epoch: 5,
            workers: 2,
            flow: "test".to_owned(),
            sources: vec![SourceMark {
                source: "in".to_owned(),
                partition: "a".to_owned(),
                position: 70.into(),
                recorded: false,
                local: None,
                input: None,
            }],
            watermarks: vec![TimeMark::of_step("count".to_owned(), 9)],
            ..Commit::default()
        };
        store
            .commit(changes.records().collect(), &commit)
            .expect("it commits");
        write_stopped(dir, commit.epoch).expect("it is written");
        fs::create_dir_all(dir.join("outputs/none")).expect("a folder");
        fs::remove_dir(dir.join("outputs/none")).expect("a folder");
        fs::create_dir_all(dir.join("http")).expect("a folder");
        fs::write(dir.join("http/kept"), "by process 0").expect("a file");
    }

    /// The keys of all processes with their states, and the place of each by the rule.
    fn keys(dir: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let found = processes_in(dir).expect("it is read");
        let dirs: Vec<PathBuf> = if found.is_empty() {
            vec![dir.to_owned()]
        } else {
            found
                .iter()
                .map(|process| process_dir(dir, *process))
                .collect()
        };
        let mut keys = BTreeMap::new();
        for (process, dir) in dirs.iter().enumerate() {
            let saved = Saved::open(dir).expect("it is read");
            let commit = saved.commit().expect("it is committed");
            assert_eq!((commit.epoch, commit.sources.len()), (5, 1));
            assert_eq!(commit.watermarks[0].at, 9);
            for key in saved.keys("count", |_| true).expect("it is read") {
                if let Some(division) = &commit.division {
                    let workers = division.processes * division.workers;
                    let worker = crate::key::worker_of(key.shard, workers);
                    assert_eq!(worker / division.workers, process);
                }
                assert_eq!(keys.insert(key.key, key.state), None);
            }
        }
        assert!(dirs[0].join("http/kept").exists());
        keys
    }

    #[test]
    fn keys_move_to_the_processes_of_their_shards() {
        let dir = tempfile::tempdir().expect("a folder");
        state(dir.path());
        let before = keys(dir.path());
        assert_eq!(before.len(), 600);
        for (processes, workers) in [(4, 1), (2, 3), (3, 2), (1, 2), (1, 4)] {
            let done = rescale(dir.path(), processes, Some(workers), false).expect("it is divided");
            assert_eq!((done.keys, done.epoch), (600, 5));
            assert_eq!(keys(dir.path()), before);
            assert_eq!(dir.path().join("epochs").exists(), processes == 1);
            assert!(!dir.path().join(SCALING).exists());
        }
    }

    #[test]
    fn a_division_that_is_interrupted_anywhere_is_the_old_one_or_is_completed() {
        for shape in [[1, 2], [3, 2], [2, 1]] {
            let mut renames = 0;
            loop {
                let dir = tempfile::tempdir().expect("a folder");
                state(dir.path());
                let before = keys(dir.path());
                rescale(dir.path(), shape[0], None, false).expect("it is divided");
                LEFT.set(renames);
                let outcome = rescale(dir.path(), shape[1], None, false);
                LEFT.set(usize::MAX);
                if outcome.is_ok() {
                    break;
                }
                // The decision is made; a run waits until it is carried out.
                assert_eq!(interrupted(dir.path()), Some(shape[1]));
                let run = Recovery::new(dir.path()).of_process(None);
                let error = format!("{:?}", run.expect_err("it is interrupted"));
                assert!(error.contains("interrupted"), "{error}");
                rescale(dir.path(), shape[1], None, false).expect("it is divided");
                assert_eq!(keys(dir.path()), before, "{shape:?} after {renames}");
                renames += 1;
            }
            assert!(renames > 1);
        }
    }

    #[test]
    fn what_was_written_before_the_decision_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        state(dir.path());
        let before = keys(dir.path());
        let next = begin(dir.path()).expect("it begins");
        Opened::open(&process_dir(&next, 0), false).expect("it opens");
        assert_eq!(interrupted(dir.path()), None);
        Recovery::new(dir.path())
            .of_process(None)
            .expect("a run may begin");
        rescale(dir.path(), 2, None, false).expect("it is divided");
        assert_eq!(keys(dir.path()), before);
    }
}
