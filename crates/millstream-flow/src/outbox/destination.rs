//! What an outbox delivers to.

use std::error::Error as StdError;
use std::fmt;

use crate::error::Cause;
use crate::framing::Frames;

/// One live connection to an external system that takes batches of records.
pub trait Destination: Send {
    /// Writes the records `first` to `last`, which `batch` holds in order, as one unit: all of them or none.
    ///
    /// The same records may be written again after an error, and after a crash. A destination that
    /// [remembers](Connector::remembers) stores `last` in the same transaction, on the condition that the position stored before is
    /// `first - 1` (none, for the first records): otherwise another forwarder of the same outbox is at work, which is
    /// [`DeliveryError::Fatal`].
    ///
    /// # Errors
    /// [`DeliveryError::Retry`] when it may succeed later: the connection is closed and made anew. [`DeliveryError::Fatal`] when
    /// it never will.
    fn write(&mut self, batch: &Frames, first: u64, last: u64) -> Result<(), DeliveryError>;
    /// The number of the last record that it has for certain; `None` when it remembers nothing yet. Called after each connect, and
    /// only where the connector [remembers](Connector::remembers).
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        Ok(None)
    }
}

/// Makes connections to a destination.
pub trait Connector: Send + Sync + 'static {
    /// The kind and the address, for people: `http post https://example.com/orders`.
    fn describe(&self) -> String;
    /// Connects. Called by the thread that delivers, once at the start and again after each error.
    ///
    /// # Errors
    /// As for [`Destination::write`].
    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError>;
    /// Whether the destination remembers its position: with that each record is delivered exactly once.
    fn remembers(&self) -> bool;
    /// The size of the largest record that it takes, in bytes. A larger one fails the flow when it is produced.
    fn record_bytes_max(&self) -> Option<usize> {
        None
    }
}

/// What distinguishes an outbox from all others. Copies of a state directory share it: a destination that stores its position
/// under it notices when two of them deliver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutboxIdentity {
    /// The name of the flow.
    pub flow: String,
    /// The name of the sink.
    pub sink: String,
    /// The identity of the journal: made when the outbox is, and never again.
    pub outbox: u128,
}

impl OutboxIdentity {
    /// The identity of the journal as 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{:032x}", self.outbox)
    }
}

/// Why a delivery failed.
#[derive(Debug)]
pub enum DeliveryError {
    /// The destination is away or slow: the delivery is tried again.
    Retry(Cause),
    /// The destination refuses the records, or a newer writer has taken over: the flow fails.
    Fatal(Cause),
}

impl DeliveryError {
    /// An error after which the delivery is tried again.
    pub fn retry(cause: impl Into<Cause>) -> Self {
        DeliveryError::Retry(cause.into())
    }
    /// An error that fails the flow.
    pub fn fatal(cause: impl Into<Cause>) -> Self {
        DeliveryError::Fatal(cause.into())
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeliveryError::Retry(cause) | DeliveryError::Fatal(cause) => cause.fmt(f),
        }
    }
}

impl StdError for DeliveryError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            DeliveryError::Retry(cause) | DeliveryError::Fatal(cause) => cause.source(),
        }
    }
}

/// A connector of a closure that connects.
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

/// Refuses a batch with a record that is larger than `limit` bytes, which the destination `address` never takes.
pub(super) fn check_sizes(
    batch: &Frames,
    limit: Option<usize>,
    address: &str,
) -> Result<(), Cause> {
    let limit = limit.unwrap_or(usize::MAX);
    match batch.iter().map(<[u8]>::len).find(|bytes| *bytes > limit) {
        None => Ok(()),
        Some(bytes) => Err(format!(
            "a record of {bytes} bytes is too large for {address}, which takes {limit}"
        )
        .into()),
    }
}
