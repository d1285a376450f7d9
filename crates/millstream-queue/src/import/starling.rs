//! Starling's file: `00 | u32 size | u32 expiry in epoch seconds | item (size - 4)` is a push, `01` a pop.

use std::io::Read;

use super::operation_reader::{Damage, OperationReader};
use super::{OldQueue, dated_item};

/// Reads Starling's files.
#[derive(Clone, Copy, Debug)]
pub struct Starling;

impl Starling {
    /// Applies the operations of the file to `queue`.
    ///
    /// # Errors
    /// The file is damaged; the operations before the damage are applied.
    pub fn replay(self, file: impl Read, queue: &mut OldQueue) -> Result<(), Damage> {
        let mut file = OperationReader::new(file);
        while let Some(operation) = file.operation()? {
            match operation {
                0 => queue.items.push_back(dated_item(&mut file)?),
                // A get of an empty queue wrote a pop too.
                1 => drop(queue.items.pop_front()),
                other => return Err(file.damage(format!("there is no operation {other}"))),
            }
        }
        Ok(())
    }
}
