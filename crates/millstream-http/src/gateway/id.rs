//! The ids of the items of a feed, from which clients resume: `IDENTITY-NUMBER`, the identity that a journal shares with its copies, and the
//! number of the record.
//!
//! Clients may leave out the identity. Then a journal that took the place of another one is not noticed.

/// The id of a client that has no item, of a journal without a record.
pub(super) const BEGIN: &str = "begin";

/// Where a client resumes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resume {
    /// The identity of the journal.
    pub(super) lineage: Option<u128>,
    /// The number of the next record.
    pub(super) next: u64,
}

/// The id of a record.
pub(super) fn id(lineage: u128, sequence: u64) -> String {
    format!("{lineage:032x}-{sequence}")
}

/// Reads an id.
pub(super) fn read_id(id: &str) -> Option<Resume> {
    if id == BEGIN {
        return Some(Resume {
            lineage: None,
            next: 0,
        });
    }
    let (lineage, sequence) = match id.split_once('-') {
        Some((lineage, sequence)) => (Some(lineage), sequence),
        None => (None, id),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let lineage = match lineage {
        Some(lineage) if digits(lineage) => Some(u128::from_str_radix(lineage, 16).ok()?),
        Some(_) => return None,
        None => None,
    };
    let sequence: u64 = sequence.parse().ok().filter(|_| digits(sequence))?;
    let next = sequence.checked_add(1)?;
    Some(Resume { lineage, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        let resume = |lineage, next| Some(Resume { lineage, next });
        assert_eq!(read_id(&id(7 << 100, 41)), resume(Some(7 << 100), 42));
        assert_eq!(read_id("41"), resume(None, 42));
        assert_eq!(read_id(BEGIN), resume(None, 0));
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
            "1-2-3",
            "18446744073709551615",
        ] {
            assert_eq!(read_id(none), None, "{none}");
        }
    }
}
