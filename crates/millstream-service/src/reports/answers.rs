//! The answer of a call: the first output of a service whose direct cause is the call.
//!
//! [`Effects`] reads the outputs of a service with their causes. [`Caller`] makes a call and waits for its answer.

use std::time::Duration;

use millstream_journal::{Host, Journal, Reader, Wait};
use millstream_wire::{Call, Cause, Interface, Lineage, Publisher, Record};

use crate::error::ServiceError;
use crate::inputs::calls::{Calls, Content};
use crate::outputs::outlet::{Outlet, publisher};

/// The longest wait between two looks at the time.
const LOOK: Duration = Duration::from_millis(50);

/// An output, and the record that it is an effect of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Effect {
    /// The number of the output.
    pub sequence: u64,
    /// The identity of the journal of its cause, which all copies of that journal have in common.
    pub journal: u128,
    /// The number of its cause in that journal.
    pub cause: u64,
}

/// Reads the outputs of a service with their causes.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Effects {
    journal: Journal,
    reader: Reader,
    calls: Calls,
}

impl Effects {
    /// Reads the outputs in this journal from the record `first` on.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn of(output: &Journal, first: u64) -> Result<Self, ServiceError> {
        let mut reader = output.reader()?;
        reader.seek(first.max(output.first()?))?;
        Ok(Self {
            journal: output.clone(),
            reader,
            calls: Calls::of(output),
        })
    }

    /// The next output that is an effect; `None` if there is none yet.
    ///
    /// # Errors
    /// The journal cannot be read, or a record is neither a call nor a note.
    pub fn next_effect(&mut self) -> Result<Option<Effect>, ServiceError> {
        while let Some(record) = self.reader.next()? {
            let sequence = record.sequence;
            let read = lineage(&mut self.calls, sequence, record.body).and_then(|lineage| {
                let Some(Lineage {
                    input,
                    sequence: cause,
                    ..
                }) = lineage
                else {
                    return Ok(None);
                };
                let journal = self.calls.input(input, sequence)?.identity;
                Ok(Some(Effect {
                    sequence,
                    journal,
                    cause,
                }))
            });
            if let Some(effect) = read.map_err(|cause| self.fault(sequence, cause))? {
                return Ok(Some(effect));
            }
        }
        Ok(None)
    }

    /// Waits until there may be another output, for `limit` at most; false if there is none.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn wait(&mut self, limit: Duration) -> Result<bool, ServiceError> {
        Ok(self.reader.wait(Wait::Block, Some(limit))?)
    }

    /// The call of an output.
    ///
    /// # Errors
    /// The journal cannot be read, or the call does not fit its schema.
    pub fn call(&mut self, effect: Effect) -> Result<Call, ServiceError> {
        let sequence = effect.sequence;
        let mut reader = self.journal.reader()?;
        let record = reader.read(sequence)?;
        match self.calls.read(sequence, record.body) {
            Ok(Content::Call(call, _)) => Ok(call),
            Ok(Content::Note(_)) => Err(self.fault(sequence, "it is no call".into())),
            Err(cause) => Err(self.fault(sequence, cause)),
        }
    }

    fn fault(&self, sequence: u64, cause: Cause) -> ServiceError {
        ServiceError::Input {
            journal: self.journal.path().display().to_string(),
            sequence,
            cause,
        }
    }

    /// Waits for the answer of the call that is the record `cause` of a journal, for `limit` at most.
    ///
    /// # Errors
    /// The outputs cannot be read.
    pub fn answer(
        &mut self,
        input: &Journal,
        cause: u64,
        limit: Duration,
    ) -> Result<Answered, ServiceError> {
        let host = Host::real();
        let begun = host.monotonic();
        let journal = input.lineage()?;
        loop {
            while let Some(effect) = self.next_effect()? {
                if effect.journal == journal && effect.cause == cause {
                    let call = self.call(effect)?;
                    let sequence = effect.sequence;
                    return Ok(Answered::Call { sequence, call });
                }
                // A service takes the records of a journal in order.
                if effect.journal == journal && effect.cause > cause {
                    return Ok(Answered::Nothing);
                }
            }
            let left = limit.saturating_sub(host.monotonic().saturating_sub(begun));
            if left.is_zero() {
                return Ok(Answered::Late);
            }
            self.wait(left.min(LOOK))?;
        }
    }
}

/// The lineage of a call; a note is learned.
fn lineage(calls: &mut Calls, sequence: u64, body: &[u8]) -> Result<Option<Lineage>, Cause> {
    match Record::read(body)? {
        Record::Call(lineage, ..) => Ok(lineage),
        Record::Note(note) => calls.learn(sequence, note).map(|_| None),
    }
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Answered {
    /// The first output that it caused.
    Call {
        /// The number of the output.
        sequence: u64,
        /// The output.
        call: Call,
    },
    /// It caused none: the service has taken a later call.
    Nothing,
    /// There was no output in time. The call is recorded all the same, and may cause one still.
    Late,
}

/// Makes calls, and waits for their answers.
///
/// ```
/// use std::time::Duration;
/// use millstream_journal::{Journal, Options};
/// use millstream_service::{Answered, Caller};
///
/// #[millstream_wire::interface]
/// trait Orders {
///     fn place(&mut self, symbol: &str);
/// }
///
/// # fn main() -> Result<(), millstream_wire::Cause> {
/// # let folder = tempfile::tempdir()?;
/// let orders = Journal::open(folder.path().join("orders"), Options::default())?;
/// let replies = Journal::open(folder.path().join("replies"), Options::default())?;
/// let mut desk = Caller::<dyn Orders>::new(&orders, &replies)?;
/// let answer = desk.call(Duration::from_millis(1), |orders| orders.place("VOD.L"))?;
/// assert_eq!(answer, Answered::Late); // no service runs
/// # Ok(())
/// # }
/// ```
pub struct Caller<I: Interface + ?Sized> {
    publisher: Publisher<I, Outlet>,
    input: Journal,
    output: Journal,
}

impl<I: Interface + ?Sized> Caller<I> {
    /// Calls the service that reads `input` and writes `output`.
    ///
    /// # Errors
    /// The input cannot be written; the interface contradicts itself.
    pub fn new(input: &Journal, output: &Journal) -> Result<Self, Cause> {
        Ok(Self {
            publisher: publisher(input)?,
            input: input.clone(),
            output: output.clone(),
        })
    }

    /// Makes a call, and waits for its answer, for `limit` at most. Of several calls, the answer is that of the last
    /// one.
    ///
    /// # Errors
    /// There was no call; a journal cannot be written or read.
    pub fn call<R>(
        &mut self,
        limit: Duration,
        call: impl FnOnce(&mut Publisher<I, Outlet>) -> R,
    ) -> Result<Answered, Cause> {
        let mut effects = Effects::of(&self.output, self.output.next()?)?;
        let before = self.publisher.transport().last();
        drop(call(&mut self.publisher));
        self.publisher.check()?;
        match self.publisher.transport().last() {
            Some(cause) if Some(cause) != before => {
                Ok(effects.answer(&self.input, cause, limit)?)
            }
            _ => Err("no call was recorded that can be answered".into()),
        }
    }
}

impl<I: Interface + ?Sized> std::fmt::Debug for Caller<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Caller({})", self.input.path().display())
    }
}
