//! Writing what the changes have, and logs of queues lack.

use millstream_journal::Journal;

use super::change::Change;
use super::survey::Survey;
use crate::error::Cause;

/// Gives the records, tombstones and prunings of all queues to `take`, from the last complete snapshot on: the records of each queue in the order
/// of their positions.
pub(super) fn replay(
    journal: &Journal,
    survey: &Survey,
    mut take: impl FnMut(&Change<'_>) -> Result<(), Cause>,
) -> Result<(), Cause> {
    // A record that came while the snapshot was written may stand before older ones of the snapshot.
    for of_snapshot in [true, false] {
        let mut reader = journal.reader()?;
        reader.seek(survey.begin)?;
        while reader.position() < survey.end {
            let Some(record) = reader.next()? else { break };
            let number = record.sequence;
            let change = Change::read(record.body)?;
            let name = match change {
                Change::Record {
                    name,
                    of_snapshot: is,
                    ..
                } if is == of_snapshot => name,
                Change::Tombstone { name, .. } | Change::Prune { name, .. } if !of_snapshot => name,
                _ => continue,
            };
            let known = survey.queues.get(name);
            if known.is_some_and(|known| known.since < number) {
                take(&change)?;
            }
        }
    }
    Ok(())
}
