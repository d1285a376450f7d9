//! Publishing: an interface whose calls become records.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tracing::error;

use crate::Result;
use crate::error::chain;
use crate::interface::{Cause, Interface, Refused, Transport};
use crate::pack::Packer;
use crate::record::Head;

/// Implements the interface `I`: each call becomes a record.
///
/// Methods that return nothing cannot report a lost call. The publisher then logs the first one and publishes nothing
/// more, so that there is no gap, until [`check`](Self::check) returns the error. A call that is [refused](Refused) by
/// itself, as one that is too large, is lost alone. What was never asked for is logged again when the publisher is
/// dropped. Without a subscriber of `tracing` it is written to standard error. Methods that return a `Result` return
/// the error instead.
pub struct Publisher<I: Interface + ?Sized, T: Transport> {
    transport: T,
    schema: u32,
    lost: Option<Lost>,
    interface: PhantomData<fn(&mut I)>,
}

/// Calls that were not published, and that no `Result` has reported.
struct Lost {
    calls: u64,
    /// Why the first one is.
    cause: Cause,
    /// Whether nothing is published until `check` is called.
    ends: bool,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.calls {
            1 => fmt::Display::fmt(&self.cause, f),
            calls => write!(f, "{calls} calls were not published; the first"),
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}

impl Error for Lost {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.calls {
            1 => self.cause.source(),
            _ => Some(&*self.cause),
        }
    }
}

impl<I: Interface + ?Sized, T: Transport> Publisher<I, T> {
    /// Announces the schema of the interface and publishes through the transport.
    ///
    /// # Errors
    /// The interface contradicts itself; the transport fails.
    pub fn new(mut transport: T) -> std::result::Result<Self, Cause> {
        let schema = Arc::new(I::schema()?);
        transport.announce(&schema)?;
        Ok(Self {
            transport,
            schema: schema.id(),
            lost: None,
            interface: PhantomData,
        })
    }

    /// Whether everything has been published since the last check.
    ///
    /// # Errors
    /// Why the first call has not, and how many have not; those calls are lost.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn check(&mut self) -> std::result::Result<(), Cause> {
        self.lost.take().map_or(Ok(()), |lost| Err(lost.into()))
    }

    /// The transport of the calls.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Publishes a call of the method of this number; the code that the attribute generates calls this.
    ///
    /// # Errors
    /// The transport fails.
    #[doc(hidden)]
    #[inline]
    pub fn publish(
        &mut self,
        method: u64,
        arguments: usize,
        size_max: usize,
        write: impl FnOnce(&mut Packer<'_>) -> Result<()>,
    ) -> std::result::Result<(), Cause> {
        if self.lost.as_ref().is_some_and(|lost| lost.ends) {
            return Err("an earlier call could not be published".into());
        }
        let head = Head {
            schema: self.schema,
            method,
            arguments,
        };
        self.transport.publish(Head::SIZE_MAX + size_max, |out| {
            head.pack(out)?;
            write(out)
        })
    }

    /// Keeps the error of a method that cannot return one.
    #[doc(hidden)]
    #[inline]
    pub fn store_error(&mut self, published: std::result::Result<(), Cause>) {
        if let Err(cause) = published {
            self.lose(cause);
        }
    }

    #[cold]
    fn lose(&mut self, cause: Cause) {
        let ends = cause.downcast_ref::<Refused>().is_none();
        match &mut self.lost {
            Some(lost) => {
                lost.calls += 1;
                lost.ends |= ends;
            }
            None => {
                if !self.transport.is_watched() {
                    let after = if ends {
                        "; later ones are not published either, until `check` is called"
                    } else {
                        ""
                    };
                    report(&format!(
                        "a call of {} was not published: {}{after}",
                        name::<I>(),
                        chain(&*cause)
                    ));
                }
                self.lost = Some(Lost {
                    calls: 1,
                    cause,
                    ends,
                });
            }
        }
    }
}

/// Says that data is lost, where it is seen.
#[expect(
    clippy::print_stderr,
    reason = "data is lost, and a program without a subscriber of logs would never learn of it"
)]
fn report(text: &str) {
    if tracing::dispatcher::has_been_set() {
        error!("{text}")
    } else {
        eprintln!("{text}")
    }
}

fn name<I: ?Sized>() -> &'static str {
    std::any::type_name::<I>()
}

impl<I: Interface + ?Sized, T: Transport> Drop for Publisher<I, T> {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take().filter(|_| !self.transport.is_watched()) {
            report(&format!(
                "{} calls of {} were not published, and nothing has asked for that (`Publisher::check`); the first: {}",
                lost.calls,
                name::<I>(),
                chain(&*lost.cause)
            ));
        }
    }
}

impl<I: Interface + ?Sized, T: Transport + fmt::Debug> fmt::Debug for Publisher<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publisher<{}>({:?})", name::<I>(), self.transport)
    }
}
