//! Starling's file: `00 | u32 size | u32 expiry in epoch seconds | item (size - 4)` is a push, `01` a pop.

use std::io::Read;

use super::reading::{Damage, Reading};
use super::{OldItem, OldQueue};

/// Reads what Starling wrote.
#[derive(Clone, Copy, Debug)]
pub struct Starling;

impl Starling {
    /// Do to `queue` what the file says.
    ///
    /// # Errors
    /// The file is damaged; what came before has been done.
    pub fn replay(self, file: impl Read, queue: &mut OldQueue) -> Result<(), Damage> {
        let mut file = Reading::new(file);
        while let Some(operation) = file.operation()? {
            match operation {
                0 => {
                    let (size, expiry_s) = (file.u32()?, file.u32()?);
                    let body = file.body(size, 4)?;
                    queue.items.push_back(OldItem {
                        expiry_ms: u64::from(expiry_s) * 1_000,
                        body,
                    });
                }
                // A pop of an empty queue was written by a get that found nothing.
                1 => drop(queue.items.pop_front()),
                other => return Err(file.damage(format!("there is no operation {other}"))),
            }
        }
        Ok(())
    }
}
