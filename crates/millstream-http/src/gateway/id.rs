//! The ids of the items of a feed, from which clients resume: `IDENTITY-NUMBER-CHECKSUM`, the identity that a journal
//! shares with its copies, the number of the record, and its checksum.
//!
//! Clients may send the number alone. Then neither a journal that took the place of another one is noticed, nor one
//! that has lost its end and has used the number again. The checksum is missing where the record was pruned.

use millstream_journal::Bookmark;

/// The id of a client that has no item, of a journal without a record.
pub(super) const BEGIN: &str = "begin";

/// Where a client resumes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resume {
    /// The identity of the journal.
    pub(super) lineage: Option<u128>,
    /// The next record, and the checksum of the one before.
    pub(super) at: Bookmark,
}

/// The id of the record before a position.
pub(super) fn id(lineage: u128, at: Bookmark) -> String {
    let Some(sequence) = at.next.checked_sub(1) else {
        return BEGIN.to_owned();
    };
    match at.checksum {
        Some(checksum) => format!("{lineage:032x}-{sequence}-{checksum:08x}"),
        None => format!("{lineage:032x}-{sequence}"),
    }
}

/// Reads an id.
pub(super) fn read_id(id: &str) -> Option<Resume> {
    let parts: Vec<&str> = id.split('-').collect();
    let (lineage, sequence, checksum) = match parts[..] {
        [BEGIN] => {
            let at = Bookmark {
                next: 0,
                checksum: None,
            };
            return Some(Resume { lineage: None, at });
        }
        [sequence] => (None, sequence, None),
        [lineage, sequence] => (Some(lineage), sequence, None),
        [lineage, sequence, checksum] => (Some(lineage), sequence, Some(checksum)),
        _ => return None,
    };
    // Number types read signs, too.
    if parts
        .iter()
        .any(|part| !part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        return None;
    }
    let lineage = lineage
        .map(|text| u128::from_str_radix(text, 16))
        .transpose();
    let checksum = checksum
        .map(|text| u32::from_str_radix(text, 16))
        .transpose();
    let sequence: u64 = sequence.parse().ok()?;
    let at = Bookmark {
        next: sequence.checked_add(1)?,
        checksum: checksum.ok()?,
    };
    Some(Resume {
        lineage: lineage.ok()?,
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let at = |next, checksum| Bookmark { next, checksum };
        let resume = |lineage, at| Some(Resume { lineage, at });
        for at in [at(42, Some(7)), at(42, Some(u32::MAX)), at(1, None)] {
            assert_eq!(read_id(&id(7 << 100, at)), resume(Some(7 << 100), at));
        }
        assert_eq!(read_id("41"), resume(None, at(42, None)));
        assert_eq!(read_id(BEGIN), resume(None, at(0, None)));
        assert_eq!(id(7, at(0, None)), BEGIN);
        for none in [
            "",
            "-",
            "-1",
            "x",
            "4f",
            "4f-",
            "g-1",
            "+1",
            "4f-+1",
            "4f-1-",
            "4f-1-+2",
            "4f-1-123456789",
            "1-2-3-4",
            "begin-1",
            "18446744073709551615",
        ] {
            assert_eq!(read_id(none), None, "{none}");
        }
    }
}
