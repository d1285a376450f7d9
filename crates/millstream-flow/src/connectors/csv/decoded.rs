//! Decodes rows into items: a source of rows with a decoder.

use std::sync::Arc;

use super::rows::{Row, Rows};
use crate::batch::{Data, Kind};
use crate::error::{Cause, shorten};
use crate::framing::Frames;
use crate::policy::OnError;
use crate::poller::Io;
use crate::source::{Events, Next, Partition, Position, Source, SourceSettings};
use crate::{forward_partition, forward_source};

/// A source of items: a source of rows with a decoder. [`ReadCsv::decode`](super::ReadCsv::decode) creates it.
pub struct DecodedRows<S, F> {
    source: S,
    decode: Arc<F>,
    on_error: OnError,
}

/// Adds a decoder to a source of rows.
pub fn decode<S, F, T, E>(source: S, decode: F) -> DecodedRows<S, F>
where
    S: Source<Rows>,
    F: Fn(Row<'_>) -> Result<T, E> + Send + Sync + 'static,
    E: Into<Cause>,
{
    DecodedRows {
        source,
        decode: Arc::new(decode),
        on_error: OnError::Fail,
    }
}

impl<S, F> DecodedRows<S, F> {
    /// Sets the policy for a row that cannot be decoded. The default is [`OnError::Fail`].
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
}

#[warn(clippy::missing_trait_methods)]
impl<S, F, T, E> Source<Vec<T>> for DecodedRows<S, F>
where
    S: Source<Rows>,
    F: Fn(Row<'_>) -> Result<T, E> + Send + Sync + 'static,
    T: Data,
    E: Into<Cause>,
{
    forward_source!(this => this.source; describe partitions resumable growing);
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Vec<T>>>, Cause> {
        Ok(Box::new(DecodedPartition {
            inner: self.source.open(partition, resume, io)?,
            decode: Arc::clone(&self.decode),
            rows: Rows::default(),
        }))
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            on_error: self.on_error.clone(),
            ..self.source.settings()
        }
    }
    fn over(&self, _: Arc<dyn Source<Frames>>, _: Kind) -> Option<Arc<dyn Source<Vec<T>>>> {
        // Rows are not made of frames.
        None
    }
}

struct DecodedPartition<F> {
    inner: Box<dyn Partition<Rows>>,
    decode: Arc<F>,
    rows: Rows,
}

#[warn(clippy::missing_trait_methods)]
impl<F, T, E> Partition<Vec<T>> for DecodedPartition<F>
where
    F: Fn(Row<'_>) -> Result<T, E>,
    T: Data,
    E: Into<Cause>,
{
    fn next_batch(&mut self, batch: &mut Vec<T>, events: &mut Events<'_>) -> Result<Next, Cause> {
        crate::batch::Batch::clear(&mut self.rows);
        let next = self.inner.next_batch(&mut self.rows, events)?;
        if next == Next::Batch {
            let rows = std::mem::take(&mut self.rows);
            for row in rows.iter() {
                let made = row
                    .check()
                    .and_then(|()| (self.decode)(row).map_err(Into::into));
                match made {
                    Ok(item) => batch.push(item),
                    Err(error) => {
                        let text = shorten(&String::from_utf8_lossy(row.raw()));
                        let item = format!("{}: {text:?}", row.place());
                        events.poison(Some(item), error)?;
                    }
                }
            }
            self.rows = rows;
        }
        Ok(next)
    }
    forward_partition!(this => this.inner);
}
