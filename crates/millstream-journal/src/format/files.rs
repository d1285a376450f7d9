//! The names of a journal's files.
//!
//! A journal is a directory that holds segments and the files below, and nothing else. A file is complete before it
//! gets its name: until then it is a draft.

use std::io;

use crate::error::{Error, Result};
use crate::format::segment;
use crate::storage::Storage;

/// The control page, shared by all processes that have the journal open.
pub(crate) const CONTROL: &str = "control";
/// The identity of the journal.
pub(crate) const IDENTITY: &str = "identity";
/// Where the journal starts. It sorts after the segments: a tool that copies in the order of names copies it last,
/// while a prune continues.
pub(crate) const START: &str = "start";
/// The intent of a cut that has begun and not ended.
pub(crate) const CUT: &str = "cut";
/// The segment in reserve. It gets a header when it is used.
pub(crate) const SPARE: &str = "spare";
/// The directory of the lock files of writers.
pub(crate) const WRITERS: &str = "writers";
/// The directory of cursors.
pub(crate) const CURSORS: &str = "cursors";
/// The file says that the journal is a copy.
pub(crate) const COPY: &str = "is-copy";
/// The file says that only its owner appends.
pub(crate) const CLAIM: &str = "is-claimed";
/// The file says up to which record the owner had committed when it ended.
pub(crate) const CLOSED: &str = "is-closed";
/// The start of the name of a term.
pub(crate) const TERM: &str = "term-";
/// The start of the name of the note that a newer term is known.
pub(crate) const SUPERSEDED: &str = "superseded-";
/// The start of the name of a record set.
pub(crate) const RECORD_SET: &str = "set-";
/// The start of the name of a file that is not complete yet.
const DRAFT: &str = "draft-";

/// How many digits the number of a term has in a name.
const TERM_DIGITS: usize = 20;
/// The longest name of a cursor or a record set, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Whether a file of this name may be in a journal without segments: it is part of a journal, or a draft.
pub(crate) fn is_ours(name: &str) -> bool {
    let ours = [CONTROL, CUT, SPARE, IDENTITY, START, WRITERS, CURSORS];
    ours.contains(&name) || is_record_set(name) || is_draft(name) || is_term(name)
}

/// Whether a file of this name is not complete yet.
pub(crate) fn is_draft(name: &str) -> bool {
    name.starts_with(DRAFT)
}

/// Whether a file of this name says who may append: a term, the note of a newer term, the mark of a copy, a claim.
pub(crate) fn is_term(name: &str) -> bool {
    let number = name
        .strip_prefix(TERM)
        .or_else(|| name.strip_prefix(SUPERSEDED));
    let digits = number.and_then(|number| number.get(..TERM_DIGITS));
    [COPY, CLAIM, CLOSED].contains(&name)
        || digits.is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_digit()))
}

/// Whether a file of this name holds a record set.
pub(crate) fn is_record_set(name: &str) -> bool {
    name.strip_prefix(RECORD_SET)
        .and_then(|rest| rest.rsplit_once('-'))
        .is_some_and(|(name, digits)| is_name(name) && digits.parse::<u64>().is_ok())
}

/// Whether a cursor or a record set may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let any = |byte: u8| first(byte) || byte == b'_' || byte == b'.';
    name.len() <= NAME_BYTES_MAX && name.bytes().next().is_some_and(first) && name.bytes().all(any)
}

/// Whether a process has a slot of the journal, with which it may append.
pub(crate) fn has_writer<S: Storage>(storage: &S) -> io::Result<bool> {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let names = match storage.list(WRITERS) {
        Err(error) if is_missing(&error) => return Ok(false),
        names => names?,
    };
    for name in names.iter().filter(|name| name.parse::<u64>().is_ok()) {
        match storage.is_locked(&format!("{WRITERS}/{name}")) {
            Ok(false) => {}
            Err(error) if is_missing(&error) => {}
            locked => return locked,
        }
    }
    Ok(false)
}

/// The names of all files of the journal.
pub(crate) fn list<S: Storage>(storage: &S) -> Result<Vec<String>> {
    let path = storage.path("");
    storage.list("").map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path },
        _ => Error::Io {
            verb: "list",
            path,
            source,
        },
    })
}

/// The numbers of all segments in order, also of those that a prune has not removed yet.
pub(crate) fn segments<S: Storage>(storage: &S) -> Result<Vec<u64>> {
    Ok(segments_among(&list(storage)?))
}

/// The numbers of the segments among these names, in order.
pub(crate) fn segments_among(names: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| segment::number(name))
        .collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_journal_is_known_by_its_name() {
        let term = format!("{TERM}{:020}-{:016x}", 3, 7);
        let superseded = format!("{SUPERSEDED}{:020}", 4);
        for name in [
            "control",
            "spare",
            "draft-x",
            "is-copy",
            "set-a-b-0000000001",
            &term,
            &superseded,
        ] {
            assert!(is_ours(name), "{name}");
        }
        for name in [
            "notes.txt",
            "term-3",
            "set-a",
            "set-_a-1",
            "superseded-",
            "",
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }

    #[test]
    fn a_name_of_a_cursor_is_short_and_begins_with_a_letter_a_digit_or_a_hyphen() {
        for name in ["a", "-", "9_.x", &"x".repeat(NAME_BYTES_MAX)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "_a", ".a", "a/b", "ä", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
