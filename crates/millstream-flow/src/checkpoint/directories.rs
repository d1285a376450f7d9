//! The directories of a flow's state: one, or one for each process, `DIR/p0`, `DIR/p1`, ...

use std::fs;
use std::path::{Path, PathBuf};

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

    pub(super) fn dir(self, dir: &Path, process: usize) -> PathBuf {
        match self {
            Layout::Single => dir.to_owned(),
            Layout::Processes(_) => process_dir(dir, process),
        }
    }

    /// As it is written in a plan: 0 for a run without a cluster.
    pub(super) fn number(self) -> usize {
        match self {
            Layout::Single => 0,
            Layout::Processes(processes) => processes,
        }
    }

    pub(super) fn of_number(number: usize) -> Self {
        match number {
            0 => Layout::Single,
            processes => Layout::Processes(processes),
        }
    }
}

/// The state directory of process `process` of a flow whose state is in `dir`.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn process_dir(dir: impl AsRef<Path>, process: usize) -> PathBuf {
    dir.as_ref().join(format!("p{process}"))
}

/// The numbers of the processes whose state directories are in `dir`, in order.
///
/// # Errors
/// The directory cannot be read. One that does not exist has none.
#[doc(hidden)] // For the other crates of Millstream.
pub fn processes_in(dir: impl AsRef<Path>) -> std::io::Result<Vec<usize>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix('p'));
        let number = number.and_then(|digits| digits.parse::<usize>().ok());
        let number = number.filter(|number| name.to_str() == Some(&format!("p{number}")));
        if entry.path().join("epochs").is_dir() {
            found.extend(number);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The names of the entries of a directory, in order; none if it does not exist.
pub(super) fn names(dir: &Path) -> std::io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<std::io::Result<_>>()?;
    names.sort();
    Ok(names)
}
