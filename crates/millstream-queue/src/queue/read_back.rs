//! Reading items from the log: the backlog, some items at a time, and single ones.

use super::{Log, Queue, READ_BACK_ITEMS};
use crate::error::QueueError;
use crate::item::Item;
use crate::storage::operation::Operation;

impl<L: Log> Queue<L> {
    /// Reads some items of the backlog into memory.
    pub(super) fn read_back(&mut self) -> Result<(), QueueError> {
        let mut read = 0;
        while self.backlog.items > 0 && read < READ_BACK_ITEMS {
            let enough = self.ready.bytes_in_memory() >= self.settings.memory_bytes;
            if read > 0 && (enough || self.memory.is_over(0)) {
                break;
            }
            let position = self.backlog.position;
            let item = self.read_item(position)?;
            self.backlog.position += 1;
            let Some((item, due_ms)) = item else {
                continue;
            };
            if due_ms != 0 || item.id != position || self.backlog.removed.contains(item.id) {
                continue;
            }
            match self.backlog.deliveries.remove(&item.id) {
                None => self.ready.push(item),
                Some(_) => self.ready.insert(item),
            }
            self.backlog.items -= 1;
            read += 1;
        }
        self.backlog.forget_before_position();
        Ok(())
    }

    /// The item in a record, with what is known of its deliveries, and the end of its delay; `None` if the record is of
    /// another kind.
    pub(super) fn read_item(&mut self, position: u64) -> Result<Option<(Item, u64)>, QueueError> {
        let mut read = self.read_record(position)?;
        if let Some((item, _)) = &mut read
            && let Some(known) = self.backlog.deliveries.get(&item.id)
        {
            item.came_back(known.count, known.first_ms);
        }
        Ok(read)
    }

    fn read_record(&mut self, position: u64) -> Result<Option<(Item, u64)>, QueueError> {
        let record = match self.log.read(position) {
            Ok(record) => record,
            Err(cause) => {
                return Err(QueueError::Storage {
                    queue: self.name.to_string(),
                    cause,
                });
            }
        };
        match Operation::decode(record) {
            Ok(
                Operation::Add { head, due_ms, body }
                | Operation::Once {
                    head, due_ms, body, ..
                },
            ) => Ok(Some((Item::new(position, head, 0, body.into()), due_ms))),
            Ok(Operation::From { head, body, .. }) => {
                Ok(Some((Item::new(position, head, 0, body.into()), 0)))
            }
            Ok(Operation::Again {
                head,
                due_ms,
                id,
                deliveries,
                history,
                body,
            }) => {
                let item = Item::new(id, head, deliveries, body.into());
                Ok(Some((item.with_history(history), due_ms)))
            }
            Ok(Operation::Moved {
                head,
                due_ms,
                history,
                body,
            }) => {
                let item = Item::new(position, head, 0, body.into());
                Ok(Some((item.with_history(Some(history)), due_ms)))
            }
            Ok(_) => Ok(None),
            Err(what) => Err(QueueError::Record {
                queue: self.name.to_string(),
                position,
                what,
            }),
        }
    }
}
