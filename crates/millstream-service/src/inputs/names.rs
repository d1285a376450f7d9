//! Resolves the journals that records name: by their identity, whatever their path is now.

use std::path::{Path, PathBuf};

use millstream_journal::Journal;
use millstream_wire::InputName;

use crate::error::ServiceError;

/// The name of a journal in records. An empty journal may still become a copy of another one, and has another identity
/// then.
pub(crate) fn name_of(journal: &Journal) -> Result<InputName, ServiceError> {
    Ok(InputName {
        path: journal.path().display().to_string(),
        identity: journal.lineage()?,
    })
}

/// Whether both paths name one directory.
pub(crate) fn same_directory(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| path.canonicalize().ok();
    one == other || found(one).is_some_and(|one| Some(one) == found(other))
}

/// The current inputs of a service.
pub(crate) struct Names {
    known: Vec<(PathBuf, u128)>,
}

impl Names {
    /// The inputs of a service.
    ///
    /// # Errors
    /// Two of them are the same journal, or copies of one; an identity cannot be read.
    pub fn new<'a>(inputs: impl IntoIterator<Item = &'a Journal>) -> Result<Self, ServiceError> {
        let mut known: Vec<(PathBuf, u128)> = Vec::new();
        for journal in inputs {
            let path = journal.path();
            let identity = journal.lineage()?;
            if let Some((first, _)) = known.iter().find(|(_, known)| *known == identity) {
                return Err(ServiceError::SameInput {
                    first: first.display().to_string(),
                    second: path.display().to_string(),
                });
            }
            known.push((path, identity));
        }
        Ok(Self { known })
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// The number of the input that a name means; `None` for a journal that is no input any more.
    pub fn find(&self, name: &InputName) -> Option<u32> {
        let same = |(_, identity): &(PathBuf, u128)| *identity == name.identity;
        let at = self.known.iter().position(same);
        at.map(|at| at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_journal::Options;

    #[test]
    fn a_name_is_found_by_its_identity_only() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |name: &str| Journal::open(folder.path().join(name), Options::default()).unwrap();
        let orders = open("orders");
        let limits = open("limits");
        let names = Names::new([&orders, &limits]).unwrap();
        let mut name = name_of(&limits).unwrap();
        name.path = "elsewhere".to_owned();
        assert_eq!(names.find(&name), Some(1));
        name = name_of(&orders).unwrap();
        name.identity ^= 1;
        assert_eq!(names.find(&name), None);
    }

    #[test]
    fn a_journal_and_its_copy_are_not_two_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |name: &str| Journal::open(folder.path().join(name), Options::default()).unwrap();
        let one = open("one");
        let other = open("other");
        other.become_copy(one.lineage().unwrap()).unwrap();
        let error = Names::new([&one, &other]).err().unwrap();
        assert!(matches!(error, ServiceError::SameInput { .. }), "{error}");
    }
}
