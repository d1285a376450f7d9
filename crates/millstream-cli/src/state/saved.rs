//! A state directory that is read: its steps and their keys, as of the last commit. A directory that is divided among
//! processes is read as one.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use millstream_flow::checkpoint::{Saved, SavedKey, process_dir, processes_in};
use millstream_journal::context;

use crate::outcome::Outcome;
use crate::progress::Progress;

/// A state directory that is looked into.
pub(super) struct SavedState {
    pub(super) dir: PathBuf,
    /// The part of each process, in order; only one without a cluster.
    pub(super) parts: Vec<Saved>,
    pub(super) progress: Option<Progress>,
}

impl SavedState {
    pub(super) fn open(dir: &Path) -> Outcome<Self> {
        let processes = if dir.join("epochs").exists() {
            Vec::new()
        } else {
            processes_in(dir)
                .map_err(|error| context(format_args!("state in {}", dir.display()), error))?
        };
        let parts = match &processes[..] {
            [] => vec![Saved::open(dir)?],
            processes => {
                let parts = processes.iter();
                let parts = parts.map(|process| Saved::open(&process_dir(dir, *process)));
                parts.collect::<Result<_, _>>()?
            }
        };
        Ok(SavedState {
            dir: dir.to_owned(),
            parts,
            progress: None,
        })
    }

    /// Shows the progress of reading so many steps on a terminal, unless lines go there.
    pub(super) fn expect(&mut self, steps: usize, lines_to_file: bool) {
        if lines_to_file || !std::io::stdout().is_terminal() {
            let parts = steps * Saved::PARTS * self.parts.len();
            self.progress = Some(Progress::new(parts as u64, "parts"));
        }
    }

    /// The names of the steps that have state, or of the one that is asked for.
    pub(super) fn steps(&self, only: Option<&str>) -> Outcome<Vec<String>> {
        let all: BTreeSet<&str> = self.parts.iter().flat_map(Saved::steps).collect();
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        let Some(only) = only else {
            return Ok(all);
        };
        if all.iter().any(|step| step == only) {
            return Ok(vec![only.to_owned()]);
        }
        let others = match &all[..] {
            [] => "no step has any".to_owned(),
            steps => format!("those that have are \"{}\"", steps.join("\", \"")),
        };
        let dir = self.dir.display();
        Err(format!("state in {dir}: no step \"{only}\" has state; {others}").into())
    }

    /// What surrounds the values in the states of a step.
    pub(super) fn layout(&self, step: &str) -> Vec<String> {
        let commits = self.parts.iter().filter_map(Saved::commit);
        let mut marks = commits.flat_map(|commit| &commit.steps);
        let mark = marks.find(|mark| mark.step == step);
        mark.map_or_else(Vec::new, |mark| mark.layout.clone())
    }

    /// All keys of a step, in the order in which the step met them.
    pub(super) fn keys(&mut self, step: &str) -> Outcome<Vec<SavedKey>> {
        let mut keys = Vec::new();
        for saved in &self.parts {
            for part in 0..Saved::PARTS {
                keys.extend(saved.part(step, part, |_| true)?);
                self.progress.iter_mut().for_each(Progress::next);
            }
        }
        keys.sort_by(|a: &SavedKey, b| (a.born, &a.key).cmp(&(b.born, &b.key)));
        Ok(keys)
    }
}
