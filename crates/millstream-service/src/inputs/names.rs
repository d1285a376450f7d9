//! Resolves the journals that records name: by identity, whatever the path.
//!
//! Records of earlier versions have a path only. Such a path is compared with the inputs as it is written, then by the directory that it
//! names, then by its last part, and last by elimination, if one path and one input are left; the result must fit the record. Results
//! are kept in the schedule ([`Legacy`](crate::recorded::schedule::Legacy)), so that the journals can be moved afterwards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use millstream_journal::Journal;
use millstream_wire::InputName;

use crate::error::ServiceError;

/// The name of a journal in records: without identity while it is empty, as it may still become a copy of another one.
pub(crate) fn name_of(journal: &Journal) -> Result<InputName, ServiceError> {
    let identity = match journal.next()? {
        0 => None,
        _ => Some(journal.lineage()?),
    };
    Ok(InputName {
        path: journal.path().display().to_string(),
        identity,
    })
}

/// Whether both paths name one directory.
pub(crate) fn same_directory(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| path.canonicalize().ok();
    one == other || found(one).is_some_and(|one| Some(one) == found(other))
}

/// The current inputs of a service, and their names in older records.
pub(crate) struct Names {
    known: Vec<KnownInput>,
    /// The journals that paths in records of earlier versions name.
    pub legacy: BTreeMap<String, u128>,
}

struct KnownInput {
    path: PathBuf,
    identity: u128,
}

impl Names {
    /// The inputs of a service.
    ///
    /// # Errors
    /// Two of them are the same journal, or copies of one; an identity cannot be read.
    pub fn new<'a>(
        inputs: impl IntoIterator<Item = &'a Journal>,
        legacy: BTreeMap<String, u128>,
    ) -> Result<Self, ServiceError> {
        let mut known: Vec<KnownInput> = Vec::new();
        for journal in inputs {
            let (path, identity) = (journal.path(), journal.lineage()?);
            if let Some(first) = known.iter().find(|known| known.identity == identity) {
                return Err(ServiceError::SameInput {
                    first: first.path.display().to_string(),
                    second: path.display().to_string(),
                });
            }
            known.push(KnownInput { path, identity });
        }
        Ok(Self { known, legacy })
    }

    /// As [`resolve`](Self::resolve) for names that need no guess: those of this version.
    pub fn find(&self, names: &[InputName]) -> Vec<Option<u32>> {
        let found = names.iter().map(|name| match name.identity {
            Some(identity) => self.position(|known| known.identity == identity),
            None => self.by_path(Path::new(&name.path)),
        });
        found.map(|at| at.map(|at| at as u32)).collect()
    }

    /// The number of the input that each name means; `None` for a journal that is no input any more. `fits(name, input)` says whether an
    /// input may be meant by a path that does not exist.
    ///
    /// # Errors
    /// A path could be one of several inputs.
    pub fn resolve(
        &mut self,
        names: &[InputName],
        fits: impl Fn(usize, usize) -> bool,
    ) -> Result<Vec<Option<u32>>, ServiceError> {
        let mut found: Vec<Option<usize>> = Vec::new();
        let mut open = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let identity = name
                .identity
                .or_else(|| self.legacy.get(&name.path).copied());
            let place = match identity {
                Some(identity) => self.position(|known| known.identity == identity),
                None => self.by_path(Path::new(&name.path)),
            };
            if identity.is_none() && place.is_none() {
                open.push(at);
            }
            found.push(place);
        }
        let mut free: Vec<usize> = (0..self.known.len())
            .filter(|at| !found.contains(&Some(*at)))
            .collect();
        self.by_last_part(names, &fits, &mut found, &mut open, &mut free);
        if let ([name], [input]) = (&open[..], &free[..])
            && fits(*name, *input)
        {
            found[*name] = Some(*input);
            (open, free) = (Vec::new(), Vec::new());
        }
        if let (Some(name), false) = (open.first(), free.is_empty()) {
            let free = free.iter().map(|at| &self.known[*at].path);
            let free: Vec<String> = free.map(|path| path.display().to_string()).collect();
            return Err(ServiceError::Ambiguous {
                journal: names[*name].path.clone(),
                inputs: free.join(", "),
            });
        }
        for (name, at) in names.iter().zip(&found) {
            if let (None, Some(at)) = (name.identity, at) {
                let identity = self.known[*at].identity;
                self.legacy.insert(name.path.clone(), identity);
            }
        }
        Ok(found.into_iter().map(|at| at.map(|at| at as u32)).collect())
    }

    fn position(&self, is: impl Fn(&KnownInput) -> bool) -> Option<usize> {
        self.known.iter().position(is)
    }

    fn by_path(&self, path: &Path) -> Option<usize> {
        self.position(|known| known.path == path)
            .or_else(|| self.position(|known| same_directory(&known.path, path)))
    }

    /// Names that end like one input only, when no other name does.
    fn by_last_part(
        &self,
        names: &[InputName],
        fits: &impl Fn(usize, usize) -> bool,
        found: &mut [Option<usize>],
        open: &mut Vec<usize>,
        free: &mut Vec<usize>,
    ) {
        let last = |path: &Path| path.file_name().map(ToOwned::to_owned);
        for name in open.clone() {
            let part = last(Path::new(&names[name].path));
            let alike = |other: &&usize| last(Path::new(&names[**other].path)) == part;
            let ends = |input: &&usize| last(&self.known[**input].path) == part;
            let candidates: Vec<usize> = free.iter().filter(ends).copied().collect();
            if let ([input], 1) = (&candidates[..], open.iter().filter(alike).count())
                && fits(name, *input)
            {
                found[name] = Some(*input);
                free.retain(|at| at != input);
                open.retain(|at| *at != name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_journal::Options;

    fn named(path: &str, identity: Option<u128>) -> InputName {
        InputName {
            path: path.to_owned(),
            identity,
        }
    }

    #[test]
    fn a_name_is_found_by_identity_path_last_part_and_elimination() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |name: &str| Journal::open(folder.path().join(name), Options::default()).unwrap();
        let (orders, limits) = (open("orders"), open("limits"));
        let identity = |journal: &Journal| Some(journal.lineage().unwrap());
        let mut names = Names::new([&orders, &limits], BTreeMap::new()).unwrap();
        let mut resolve = |given: &[InputName]| names.resolve(given, |_, _| true);
        let other_path = folder.path().join(".").join("limits");
        let found = resolve(&[
            named("elsewhere", identity(&orders)),
            named(&other_path.display().to_string(), None),
            named("orders", Some(7)),
        ]);
        assert_eq!(found.unwrap(), [Some(0), Some(1), None]);
        let found = resolve(&[named("/old/limits", None), named("/old/b", None)]);
        assert_eq!(found.unwrap(), [Some(1), Some(0)]);
        // Found once, known from then on.
        assert_eq!(resolve(&[named("/old/b", None)]).unwrap(), [Some(0)]);
        let error = resolve(&[named("/old/c", None)]).unwrap_err();
        assert!(matches!(error, ServiceError::Ambiguous { .. }), "{error}");
    }

    #[test]
    fn what_does_not_fit_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path().join("a"), Options::default()).unwrap();
        let mut names = Names::new([&journal], BTreeMap::new()).unwrap();
        let error = names
            .resolve(&[named("b", None)], |_, _| false)
            .unwrap_err();
        assert!(error.to_string().contains("b"), "{error}");
    }

    #[test]
    fn a_journal_and_its_copy_are_not_two_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |name: &str| Journal::open(folder.path().join(name), Options::default()).unwrap();
        let (one, other) = (open("one"), open("other"));
        other.become_copy(one.lineage().unwrap()).unwrap();
        let error = Names::new([&one, &other], BTreeMap::new()).err().unwrap();
        assert!(matches!(error, ServiceError::SameInput { .. }), "{error}");
    }
}
