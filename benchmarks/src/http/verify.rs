//! Whether the journal of the flow has each acknowledged item once, and no other.

use std::path::Path;

use millstream_journal::{Journal, Options, chain};

use super::texts::{Id, id_of};

/// Reads the journal. Returns the number of its items; `acknowledged` has the number of requests of each connection.
pub(super) fn verify(journal: &Path, acknowledged: &[u32], lines: u32) -> Result<u64, String> {
    let failed = |error: millstream_journal::Error| chain(&error).to_string();
    let journal = Journal::open(journal, Options::read_only()).map_err(failed)?;
    let mut reader = journal.reader().map_err(failed)?;
    let mut seen = Seen::new(acknowledged, lines);
    while let Some(record) = reader.next().map_err(failed)? {
        let number = record.sequence;
        let id =
            id_of(record.body).ok_or_else(|| format!("record {number} is none of the load"))?;
        let added = seen.add(id);
        added.map_err(|error| format!("record {number}: {error}"))?;
    }
    seen.count()
}

/// Which items were seen.
struct Seen {
    lines: u32,
    items: Vec<Vec<bool>>,
}

impl Seen {
    fn new(acknowledged: &[u32], lines: u32) -> Self {
        let items = acknowledged.iter();
        let items = items.map(|&count| vec![false; count as usize * lines as usize]);
        Seen {
            lines,
            items: items.collect(),
        }
    }

    fn add(&mut self, (connection, request, line): Id) -> Result<(), String> {
        let at = request as usize * self.lines as usize + usize::from(line);
        let shown = format!("request {request} of connection {connection}, line {line}");
        let items = self.items.get_mut(connection as usize);
        match items.and_then(|items| items.get_mut(at)) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return Err(format!("{shown}: is in the journal twice")),
            None => return Err(format!("{shown}: was not acknowledged")),
        }
        Ok(())
    }

    /// The number of items, if all were seen.
    fn count(&self) -> Result<u64, String> {
        let all = || self.items.iter().flatten();
        match all().filter(|&&seen| !seen).count() {
            0 => Ok(all().count() as u64),
            missing => Err(format!(
                "{missing} acknowledged items are not in the journal"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_are_missing_or_there_twice_are_found() {
        let mut seen = Seen::new(&[1, 0], 2);
        assert_eq!(seen.add((0, 0, 1)), Ok(()));
        assert!(seen.add((0, 0, 1)).is_err(), "twice");
        assert!(seen.add((0, 1, 0)).is_err(), "not acknowledged");
        assert!(seen.add((1, 0, 0)).is_err(), "not acknowledged");
        assert!(seen.count().is_err(), "one is missing");
        assert_eq!(seen.add((0, 0, 0)), Ok(()));
        assert_eq!(seen.count(), Ok(2));
    }
}
