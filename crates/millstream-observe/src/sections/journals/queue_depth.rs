//! The items of a queue, counted from the records of its journal as they are appended.

use std::collections::HashMap;

use millstream_journal::{Error, Reader};
use millstream_queue::storage::operation::Operation;

/// The number of records that one look reads.
const RECORDS_MAX: u64 = 200_000;
/// The number of items that are counted; there is no number for a queue with more.
const ITEMS_MAX: usize = 1_000_000;

/// The items of a queue as far as its records were read.
#[derive(Default)]
pub(super) struct QueueDepth {
    /// When each item was added in milliseconds, and the position of its last record.
    items: HashMap<u64, (u64, u64)>,
    next: u64,
    overflowed: bool,
}

impl QueueDepth {
    /// Reads what is new. Returns the number of items and the time at which the oldest was added in milliseconds;
    /// `None` while not all records are read.
    pub(super) fn follow(
        &mut self,
        reader: &mut Reader,
        first: u64,
    ) -> Result<(Option<u64>, Option<u64>), Error> {
        // What was pruned belongs to items that have left or were rewritten.
        self.next = self.next.max(first);
        reader.seek(self.next)?;
        for _ in 0..RECORDS_MAX {
            let position = reader.position();
            let Some(record) = reader.next()? else {
                return Ok(self.counted());
            };
            self.take(position, record.body);
            self.next = position + 1;
            if self.items.len() > ITEMS_MAX {
                self.overflowed = true;
                self.items = HashMap::new();
            }
        }
        Ok((None, None))
    }

    fn counted(&self) -> (Option<u64>, Option<u64>) {
        if self.overflowed {
            return (None, None);
        }
        let oldest = self.items.values().map(|(added_ms, _)| *added_ms).min();
        (Some(self.items.len() as u64), oldest)
    }

    fn take(&mut self, position: u64, record: &[u8]) {
        match Operation::decode(record) {
            Ok(
                Operation::Add { head, .. }
                | Operation::From { head, .. }
                | Operation::Once { head, .. }
                | Operation::Moved { head, .. },
            ) => {
                self.items.insert(position, (head.added_ms, position));
            }
            Ok(Operation::Again { head, id, .. }) => {
                self.items.insert(id, (head.added_ms, position));
            }
            Ok(Operation::Remove { id, .. }) => {
                self.items.remove(&id);
            }
            Ok(Operation::Flush { from }) => self.items.retain(|_, (_, last)| *last >= from),
            // Marks and deliveries change no count; the record of another program is none.
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream_queue::storage::operation::Head;

    #[test]
    fn items_are_counted_as_the_records_say() {
        let mut depth = QueueDepth::default();
        let head = |added_ms| Head {
            added_ms,
            ..Head::default()
        };
        let add = |added_ms| Operation::Add {
            head: head(added_ms),
            due_ms: 0,
            body: b"x",
        };
        let again = Operation::Again {
            head: head(7),
            due_ms: 0,
            id: 1,
            deliveries: 0,
            history: None,
            body: b"x",
        };
        let records = [
            add(5),
            add(7),
            Operation::Remove { id: 0, bytes: 1 },
            again,
            add(9),
        ];
        let mut take = |position: u64, operation: &Operation<'_>| {
            let mut record = Vec::new();
            operation.encode(&mut record);
            depth.take(position, &record);
            depth.counted()
        };
        let counted: Vec<_> = (0..).zip(&records).map(|(at, one)| take(at, one)).collect();
        assert_eq!(counted[1], (Some(2), Some(5)));
        assert_eq!(counted[4], (Some(2), Some(7)));
        // The flush keeps what was rewritten since.
        assert_eq!(take(5, &Operation::Flush { from: 3 }), (Some(2), Some(7)));
        assert_eq!(take(6, &Operation::Flush { from: 6 }), (Some(0), None));
    }
}
