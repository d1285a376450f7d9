//! A component before it runs: its inputs, timers and states.

use std::time::Duration;

use millstream_journal::Journal;
use millstream_wire::{Cause, Dispatch, Schema, Unpacker};
use serde_json::Value;

use super::service::Service;
use super::state::OWN;
use crate::error::ServiceError;
use crate::inputs::admit;
use crate::inputs::inlet::{self, Inlet};
use crate::inputs::names::same_directory;
use crate::outputs::progress::StopCheck;
use crate::queries::{Answer, Arguments, QueryError};
use crate::recorded::snapshot::{RestoreError, Snapshot, Snapshotter};
use crate::timers::{Timer, When};

impl Service {
    /// The component that runs.
    pub fn component<C>(self, component: C) -> Setup<C> {
        Setup {
            service: self,
            component,
            inlets: Vec::new(),
            timers: Vec::new(),
            renamed: Vec::new(),
            own: None,
            snapshotter: None,
            asked: None,
            queries: Vec::new(),
        }
    }
}

/// A service with its component, to which inputs are added.
pub struct Setup<C> {
    pub(super) service: Service,
    pub(super) component: C,
    pub(super) inlets: Vec<Inlet<C>>,
    pub(super) timers: Vec<Timer<C>>,
    /// Earlier names of timers, and those of today.
    pub(super) renamed: Vec<(String, String)>,
    pub(super) own: Option<Inlet<C>>,
    pub(super) snapshotter: Option<Snapshotter<C>>,
    /// Whether a stop is requested while the state is rebuilt.
    pub(super) asked: Option<StopCheck>,
    pub(super) queries: Vec<(String, Answer<C>)>,
}

impl<C: 'static> Setup<C> {
    /// Calls the component with the records of this journal that are calls of the interface. Several inputs are merged
    /// by time.
    ///
    /// # Errors
    /// The journal cannot be read; the interface contradicts itself.
    pub fn input<I: Dispatch<C> + ?Sized + 'static>(
        self,
        journal: &Journal,
    ) -> Result<Self, ServiceError> {
        self.input_with(journal, I::schema()?, I::dispatch)
    }

    /// As [`input`](Self::input) for an interface that is known only now: `dispatch` gets the number of a method of the
    /// schema and its arguments.
    ///
    /// # Errors
    /// The journal cannot be read.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn input_with(
        mut self,
        journal: &Journal,
        schema: Schema,
        dispatch: impl FnMut(&mut C, u64, Unpacker<'_>) -> Result<(), millstream_wire::CallError>
        + Send
        + 'static,
    ) -> Result<Self, ServiceError> {
        if let Some(output) = &self.service.output {
            admit::not_own_output(journal, &output.journal)?;
        }
        let dispatch: inlet::Dispatch<C> = Box::new(dispatch);
        let path = journal.path();
        let same = |inlet: &&mut Inlet<C>| same_directory(&inlet.journal.path(), &path);
        if let Some(inlet) = self.inlets.iter_mut().find(same) {
            inlet.also(schema, dispatch);
            return Ok(self);
        }
        let number = self.service.current.add_input(journal);
        let mut inlet = Inlet::new(number, journal)?;
        inlet.also(schema, dispatch);
        self.inlets.push(inlet);
        Ok(self)
    }

    /// Saves the state of the component after every `every` calls, and when the service is stopped, in a journal beside
    /// the output journal (`replies.snapshots`). A start resumes from there and repeats only the inputs after it.
    #[must_use]
    pub fn snapshots(self, every: u64) -> Self
    where
        C: Snapshot,
    {
        let restore = |component: &mut C, state: &[u8], version| {
            let migrated = if version == C::VERSION {
                None
            } else {
                Some(C::migrate(state, version).map_err(RestoreError::Unreadable)?)
            };
            let state = migrated.as_deref().unwrap_or(state);
            component.restore(state).map_err(RestoreError::Failed)
        };
        self.snapshots_with(every, C::VERSION, |component| component.snapshot(), restore)
    }

    /// As [`snapshots`](Self::snapshots) with two functions: one saves a state of this `version`, one restores a state
    /// of any version.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn snapshots_with(
        mut self,
        every: u64,
        version: u64,
        save: impl FnMut(&mut C) -> Result<Vec<u8>, Cause> + Send + 'static,
        restore: impl FnMut(&mut C, &[u8], u64) -> Result<(), RestoreError> + Send + 'static,
    ) -> Self {
        self.snapshotter = Some(Snapshotter {
            every: every.max(1),
            since: 0,
            version,
            save: Box::new(save),
            restore: Box::new(restore),
        });
        self
    }

    /// Rebuilds the state from the outputs of the component: at a start, the object that `listener` returns, the
    /// component itself or a part of it, is called with all recorded calls of the interface. Only the last input is
    /// repeated, as some of its outputs may be missing. For components whose outputs determine their whole state.
    ///
    /// ```
    /// use millstream_journal::{Journal, Options};
    /// use millstream_service::{Service, Settings, publisher};
    ///
    /// #[millstream_wire::interface]
    /// trait Orders {
    ///     fn place(&mut self, quantity: u64);
    /// }
    ///
    /// #[millstream_wire::interface]
    /// trait Replies {
    ///     fn accepted(&mut self, total: u64);
    /// }
    ///
    /// /// What the replies say about the state.
    /// #[derive(Default)]
    /// struct Book {
    ///     total: u64,
    /// }
    ///
    /// impl Replies for Book {
    ///     fn accepted(&mut self, total: u64) {
    ///         self.total = total;
    ///     }
    /// }
    ///
    /// struct Desk<R> {
    ///     replies: R,
    ///     book: Book,
    /// }
    ///
    /// impl<R: Replies> Orders for Desk<R> {
    ///     fn place(&mut self, quantity: u64) {
    ///         self.book.total += quantity;
    ///         self.replies.accepted(self.book.total);
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), millstream_wire::Cause> {
    /// # let folder = tempfile::tempdir()?;
    /// let orders = Journal::open(folder.path().join("orders"), Options::default())?;
    /// let replies = Journal::open(folder.path().join("replies"), Options::default())?;
    /// for start in 1..=3 {
    ///     publisher::<dyn Orders>(&orders)?.place(100);
    ///     let service = Service::new(&replies)?;
    ///     let desk = Desk { replies: service.publisher::<dyn Replies>()?, book: Book::default() };
    ///     let setup = service.component(desk).rebuild_from::<dyn Replies, _>(|desk| &mut desk.book)?;
    ///     let mut runner = setup.input::<dyn Orders>(&orders)?.start(Settings::default())?;
    ///     runner.drain()?;
    ///     assert_eq!(runner.component().book.total, 100 * start);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no output; the interface contradicts itself.
    pub fn rebuild_from<I: Dispatch<T> + ?Sized + 'static, T: ?Sized>(
        self,
        listener: impl Fn(&mut C) -> &mut T + Send + 'static,
    ) -> Result<Self, ServiceError> {
        self.rebuild_from_with(I::schema()?, move |component, method, arguments| {
            I::dispatch(listener(component), method, arguments)
        })
    }

    /// As [`rebuild_from`](Self::rebuild_from) for an interface that is known only now; `dispatch` is as in
    /// [`input_with`](Self::input_with).
    ///
    /// # Errors
    /// There is no output.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn rebuild_from_with(
        mut self,
        schema: Schema,
        dispatch: impl FnMut(&mut C, u64, Unpacker<'_>) -> Result<(), millstream_wire::CallError>
        + Send
        + 'static,
    ) -> Result<Self, ServiceError> {
        let output = self.service.output.as_ref().ok_or(ServiceError::NoOutput)?;
        let own = match self.own.take() {
            Some(own) => own,
            None => Inlet::new(OWN, &output.journal)?,
        };
        self.own.insert(own).also(schema, Box::new(dispatch));
        Ok(self)
    }

    /// Calls the component every `period`, with the recorded time in ns since 1970: a [`timer`](Self::timer) with
    /// [`When::every`]. After a pause it is called once, however many periods have passed.
    #[must_use]
    pub fn every(
        self,
        name: &str,
        period: Duration,
        call: impl FnMut(&mut C, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        self.timer(name, When::every(period), call)
    }

    /// Calls the component at times, with the recorded time in ns since 1970.
    ///
    /// The calls are recorded under the `name`, which no other timer of the component has: timers may be added, removed
    /// and put in another order. Recorded calls of a removed timer are not repeated.
    #[must_use]
    pub fn timer(
        mut self,
        name: &str,
        when: When,
        call: impl FnMut(&mut C, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        self.timers.push(Timer::recurring(name, when, call));
        self
    }

    /// Calls the component when a one-off timer is due that it has started with its [`Timers`](crate::Timers) for the
    /// method `name`; with the name of the timer, and the recorded time in ns since 1970. These calls are recorded as
    /// those of a [`timer`](Self::timer).
    #[must_use]
    pub fn one_off(
        mut self,
        name: &str,
        call: impl FnMut(&mut C, &str, i64) -> Result<(), Cause> + Send + 'static,
    ) -> Self {
        self.service.current.add_handler(name);
        self.timers.push(Timer::one_off(name, call));
        self
    }

    /// While the state is rebuilt, `asked` is called after each call of the component: if it returns true, the start
    /// ends with [`ServiceError::Stopped`].
    #[must_use]
    pub fn stopped_by(mut self, asked: impl Fn() -> bool + Send + 'static) -> Self {
        self.asked = Some(Box::new(asked));
        self
    }

    /// Answers the query `name` while the service runs, from the state of the component: on its thread, between two
    /// inputs. Nothing is recorded, and the query makes no calls. [`ask`](crate::ask) asks it, through a socket beside
    /// the output journal.
    ///
    /// ```
    /// use millstream_journal::{Journal, Options};
    /// use millstream_service::json::json;
    /// use millstream_service::{QueryError, Service};
    ///
    /// struct Desk {
    ///     total: f64,
    /// }
    ///
    /// # fn main() -> Result<(), millstream_wire::Cause> {
    /// # let folder = tempfile::tempdir()?;
    /// let replies = Journal::open(folder.path().join("replies"), Options::default())?;
    /// let setup = Service::new(&replies)?.component(Desk { total: 0.0 }).query("turnover", |desk, arguments| {
    ///     let times = match arguments.get("times") {
    ///         Some(times) => times.as_f64().ok_or_else(|| QueryError::arguments("times is a number"))?,
    ///         None => 1.0,
    ///     };
    ///     Ok(json!(desk.total * times))
    /// });
    /// # drop(setup);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn query(
        mut self,
        name: &str,
        answer: impl FnMut(&mut C, &Arguments) -> Result<Value, QueryError> + Send + 'static,
    ) -> Self {
        self.queries.push((name.to_owned(), Box::new(answer)));
        self
    }

    /// Renames a timer: recorded calls of the timer `old` are repeated by the timer `new`.
    #[must_use]
    pub fn renamed_timer(mut self, old: &str, new: &str) -> Self {
        self.renamed.push((old.to_owned(), new.to_owned()));
        self
    }
}
