//! The files of a journal, and whether any is missing.

use crate::error::{Error, Result};
use crate::format::control::Control;
use crate::format::files;
use crate::format::segment;
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
        let names = files::list(storage)?;
        let mut numbers = files::segments_among(&names);
        // Afterwards: a prune moves the start before it removes anything.
        let start = start::read(storage)?;
        let first = start.map_or(0, |start| start.segment);
        let mut lost = None;
        if numbers.is_empty() {
            if let Some(other) = names.iter().find(|name| !files::is_ours(name)) {
                return Err(Error::NotAJournal {
                    path: storage.path(""),
                    why: format!("the directory holds \"{other}\""),
                });
            }
            lost = remains(storage, &names, start)?;
            if lost.is_some() {
                // Perhaps another process has made the journal since the first look. It makes the first segment before
                // what remains.
                numbers = files::segments(storage)?;
            }
        }
        let has = |name: &str| names.iter().any(|found| found == name);
        let is_cut = has(files::CUT);
        let pruned = numbers.extract_if(.., |number| *number < first).collect();
        let drafts = names
            .into_iter()
            .filter(|name| files::is_draft(name))
            .collect();
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
            Some(gap) => missing(gap[0] + 1, "the segment is missing, and later ones exist"),
            None => Ok(()),
        }
    }

    /// A journal that has lost all its segments is not a new one.
    pub fn check_some<S: Storage>(&self, storage: &S) -> Result<()> {
        match self.lost {
            Some(what) if self.numbers.is_empty() => Err(Error::Damage {
                path: storage.path(&segment::name(self.start.map_or(0, |start| start.segment))),
                offset: 0,
                what: format!("the segment and all others are missing: {what}"),
            }),
            _ => Ok(()),
        }
    }
}

/// The trace of a journal that has lost all its segments; `None` for one that was never created. The first segment
/// exists before the start and all cursors, and before the control page is ready; an identity may be written earlier,
/// under the lock on the control page.
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
    if has(files::IDENTITY) && !has(files::CONTROL) {
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

/// Refuse a directory that holds something else, or a journal without any segment.
pub(crate) fn check_names<S: Storage>(storage: &S) -> Result<()> {
    match Listing::read(storage) {
        Err(error @ Error::NotAJournal { .. }) => Err(error),
        Ok(listing) => listing.check_some(storage),
        Err(_) => Ok(()),
    }
}

/// The segments that there are, and what is wrong with them.
pub(crate) fn segments<S: Storage>(storage: &S) -> Result<SegmentList> {
    let listing = Listing::read(storage)?;
    let checked = listing.check(storage);
    if listing.numbers.is_empty() && checked.is_ok() {
        return Err(Error::NotFound {
            path: storage.path(""),
        });
    }
    Ok(SegmentList {
        numbers: listing.numbers,
        checked,
        start: listing.start,
    })
}

/// The segments of a journal.
#[derive(Debug)]
pub(crate) struct SegmentList {
    /// Those that there are, from the start of the journal on.
    pub numbers: Vec<u64>,
    /// Whether any is missing.
    pub checked: Result<()>,
    pub start: Option<Start>,
}
