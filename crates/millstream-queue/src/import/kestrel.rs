//! Kestrel's files: ten operations, some of which refer to open reads by a number (xid).

use std::io::Read;

use super::operation_reader::{Damage, OperationReader};
use super::{OldItem, OldQueue, dated_item};

/// Reads Kestrel's files. The files of one queue are replayed in order.
#[derive(Clone, Copy, Debug)]
pub struct Kestrel;

impl Kestrel {
    /// Applies the operations of the file to `queue`.
    ///
    /// # Errors
    /// The file is damaged; the operations before the damage are applied.
    pub fn replay(self, file: impl Read, queue: &mut OldQueue) -> Result<(), Damage> {
        let mut file = OperationReader::new(file);
        while let Some(operation) = file.operation()? {
            match operation {
                0 => queue.items.push_back(dated_item(&mut file)?),
                1 => drop(queue.items.pop_front()),
                2 => {
                    let item = timed_item(&mut file)?;
                    queue.items.push_back(item);
                }
                3 => {
                    let xid = queue.next_xid();
                    queue.open_first(xid);
                }
                4 => queue.last_open = file.i32()?,
                5 => {
                    let xid = file.i32()?;
                    if let Some(item) = queue.open.remove(&xid) {
                        queue.items.push_front(item);
                    }
                }
                6 => drop(queue.open.remove(&file.i32()?)),
                7 => {
                    // The item was open when the file was packed: a REMOVE_TENTATIVE follows that takes it from the
                    // head again.
                    let xid = file.i32()?;
                    let item = timed_item(&mut file)?;
                    queue.items.push_front(item);
                    queue.last_open = xid.wrapping_sub(1);
                }
                8 => {
                    let xid = file.i32()?;
                    let item = timed_item(&mut file)?;
                    queue.open.remove(&xid);
                    queue.items.push_back(item);
                }
                9 => {
                    let xid = file.i32()?;
                    queue.last_open = xid;
                    queue.open_first(xid);
                }
                other => return Err(file.damage(format!("there is no operation {other}"))),
            }
        }
        Ok(())
    }
}

fn timed_item(file: &mut OperationReader<impl Read>) -> Result<OldItem, Damage> {
    let size = file.u32()?;
    let _added_ms = file.i64()?;
    let expiry_ms = file.i64()?;
    let body = file.body(size, 16)?;
    Ok(OldItem {
        expiry_ms: u64::try_from(expiry_ms).unwrap_or(0),
        body,
    })
}

impl OldQueue {
    /// The number of the next open read: the next one that is not 0 and not in use.
    fn next_xid(&mut self) -> i32 {
        loop {
            self.last_open = self.last_open.wrapping_add(1);
            if self.last_open != 0 && !self.open.contains_key(&self.last_open) {
                return self.last_open;
            }
        }
    }

    fn open_first(&mut self, xid: i32) {
        if let Some(item) = self.items.pop_front() {
            self.open.insert(xid, item);
        }
    }
}
