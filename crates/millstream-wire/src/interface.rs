//! A trait whose calls are records: publishing them and calling a component with them.
//!
//! [`macro@interface`](crate::interface) on a trait generates two types. [`Publisher`] implements the trait; it packs
//! each call straight into the space that its [`Transport`] claims, without allocation. [`Dispatch`] reads the
//! arguments of a record, with strings borrowed from it, and calls an implementation of the trait.
//!
//! ```
//! use millstream_wire::{Publisher, Recorder, Wire, interface};
//!
//! #[derive(Wire)]
//! struct Fill<'a> {
//!     order: &'a str,
//!     quantity: u32,
//! }
//!
//! #[interface]
//! trait Fills {
//!     fn filled(&mut self, fill: &Fill<'_>);
//!     fn done(&mut self, order: &str, at: i64);
//! }
//!
//! let calls = Recorder::default();
//! let mut fills = Publisher::<dyn Fills, _>::new(calls.clone())?;
//! fills.filled(&Fill { order: "A-1", quantity: 100 });
//! fills.done("A-1", 7);
//! assert_eq!(calls.text(), "\
//! filled:
//!   order: A-1
//!   quantity: 100
//! ---
//! done:
//!   order: A-1
//!   at: 7
//! ");
//! # Ok::<(), millstream_wire::Cause>(())
//! ```
//!
//! A method that cannot be a record does not compile:
//! ```compile_fail
//! #[millstream_wire::interface]
//! trait Lookup {
//!     fn price(&mut self, symbol: &str) -> f64; // a call gets no answer
//! }
//! ```
//! ```compile_fail
//! #[millstream_wire::interface]
//! trait Threads {
//!     fn started(&mut self, handle: std::thread::Thread); // has no type in a schema
//! }
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use crate::call::{Call, Catalog};
use crate::error::{Result, WireError, chain};
use crate::pack::{Packer, pack};
use crate::record::{Lineage, Note};
use crate::schema::Schema;
use crate::unpack::Unpacker;

/// Why a call could not be published, or why a component failed.
pub type Cause = Box<dyn Error + Send + Sync>;

/// An interface: `dyn Trait` of a trait with the attribute [`macro@interface`](crate::interface).
pub trait Interface {
    /// Its methods and their types.
    ///
    /// # Errors
    /// The interface contradicts itself: two types of one name, for example.
    fn schema() -> Result<Schema>;
}

/// An interface whose calls can be made on a component `C`.
pub trait Dispatch<C: ?Sized>: Interface {
    /// Reads the arguments of the method of this number and calls it.
    ///
    /// # Errors
    /// The arguments do not match the schema of the interface, or the component failed.
    fn dispatch(
        component: &mut C,
        method: u64,
        arguments: Unpacker<'_>,
    ) -> std::result::Result<(), CallError>;
}

/// Why a call of a component failed.
///
/// `Debug` is the whole chain of causes in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The record does not match the schema.
    #[error(transparent)]
    Record(#[from] Box<WireError>),
    /// The component returned an error.
    #[error("{method}")]
    Component {
        /// The method that failed.
        method: String,
        /// The error that it returned.
        #[source]
        cause: Cause,
    },
    /// The component was interrupted, by a signal or from a debugger. The record is not at fault: it is neither skipped
    /// nor set aside.
    #[error(transparent)]
    Interrupted {
        /// What interrupted it.
        cause: Cause,
    },
}

impl std::fmt::Debug for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&chain(self))
    }
}

impl CallError {
    /// Whether an error says that the component was interrupted.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn is_interruption(cause: &Cause) -> bool {
        matches!(cause.downcast_ref(), Some(Self::Interrupted { .. }))
    }

    /// The error of a component.
    #[cold]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn component(method: &str, cause: impl Into<Cause>) -> Self {
        let method = method.to_owned();
        let cause = cause.into();
        Self::Component { method, cause }
    }

    /// The error that a call names a method that the interface lacks.
    #[cold]
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn unknown_method(interface: &str, number: u64) -> Self {
        Self::Record(Box::new(WireError::UnknownMethod {
            interface: interface.to_owned(),
            method: number.to_string(),
        }))
    }
}

/// The destination of published calls: a journal, a list, a text.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Transport {
    /// Receives the schema of calls to come, before the first of them.
    ///
    /// # Errors
    /// It cannot be stored.
    fn announce(&mut self, schema: &Arc<Schema>) -> std::result::Result<(), Cause>;

    /// Takes one call: claims space for the [`Lineage`] and `size_max` bytes, writes the lineage, lets `write` write
    /// the call after it, and commits the bytes.
    ///
    /// # Errors
    /// The call is not stored.
    fn publish(
        &mut self,
        size_max: usize,
        write: impl FnOnce(&mut Packer<'_>) -> Result<()>,
    ) -> std::result::Result<(), Cause>;

    /// Whether its owner reports calls that are not stored, as the runner of a service does.
    fn is_watched(&self) -> bool {
        false
    }
}

/// A call that cannot be stored, while others can: it is too large, or one of its values has no place in a record.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Refused(pub Cause);

/// A transport that keeps the calls, for tests: as a list or as text. Copies of it share their calls.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    recorded: Arc<Mutex<Recorded>>,
}

#[derive(Debug, Default)]
struct Recorded {
    catalog: Catalog,
    calls: Vec<Call>,
}

impl Recorder {
    /// Returns and removes the calls since the last call of this or [`text`](Self::text).
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.recorded().calls)
    }

    /// Returns and removes the same calls as YAML.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<String> = self.take().iter().map(Call::to_text).collect();
        texts.join("---\n")
    }

    fn recorded(&self) -> std::sync::MutexGuard<'_, Recorded> {
        // Each change is a single push, so a panic elsewhere leaves nothing half done.
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Recorder {
    fn announce(&mut self, schema: &Arc<Schema>) -> std::result::Result<(), Cause> {
        let note = Note::Schema(Schema::clone(schema));
        Ok(self.recorded().catalog.learn(note)?)
    }

    fn publish(
        &mut self,
        size_max: usize,
        write: impl FnOnce(&mut Packer<'_>) -> Result<()>,
    ) -> std::result::Result<(), Cause> {
        let record = pack(Lineage::SIZE_MAX + size_max, |out| {
            Lineage::pack(None, out)?;
            write(out)
        })?;
        let mut recorded = self.recorded();
        if let Some((_, call)) = recorded.catalog.read(&record)? {
            recorded.calls.push(call);
        }
        Ok(())
    }
}
