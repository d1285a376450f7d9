//! What files there are, and whether any is missing.

use crate::append::grow;
use crate::copies::identity;
use crate::copies::term;
use crate::error::{Error, Result};
use crate::format::control::{self, Control};
use crate::format::segment;
use crate::read::record_set;
use crate::retain::cut;
use crate::retain::start::{self, Start};
use crate::storage::{Access, Storage};

/// The files of the directory.
pub(super) struct Listing {
    /// Segments, from the start of the journal on.
    pub numbers: Vec<u64>,
    /// Segments before the start: a prune was interrupted.
    pub pruned: Vec<u64>,
    pub drafts: Vec<String>,
    pub is_cut: bool,
    pub start: Option<Start>,
    /// What shows that there were segments, when there is none.
    lost: Option<&'static str>,
}

impl Listing {
    pub fn read<S: Storage>(storage: &S) -> Result<Self> {
        let names = names(storage)?;
        let mut numbers = numbers(&names);
        // Afterwards: a prune moves the start before it removes anything.
        let start = start::read(storage)?;
        let first = start.map_or(0, |start| start.segment);
        let mut lost = None;
        if numbers.is_empty() {
            if let Some(other) = names.iter().find(|name| !is_ours(name)) {
                return Err(Error::NotAJournal {
                    path: storage.path(""),
                    why: format!("the directory holds \"{other}\""),
                });
            }
            lost = remains(storage, &names, start)?;
            if lost.is_some() {
                // Perhaps another process has made the journal since the first look. It makes the first segment before what remains.
                numbers = self::numbers(&self::names(storage)?);
            }
        }
        let has = |name: &str| names.iter().any(|found| found == name);
        let is_cut = has(cut::NAME);
        let pruned = numbers.extract_if(.., |number| *number < first).collect();
        let drafts = names.into_iter().filter(|name| is_draft(name)).collect();
        Ok(Listing {
            numbers,
            pruned,
            drafts,
            is_cut,
            start,
            lost,
        })
    }

    /// Segments that are missing are damage.
    pub fn check<S: Storage>(&self, storage: &S) -> Result<()> {
        self.check_some(storage)?;
        let missing = |number, what: &str| {
            Err(Error::Damage {
                path: storage.path(&segment::name(number)),
                offset: 0,
                what: what.to_owned(),
            })
        };
        if let Some(start) = self.start
            && self
                .numbers
                .first()
                .is_none_or(|first| *first > start.segment)
        {
            let what = "the segment is missing, and was not pruned: the file \"start\" names it. Without that file the journal starts \
                        with the oldest segment that is there";
            return missing(start.segment, what);
        }
        match self.numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
            Some(gap) => missing(
                gap[0] + 1,
                "the segment is missing, and later ones are there",
            ),
            None => Ok(()),
        }
    }

    /// A journal that has lost all its segments is no new one.
    pub fn check_some<S: Storage>(&self, storage: &S) -> Result<()> {
        match self.lost {
            Some(what) if self.numbers.is_empty() => Err(Error::Damage {
                path: storage.path(&segment::name(self.start.map_or(0, |start| start.segment))),
                offset: 0,
                what: format!("the segment is missing, and so are all others: {what}"),
            }),
            _ => Ok(()),
        }
    }
}

/// What is there of a journal that has no segment; `None` for one that was never made. The first segment is there before the start and all
/// cursors, and before the control page is ready; an identity may be written earlier, under the lock on the control page.
fn remains<S: Storage>(
    storage: &S,
    names: &[String],
    start: Option<Start>,
) -> Result<Option<&'static str>> {
    let has = |name: &str| names.iter().any(|found| found == name);
    if start.is_some() {
        return Ok(Some("the file \"start\" is there"));
    }
    if Control::open(storage, Access::Read)?.is_some_and(|control| control.has_recovered()) {
        return Ok(Some("the file \"control\" is that of a journal in use"));
    }
    if has(identity::NAME) && !has(control::NAME) {
        return Ok(Some("the file \"identity\" is there"));
    }
    match storage.list("cursors") {
        Ok(cursors) if !cursors.is_empty() => Ok(Some("there are cursors")),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::Io {
            verb: "list",
            path: storage.path("cursors"),
            source: error,
        }),
        _ => Ok(None),
    }
}

/// The numbers of all segments, pruned ones too.
pub(crate) fn present<S: Storage>(storage: &S) -> Result<Vec<u64>> {
    Ok(numbers(&names(storage)?))
}

fn names<S: Storage>(storage: &S) -> Result<Vec<String>> {
    let path = storage.path("");
    storage.list("").map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::NotFound { path },
        _ => Error::Io {
            verb: "list",
            path,
            source,
        },
    })
}

fn numbers(names: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| segment::number(name))
        .collect();
    numbers.sort_unstable();
    numbers
}

fn is_draft(name: &str) -> bool {
    name.starts_with("draft-")
}

fn is_ours(name: &str) -> bool {
    let ours = [
        control::NAME,
        cut::NAME,
        grow::SPARE,
        identity::NAME,
        start::NAME,
        "writers",
        "cursors",
    ];
    ours.contains(&name) || record_set::is_ours(name) || is_draft(name) || term::is_ours(name)
}
