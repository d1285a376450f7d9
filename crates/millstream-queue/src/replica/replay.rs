//! Writing what the changes have, and logs of queues lack.

use millstream_journal::Journal;

use super::change::Change;
use super::survey::Survey;
use crate::error::Cause;
use crate::storage::{JournalLog, Log};

/// Gives the records, tombstones and prunings of all queues to `take`, from the last complete snapshot on: the records
/// of each queue in the order of their positions.
pub(super) fn replay(
    journal: &Journal,
    survey: &Survey,
    mut take: impl FnMut(&str, &Change<'_>) -> Result<(), Cause>,
) -> Result<(), Cause> {
    // A record that came while the snapshot was written may stand before older ones of the snapshot.
    for of_snapshot in [true, false] {
        let mut reader = journal.reader()?;
        reader.seek(survey.begin)?;
        let end = if of_snapshot {
            survey.snapshot_end
        } else {
            survey.end
        };
        while reader.position() < end {
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
                take(name, &change)?;
            }
        }
    }
    Ok(())
}

/// Writes what the log of a queue lacks of a change.
pub(super) fn write_missing(log: &mut JournalLog, change: &Change<'_>) -> Result<(), Cause> {
    match *change {
        Change::Record {
            name,
            position,
            record,
            ..
        } => {
            let next = log.next();
            if next < position {
                return Err(format!(
                    "queue \"{name}\": the changes have record {position}, and record {next} is missing"
                )
                .into());
            }
            if next == position {
                log.append(record)?;
            }
        }
        Change::Tombstone { position, .. } if (log.first()..log.next()).contains(&position) => {
            log.set_tombstone(position)?;
        }
        Change::Prune { before, .. } => log.prune(before.min(log.next()))?,
        _ => {}
    }
    Ok(())
}
