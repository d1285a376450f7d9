//! Replaces the state directories of one division by those of another.
//!
//! Everything is done by renames within `DIR`, each of which may already have been done: after a crash the same steps are
//! taken again. New entries come from `DIR/scaling/next/pN`; what they replace goes to `DIR/scaling/old`, and is removed at
//! the end with the plan.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use millstream_journal::storage::{create_dir_durably, sync_entry};

use super::division::process_dir;
use super::moved_sources::names;
use crate::error::Cause;

/// The directory of a division that is being prepared or made.
const SCALING: &str = "scaling";
/// The entries of a state directory that a division writes anew. All others stay with the process of the same number.
const DIVIDED: [&str; 4] = ["epochs", "files", "queues", "stopped"];

/// How a state is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A run without a cluster: all is in `DIR`.
    Single,
    /// So many processes: all is in `DIR/p0`, `DIR/p1`, ...
    Processes(usize),
}

impl Layout {
    /// The layout among so many processes.
    pub(super) fn among(processes: usize) -> Self {
        match processes {
            1 => Layout::Single,
            processes => Layout::Processes(processes),
        }
    }

    /// The layout of so many directories, the first of which is of `process`.
    pub(super) fn of(process: Option<usize>, count: usize) -> Self {
        process.map_or(Layout::Single, |_| Layout::Processes(count))
    }

    pub(super) fn processes(self) -> usize {
        match self {
            Layout::Single => 1,
            Layout::Processes(processes) => processes,
        }
    }

    fn dir(self, dir: &Path, process: usize) -> PathBuf {
        match self {
            Layout::Single => dir.to_owned(),
            Layout::Processes(_) => process_dir(dir, process),
        }
    }

    /// As it is written in a plan: 0 for a run without a cluster.
    fn number(self) -> usize {
        match self {
            Layout::Single => 0,
            Layout::Processes(processes) => processes,
        }
    }

    fn of_number(number: usize) -> Self {
        match number {
            0 => Layout::Single,
            processes => Layout::Processes(processes),
        }
    }
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
        rename(
            &own.join("stopped"),
            &old.join(format!("p{process}.stopped")),
        )?;
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
    match fs::rename(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !from.exists() => Ok(()),
        Err(error) => Err(format!("{} to {}: {error}", from.display(), to.display()).into()),
        Ok(()) => Ok(()),
    }
}
