//! The external system to which an outbox delivers: its verbs, its errors, and how a connection is made.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::error::{Cause, Failure};
use crate::framing::Frames;
use crate::outbox::refusals::Refusals;

/// A live connection to an external system that takes batches of records.
pub trait Destination: Send {
    /// Writes the records `first` to `last`, which `batch` holds in order, as one unit: all of them or none, unless it
    /// knows what it has [taken](Self::taken). If [`Refusals::are_skipped`], it may write the others where it refuses
    /// some, in place of [`DeliveryError::Refused`]: [`Refusals::leave_out`] takes each of these before its transaction
    /// ends.
    ///
    /// The same records may be written again after an error, and after a crash. A destination that
    /// [remembers](Connector::remembers) stores `last` in the same transaction, on the condition that the position stored before is
    /// `first - 1` (none, for the first records): otherwise another forwarder of the same outbox is at work, which is
    /// [`DeliveryError::Fatal`].
    ///
    /// # Errors
    /// [`DeliveryError::Retry`] if it may succeed later: the connection is closed and opened again.
    /// [`DeliveryError::Refused`] if it does not take some of these records, and has written none: it is called with
    /// parts of the batch then, until the records that are refused are alone. [`DeliveryError::Fatal`] if no record can
    /// be written.
    fn write(&mut self, batch: &Frames, first: u64, last: u64) -> Result<(), DeliveryError>;
    /// Returns the number of the last record that it has for certain; `None` if it remembers nothing yet. Called after
    /// each connect, and only where the connector [remembers](Connector::remembers).
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        Ok(None)
    }
    /// The record `number` was refused, and the flow skips it. A destination that [remembers](Connector::remembers)
    /// stores `number` as its position, as if the record were written.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    #[doc(hidden)] // For the other crates of Millstream.
    fn skip(&mut self, _number: u64) -> Result<(), DeliveryError> {
        Ok(())
    }
    /// Returns how many records of the last write it has taken although the write has failed; `None`, the default, if a
    /// write is all or none. A destination with a number knows which records these are, and takes none of them a second
    /// time when the write is repeated or divided. So its connection is not closed after an error, and an attempt that
    /// takes some records counts as progress.
    #[doc(hidden)] // For the other crates of Millstream.
    fn taken(&self) -> Option<usize> {
        None
    }
}

/// Opens connections to a destination.
pub trait Connector: Send + Sync + 'static {
    /// Returns the kind and the address, for people: `http post https://example.com/orders`.
    fn describe(&self) -> String;
    /// Opens a connection. Called by the thread that delivers, once at the start and again after each error.
    ///
    /// # Errors
    /// As for [`Destination::write`].
    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError>;
    /// Whether the destination remembers its position. If so, each record is delivered exactly once.
    fn remembers(&self) -> bool;
    /// Whether a write of records that are there already compares them with these: the same ones are a success, and
    /// others, of another forwarder, are [`DeliveryError::Fatal`]. Of a write that has failed the
    /// [position](Destination::position) alone does not tell whose records are there. So the batch is written to such a
    /// destination once more.
    #[doc(hidden)] // For the other crates of Millstream.
    fn compares(&self) -> bool {
        false
    }
    /// Returns the largest number of records that it takes at once.
    fn batch_records_max(&self) -> Option<usize> {
        None
    }
    /// Returns the size of the largest record that it takes, in bytes. A larger one fails the flow when it is produced.
    fn record_bytes_max(&self) -> Option<usize> {
        None
    }
}

/// The identity of an outbox. Copies of a state directory share it: a destination that stores its position under it
/// detects that two of them deliver.
#[derive(Clone, Debug)]
pub struct OutboxIdentity {
    /// The name of the flow.
    pub flow: String,
    /// The name of the sink.
    pub sink: String,
    /// The identity of the journal, which is set when the outbox is created and never changes.
    pub outbox: u128,
    /// What becomes of records that the destination refuses.
    #[doc(hidden)] // For the other crates of Millstream.
    pub refusals: Refusals,
}

impl OutboxIdentity {
    /// Returns the identity of the journal as 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{:032x}", self.outbox)
    }
}

/// The reason why a delivery failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeliveryError {
    /// The destination is unreachable or slow: the delivery is repeated.
    Retry(Cause),
    /// The destination does not take some of the records because of their contents, and has written none of them.
    Refused(Cause),
    /// The destination takes no record: a missing right, a wrong address, or another writer has taken over: the flow
    /// fails.
    Fatal(Cause),
}

impl DeliveryError {
    /// Returns an error after which the delivery is repeated.
    pub fn retry(cause: impl Into<Cause>) -> Self {
        DeliveryError::Retry(cause.into())
    }
    /// Returns an error after which the delivery is repeated, at the earliest after `delay`: the destination asks for
    /// it.
    pub fn retry_after(cause: impl Into<Cause>, delay: Duration) -> Self {
        let cause = cause.into();
        DeliveryError::Retry(Box::new(RetryAfter { cause, delay }))
    }
    /// Returns an error of some records of the batch, of which none is written.
    pub fn refused(cause: impl Into<Cause>) -> Self {
        DeliveryError::Refused(cause.into())
    }
    /// Returns an error that fails the flow.
    pub fn fatal(cause: impl Into<Cause>) -> Self {
        DeliveryError::Fatal(cause.into())
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeliveryError::Retry(cause)
            | DeliveryError::Refused(cause)
            | DeliveryError::Fatal(cause) => cause.fmt(f),
        }
    }
}

impl StdError for DeliveryError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            DeliveryError::Retry(cause)
            | DeliveryError::Refused(cause)
            | DeliveryError::Fatal(cause) => cause.source(),
        }
    }
}

/// The cause of an error with the delay that the destination asks for.
#[derive(Debug)]
struct RetryAfter {
    cause: Cause,
    delay: Duration,
}

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl StdError for RetryAfter {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

/// The delay that a destination asks for.
pub(super) fn asked_delay(cause: &Cause) -> Duration {
    let asked = cause.downcast_ref::<RetryAfter>();
    asked.map_or(Duration::ZERO, |asked| asked.delay)
}

/// Returns a connector for a closure that opens a connection.
pub fn connector<D: Destination + 'static>(
    address: &str,
    remembers: bool,
    connect: impl Fn(&OutboxIdentity) -> Result<D, DeliveryError> + Send + Sync + 'static,
) -> impl Connector {
    ByClosure {
        address: address.to_owned(),
        remembers,
        connect,
    }
}

struct ByClosure<F> {
    address: String,
    remembers: bool,
    connect: F,
}

impl<F, D> Connector for ByClosure<F>
where
    F: Fn(&OutboxIdentity) -> Result<D, DeliveryError> + Send + Sync + 'static,
    D: Destination + 'static,
{
    fn describe(&self) -> String {
        self.address.clone()
    }
    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        Ok(Box::new((self.connect)(outbox)?))
    }
    fn remembers(&self) -> bool {
        self.remembers
    }
}

/// The error of a destination with its address.
#[derive(Debug)]
struct AtDestination {
    address: String,
    cause: Cause,
}

impl fmt::Display for AtDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl StdError for AtDestination {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.cause.as_ref())
    }
}

/// Returns the failure of a sink whose destination does not take `records`, if any are concerned.
pub(super) fn refused(
    sink: &str,
    address: &str,
    records: Option<(u64, u64)>,
    cause: Cause,
) -> Failure {
    let address = address.to_owned();
    Failure {
        step: sink.to_owned(),
        key: None,
        item: records.map(numbers),
        cause: Box::new(AtDestination { address, cause }),
    }
}

/// Names records for people.
pub(super) fn numbers((first, last): (u64, u64)) -> String {
    if first == last {
        format!("record {first}")
    } else {
        format!("records {first} to {last}")
    }
}

/// Checks that no record is larger than `limit` bytes, the most that the destination `address` takes.
pub(super) fn check_sizes(
    batch: &Frames,
    limit: Option<usize>,
    address: &str,
) -> Result<(), Cause> {
    let most = limit.unwrap_or(usize::MAX);
    match batch.iter().map(<[u8]>::len).find(|bytes| *bytes > most) {
        None => Ok(()),
        Some(bytes) => Err(too_large(bytes, most, address).into()),
    }
}

/// Returns the text of the error of a record that is larger than the `most` bytes that the destination `address` takes.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn too_large(bytes: usize, most: usize, address: &str) -> String {
    format!("a record of {bytes} bytes is too large for {address}, which takes {most}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_that_a_destination_asks_for_is_found_and_its_error_is_shown() {
        let delay = Duration::from_secs(7);
        for (error, asked) in [
            (DeliveryError::retry("busy"), Duration::ZERO),
            (DeliveryError::retry_after("busy", delay), delay),
        ] {
            assert_eq!(error.to_string(), "busy");
            let (DeliveryError::Retry(cause)
            | DeliveryError::Refused(cause)
            | DeliveryError::Fatal(cause)) = error;
            assert_eq!(asked_delay(&cause), asked);
        }
    }
}
