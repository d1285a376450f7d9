//! Standard output as a sink: a line for each item.

use std::io::Write;
use std::sync::Arc;

use crate::connectors::codec::{Encoded, display, encode};
use crate::control::Control;
use crate::error::Cause;
use crate::framing::Frames;
use crate::sink::{Sink, Writer};

/// Standard output, for frames that are lines of text. See [`stdout`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Stdout;

/// Writes the text of each item to standard output, one line an item.
#[must_use]
pub fn stdout<T: std::fmt::Display + 'static>() -> Encoded<Stdout, fn(&T, &mut Vec<u8>)> {
    encode(Stdout, display::<T> as fn(&T, &mut Vec<u8>))
}

impl Sink<Frames> for Stdout {
    fn describe(&self) -> String {
        "standard output".to_owned()
    }
    fn open(&self, _: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        Ok(Box::new(StdoutWriter::default()))
    }
}

#[derive(Default)]
struct StdoutWriter {
    buffer: Vec<u8>,
}

impl Writer<Frames> for StdoutWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        for frame in batch.iter() {
            self.buffer.extend_from_slice(frame);
            self.buffer.push(b'\n');
        }
        self.flush()
    }
    fn flush(&mut self) -> Result<(), Cause> {
        let mut out = std::io::stdout().lock();
        out.write_all(&self.buffer)?;
        out.flush()?;
        self.buffer.clear();
        Ok(())
    }
}
