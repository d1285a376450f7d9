//! Reading numbers and items from a file, and locating damage.

use std::io::{ErrorKind, Read};

/// The place where a file is damaged.
#[derive(Debug, thiserror::Error)]
#[error("damaged at offset {offset}: {what}")]
#[non_exhaustive]
pub struct Damage {
    /// The offset of the operation that cannot be read.
    pub offset: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Reads one file, operation by operation.
pub(super) struct OperationReader<R> {
    from: R,
    /// The number of bytes read, and the offset of the current operation.
    at: u64,
    begun: u64,
}

impl<R: Read> OperationReader<R> {
    pub(super) fn new(from: R) -> Self {
        OperationReader {
            from,
            at: 0,
            begun: 0,
        }
    }

    /// The next operation, or `None` at the end of the file.
    pub(super) fn operation(&mut self) -> Result<Option<u8>, Damage> {
        self.begun = self.at;
        let mut code = [0];
        loop {
            return match self.from.read(&mut code) {
                Ok(0) => Ok(None),
                Ok(_) => {
                    self.at += 1;
                    Ok(Some(code[0]))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(self.damage(error)),
            };
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let mut bytes = [0; N];
        match self.from.read_exact(&mut bytes) {
            Ok(()) => {
                self.at += N as u64;
                Ok(bytes)
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.damage("the file ends inside an operation"))
            }
            Err(error) => Err(self.damage(error)),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Damage> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Damage> {
        self.array().map(i64::from_le_bytes)
    }

    /// The rest of a block of `size` bytes, of which `head` bytes were read as numbers.
    pub(super) fn body(&mut self, size: u32, head: u32) -> Result<Vec<u8>, Damage> {
        let length = size
            .checked_sub(head)
            .ok_or_else(|| self.damage(format!("a size of {size}, at least {head}")))?;
        // The allocation follows the bytes in the file, not the size that it states.
        let mut body = Vec::new();
        let read = self
            .from
            .by_ref()
            .take(u64::from(length))
            .read_to_end(&mut body);
        let read = read.map_err(|error| self.damage(error))?;
        if read < length as usize {
            return Err(self.damage(format!(
                "an item of {length} bytes, of which {read} are there"
            )));
        }
        self.at += read as u64;
        Ok(body)
    }

    pub(super) fn damage(&self, what: impl ToString) -> Damage {
        Damage {
            offset: self.begun,
            what: what.to_string(),
        }
    }
}
