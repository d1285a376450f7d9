//! Aggregates of windows on Python objects: built-in ones, without a call into Python for plain
//! numbers, and functions of the user.

use millstream_flow::Window;
use millstream_flow::checkpoint::{BoxedCodec, Codecs, StateCodec, pack};
use millstream_flow::error::Cause;
use millstream_flow::state::Growing;
use millstream_flow::window::{Aggregate, Bounds, Choose};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use crate::error::cause;
use crate::gil::locked;
use crate::ownership::{copied, separate};
use crate::saving::{StateMaker, objects, save_object};
use crate::show::show;
use crate::time::{moment_or_none, seconds, to_nanos};

/// Windows as Python describes them: an object with these attributes.
#[derive(FromPyObject)]
pub(crate) struct WindowOptions {
    kind: String,
    /// Nanoseconds or items.
    numbers: [u64; 3],
    /// How often early results come.
    early: u64,
    pub(crate) ordered: bool,
    /// Lateness and patience of a watermark for each key; nanoseconds.
    per_key: Option<(u64, Option<u64>)>,
    /// Whether the values are those of two streams that are joined.
    pub(crate) joins: bool,
}

impl WindowOptions {
    /// Whether a value may be added to several windows. Those that slide add it to one part, unless the values
    /// themselves are kept.
    pub(crate) fn overlaps(&self) -> bool {
        let [length, every, _] = self.numbers;
        match self.kind.as_str() {
            "aligned" => self.ordered && every < length,
            kind => kind == "chosen",
        }
    }
}

/// Windows as Python describes them.
pub(crate) fn window(described: &WindowOptions) -> PyResult<Window> {
    let [first, second, third] = described.numbers;
    let time = Duration::from_nanos;
    let window = match described.kind.as_str() {
        "aligned" => Window::sliding(time(first), time(second)).offset(time(third)),
        "session" => Window::session(time(first)),
        "count" => Window::count(first),
        // Of those that are chosen the kind does not count.
        "chosen" => Window::count(1),
        other => return Err(PyValueError::new_err(format!("no such window: {other}"))),
    };
    let window = window.early(described.early);
    let window = match described.per_key {
        Some((lateness, patience)) => window.per_key(time(lateness), patience.map(time)),
        None => window,
    };
    Ok(if described.ordered {
        window.ordered()
    } else {
        window
    })
}

/// The windows that contain a moment, by an object of the user.
pub(crate) fn choosing(windower: Py<PyAny>) -> Choose<PyErr> {
    Box::new(move |time| {
        locked(|py| {
            let asked = intern!(py, "windows");
            let made = windower.bind(py).call_method1(asked, (seconds(time),))?;
            let mut windows = Vec::new();
            for window in made.try_iter()? {
                let window = window?;
                let (start, end): (Bound<'_, PyAny>, Bound<'_, PyAny>) = window.extract()?;
                let start = to_nanos(&start)?;
                let end = to_nanos(&end)?;
                if !(start..end).contains(&time) {
                    return Err(PyValueError::new_err(format!(
                        "the window {} does not contain its item, at {}",
                        show(&window),
                        seconds(time)
                    )));
                }
                windows.push((start, end));
            }
            Ok(windows)
        })
    })
}

/// Another reference to a value that is late for several windows.
pub(crate) fn copy(value: &Py<PyAny>) -> Py<PyAny> {
    locked(|py| value.clone_ref(py))
}

/// The result that a window computes of its values.
enum AggregateKind {
    Count,
    /// With the function of `millstream/_values/text_values.py` for the first value, as the next three.
    Sum(Py<PyAny>),
    Mean(Py<PyAny>),
    Min(Py<PyAny>),
    Max(Py<PyAny>),
    Collect,
    /// The values of two streams that are joined, each of which follows the number of its stream.
    Sides,
    Reduce(Py<PyAny>),
    Functions(Functions),
}

/// `initial()`, `add(acc, value)`, `merge(acc, later)`, `result(acc, bounds)`.
pub(crate) struct Functions {
    initial: Py<PyAny>,
    add: Py<PyAny>,
    merge: Py<PyAny>,
    result: Option<Py<PyAny>>,
    /// Whether `merge` leaves the later accumulator as it is, and keeps nothing of it that changes.
    merge_reads: bool,
}

/// The index of the function of an aggregate that restores saved accumulators: see `millstream/_values/revival.py`.
const REVIVING: usize = 4;

/// The index of the `merge` of functions that leave the later accumulator as it is.
const READING_MERGE: usize = 5;

/// The index of the function that reads what is aggregated of a value, of `sum`, `mean`, `min` and `max`.
const READING: usize = 1;

impl AggregateKind {
    /// Reads a name and functions.
    fn read(kind: &str, functions: &[Option<Py<PyAny>>]) -> PyResult<Self> {
        let none = || locked(|py| py.None());
        let function = |at: usize| {
            let given = functions.get(at).and_then(Option::as_ref);
            given.map_or_else(none, |f| locked(|py| f.clone_ref(py)))
        };
        Ok(match kind {
            "count" => AggregateKind::Count,
            "sum" => AggregateKind::Sum(function(0)),
            "mean" => AggregateKind::Mean(function(0)),
            "min" => AggregateKind::Min(function(0)),
            "max" => AggregateKind::Max(function(0)),
            "collect" => AggregateKind::Collect,
            "join" => AggregateKind::Sides,
            "reduce" => AggregateKind::Reduce(function(0)),
            "fold" | "aggregate" | "agg" => AggregateKind::Functions(Functions {
                initial: function(0),
                add: function(1),
                merge: function(2),
                result: functions
                    .get(3)
                    .and_then(Option::as_ref)
                    .map(|_| function(3)),
                merge_reads: functions.get(READING_MERGE).is_some_and(Option::is_some),
            }),
            other => return Err(PyValueError::new_err(format!("no such aggregate: {other}"))),
        })
    }

    /// Whether a function may read what is aggregated of a value.
    fn reads(&self) -> bool {
        matches!(
            self,
            AggregateKind::Sum(_)
                | AggregateKind::Mean(_)
                | AggregateKind::Min(_)
                | AggregateKind::Max(_)
        )
    }

    fn form(&self) -> Form {
        match self {
            AggregateKind::Count
            | AggregateKind::Sum(_)
            | AggregateKind::Min(_)
            | AggregateKind::Max(_) => Form::Value,
            AggregateKind::Reduce(_) | AggregateKind::Functions(_) => Form::Object,
            AggregateKind::Collect => Form::List,
            AggregateKind::Sides => Form::Sides,
            AggregateKind::Mean(_) => Form::Mean,
        }
    }
}

/// The accumulator of a window.
pub(crate) enum Acc {
    /// No value yet.
    Empty,
    Int(i64),
    Float(f64),
    Object(Py<PyAny>),
    List(Box<Growing<Py<PyAny>>>),
    Sides(Box<[Growing<Py<PyAny>>; 2]>),
    /// A sum and how many.
    Mean(Box<Acc>, u64),
}

impl Acc {
    /// A plain number, or else the object.
    fn of(value: &Bound<'_, PyAny>) -> Self {
        if let Ok(float) = value.cast_exact::<PyFloat>() {
            return Acc::Float(float.value());
        }
        if value.is_exact_instance_of::<PyInt>()
            && let Ok(int) = value.extract::<i64>()
        {
            return Acc::Int(int);
        }
        Acc::Object(value.clone().unbind())
    }

    fn object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Acc::Empty => py.None().into_bound(py),
            Acc::Int(int) => int.into_pyobject(py)?.into_any(),
            Acc::Float(float) => PyFloat::new(py, *float).into_any(),
            Acc::Object(object) => object.clone_ref(py).into_bound(py),
            Acc::List(list) => list_of(py, list)?,
            Acc::Sides(sides) => sides_of(py, &sides[0], &sides[1])?,
            Acc::Mean(sum, count) => sum.object(py)?.div(count)?,
        })
    }

    /// `self + other`, as Python adds.
    fn plus(&self, py: Python<'_>, other: &Acc) -> PyResult<Acc> {
        match (self, other) {
            (Acc::Empty, other) => other.copy(py),
            (Acc::Float(a), Acc::Float(b)) => Ok(Acc::Float(a + b)),
            (Acc::Int(a), Acc::Int(b)) if a.checked_add(*b).is_some() => Ok(Acc::Int(a + b)),
            (a, b) => Ok(Acc::of(&a.object(py)?.add(b.object(py)?)?)),
        }
    }

    /// True when `self` comes before `other`, as Python compares.
    fn before(&self, py: Python<'_>, other: &Acc) -> PyResult<bool> {
        match (self, other) {
            (Acc::Float(a), Acc::Float(b)) => Ok(a < b),
            (Acc::Int(a), Acc::Int(b)) => Ok(a < b),
            (a, b) => a.object(py)?.lt(b.object(py)?),
        }
    }

    fn copy(&self, py: Python<'_>) -> PyResult<Acc> {
        Ok(match self {
            Acc::Empty => Acc::Empty,
            Acc::Int(int) => Acc::Int(*int),
            Acc::Float(float) => Acc::Float(*float),
            other => Acc::Object(other.object(py)?.unbind()),
        })
    }
}

/// How the accumulators of an aggregate are saved: of `mean` the list `[number of values, sum]`, of others the object;
/// where times are datetimes, that in a list after `true`.
struct Accumulators {
    form: Form,
    made: Option<Rc<StateMaker>>,
    datetimes: Rc<Cell<bool>>,
}

/// The form of the accumulators of an aggregate.
#[derive(Clone, Copy)]
enum Form {
    /// A number or an object.
    Value,
    /// An object, which may be a number.
    Object,
    List,
    Sides,
    Mean,
}

impl StateCodec<Acc> for Accumulators {
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("datetimes");
    }
    fn save(&self, acc: &Acc, out: &mut Vec<u8>) -> Result<(), Cause> {
        begin(&self.datetimes, out);
        acc.set_saved();
        locked(|py| acc.save(py, out)).map_err(cause)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Acc, Cause> {
        take_datetimes(&self.datetimes, from)?;
        locked(|py| Acc::load(py, self.form, from, self.made.as_deref()))
    }
    fn save_added(&self, acc: &Acc, out: &mut Vec<u8>) -> Result<bool, Cause> {
        let Some(added) = locked(|py| acc.added(py)).map_err(cause)? else {
            return Ok(false);
        };
        acc.set_saved();
        let saved = locked(|py| save_object(added.bind(py), out));
        saved.map(|()| true).map_err(cause)
    }
    fn load_added(&self, acc: &mut Acc, from: &mut &[u8]) -> Result<(), Cause> {
        locked(|py| match acc {
            Acc::List(list) => {
                list.extend(load_list(py, from)?);
                Ok(())
            }
            Acc::Sides(sides) => add_sides(py, sides, from),
            _ => Err("it is not a list, to which values were added".into()),
        })?;
        acc.set_saved();
        Ok(())
    }
}

/// How the values of windows in order are saved: as objects; where times are datetimes, in a list after `true`.
struct Values {
    made: Option<Rc<StateMaker>>,
    datetimes: Rc<Cell<bool>>,
}

impl StateCodec<Py<PyAny>> for Values {
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("datetimes");
    }
    fn save(&self, value: &Py<PyAny>, out: &mut Vec<u8>) -> Result<(), Cause> {
        begin(&self.datetimes, out);
        locked(|py| save_object(value.bind(py), out)).map_err(cause)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Py<PyAny>, Cause> {
        take_datetimes(&self.datetimes, from)?;
        load_by(self.made.as_deref(), from)
    }
}

/// Begins what is saved: where times are datetimes, as a list whose first member says so.
fn begin(datetimes: &Cell<bool>, out: &mut Vec<u8>) {
    if datetimes.get() {
        pack::list(2, out);
        pack::flag(true, out);
    }
}

/// Reads what [`begin`] has written. No other saved list begins with a boolean.
fn take_datetimes(datetimes: &Cell<bool>, from: &mut &[u8]) -> Result<(), Cause> {
    let mut rest = *from;
    if pack::take_list(&mut rest).is_ok() && matches!(pack::take_flag(&mut rest), Ok(true)) {
        pack::take_members(2, from)?;
        *from = rest;
        datetimes.set(true);
    }
    Ok(())
}

/// Loads a saved object in the form that this run uses.
fn load_by(made: Option<&StateMaker>, from: &mut &[u8]) -> Result<Py<PyAny>, Cause> {
    match made {
        Some(made) => made.load(from),
        None => (objects().load)(from),
    }
}

/// The values as a list of Python.
fn list_of<'py>(py: Python<'py>, values: &[Py<PyAny>]) -> PyResult<Bound<'py, PyAny>> {
    let values = values.iter().map(|value| value.clone_ref(py));
    Ok(PyList::new(py, values)?.into_any())
}

/// The values of two streams as a tuple of two lists of Python.
fn sides_of<'py>(
    py: Python<'py>,
    left: &[Py<PyAny>],
    right: &[Py<PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyTuple::new(py, [list_of(py, left)?, list_of(py, right)?])?.into_any())
}

/// Loads the values of a saved tuple of two lists.
fn add_sides(
    py: Python<'_>,
    sides: &mut [Growing<Py<PyAny>>; 2],
    from: &mut &[u8],
) -> Result<(), Cause> {
    let loaded = (objects().load)(from)?.extract(py);
    let (left, right): (Vec<Py<PyAny>>, Vec<Py<PyAny>>) = loaded.map_err(cause)?;
    sides[0].extend(left);
    sides[1].extend(right);
    Ok(())
}

/// Loads the values of a saved list.
fn load_list(py: Python<'_>, from: &mut &[u8]) -> Result<Vec<Py<PyAny>>, Cause> {
    (objects().load)(from)?.extract(py).map_err(cause)
}

impl Acc {
    /// The values of an accumulator that grows are saved, or were loaded.
    fn set_saved(&self) {
        match self {
            Acc::List(list) => list.set_saved(),
            Acc::Sides(sides) => sides.iter().for_each(Growing::set_saved),
            _ => {}
        }
    }

    /// What was added since, as it is saved; `None` if the accumulator is saved whole.
    fn added(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let added = match self {
            Acc::List(list) => list.added().map(|added| list_of(py, added)),
            Acc::Sides(sides) => {
                let both = sides[0].added().zip(sides[1].added());
                both.map(|(left, right)| sides_of(py, left, right))
            }
            _ => None,
        };
        added.map(|added| added.map(Bound::unbind)).transpose()
    }

    fn save(&self, py: Python<'_>, out: &mut Vec<u8>) -> PyResult<()> {
        if let Acc::Mean(sum, count) = self {
            pack::list(2, out);
            pack::integer(*count as i64, out);
            return sum.save(py, out);
        }
        save_object(&self.object(py)?, out)
    }

    fn load(
        py: Python<'_>,
        form: Form,
        from: &mut &[u8],
        made: Option<&StateMaker>,
    ) -> Result<Self, Cause> {
        Ok(match form {
            Form::Value => Acc::of((objects().load)(from)?.bind(py)),
            Form::Object => Acc::Object(load_by(made, from)?),
            Form::List => {
                let mut list = Growing::default();
                list.extend(load_list(py, from)?);
                list.set_saved();
                Acc::List(Box::new(list))
            }
            Form::Sides => {
                let mut sides = Box::<[Growing<_>; 2]>::default();
                add_sides(py, &mut sides, from)?;
                sides.iter().for_each(Growing::set_saved);
                Acc::Sides(sides)
            }
            Form::Mean => {
                pack::take_members(2, from)?;
                let count = pack::take_count(from)?;
                let sum = Acc::load(py, Form::Value, from, made)?;
                Acc::Mean(Box::new(sum), count)
            }
        })
    }
}

/// The beginning and the end of a window, as Python shows them.
type Edges<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Start and end of a window, and whether they are shown as datetimes.
type EdgeKey = (i64, i64, bool);

/// An aggregate on one worker.
pub(crate) struct PyAggregate {
    make: AggregateKind,
    /// Reads what is aggregated of a value, if that is not the value itself.
    read: Option<Py<PyAny>>,
    /// The most recent edges: most keys have the same windows.
    edges: Option<(EdgeKey, Py<PyAny>, Py<PyAny>)>,
    /// The functions for saved accumulators, or saved values in order.
    made: Option<Rc<StateMaker>>,
    /// Whether times were datetimes.
    datetimes: Rc<Cell<bool>>,
    /// Whether a value may be added to several windows.
    overlaps: bool,
    /// The value on which `add` has failed last.
    failed: Option<Py<PyAny>>,
    refused: VecDeque<(Py<PyAny>, PyErr)>,
}

impl PyAggregate {
    /// The aggregate that Python describes by a name and functions.
    pub(crate) fn new(
        kind: &str,
        functions: &[Option<Py<PyAny>>],
        overlaps: bool,
        datetimes: &Rc<Cell<bool>>,
    ) -> PyResult<Self> {
        let make = AggregateKind::read(kind, functions)?;
        let read = if make.reads() {
            functions.get(READING).and_then(Option::as_ref)
        } else {
            None
        };
        // It makes accumulators, and has a `revival` for those that were saved.
        let made = functions.get(REVIVING).and_then(Option::as_ref);
        Ok(PyAggregate {
            make,
            read: read.map(|read| locked(|py| read.clone_ref(py))),
            edges: None,
            overlaps,
            failed: None,
            refused: VecDeque::new(),
            made: made.map(|made| locked(|py| Rc::new(StateMaker::by(py, made)))),
            datetimes: Rc::clone(datetimes),
        })
    }

    /// What is aggregated of a value.
    fn part(&self, py: Python<'_>, value: &Py<PyAny>) -> PyResult<Acc> {
        match &self.read {
            Some(read) => Ok(Acc::of(&read.bind(py).call1((value,))?)),
            None => Ok(Acc::of(value.bind(py))),
        }
    }

    fn edges<'py>(&mut self, py: Python<'py>, bounds: Bounds) -> PyResult<Edges<'py>> {
        let wanted = (bounds.start, bounds.end, self.datetimes.get());
        if let Some((known, first, last)) = &self.edges
            && *known == wanted
        {
            return Ok((first.bind(py).clone(), last.bind(py).clone()));
        }
        let first = moment_or_none(py, bounds.start, wanted.2)?;
        let last = moment_or_none(py, bounds.end, wanted.2)?;
        self.edges = Some((wanted, first.clone().unbind(), last.clone().unbind()));
        Ok((first, last))
    }

    /// Fails or warns where text would be the first value of numbers.
    fn examine_first(&self, py: Python<'_>, value: &Acc) -> PyResult<()> {
        if let (
            AggregateKind::Sum(first)
            | AggregateKind::Mean(first)
            | AggregateKind::Min(first)
            | AggregateKind::Max(first),
            Acc::Object(value),
        ) = (&self.make, value)
        {
            first.call1(py, (value,))?;
        }
        Ok(())
    }

    /// An accumulator that belongs to one window. The function has returned the value itself, which another window
    /// may have too.
    fn owned<'py>(
        &self,
        made: Bound<'py, PyAny>,
        value: &Py<PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.overlaps && made.is(value) {
            separate(&made)
        } else {
            Ok(made)
        }
    }

    /// Adds a value to what a function has made of those before it.
    fn reduce(
        &self,
        py: Python<'_>,
        f: &Py<PyAny>,
        acc: &mut Acc,
        value: &Py<PyAny>,
    ) -> PyResult<()> {
        let made = match &*acc {
            // The function may change its first argument, and the first value may have other readers.
            Acc::Empty if !self.overlaps => copied(value.bind(py))?,
            Acc::Empty => separate(value.bind(py))?,
            before => self.owned(f.bind(py).call1((before.object(py)?, value))?, value)?,
        };
        *acc = Acc::Object(made.unbind());
        Ok(())
    }

    fn add_value(&self, py: Python<'_>, acc: &mut Acc, value: &Py<PyAny>) -> PyResult<()> {
        match (&self.make, acc) {
            (AggregateKind::Collect, Acc::List(list)) => list.push(value.clone_ref(py)),
            (AggregateKind::Sides, Acc::Sides(sides)) => {
                let (side, value): (usize, Py<PyAny>) = value.extract(py)?;
                sides[side.min(1)].push(value);
            }
            (AggregateKind::Functions(functions), Acc::Object(acc)) => {
                let made = functions.add.bind(py).call1((&*acc, value))?;
                *acc = self.owned(made, value)?.unbind();
            }
            (AggregateKind::Mean(_), Acc::Mean(sum, count)) => {
                let part = self.part(py, value)?;
                self.combine(py, sum, part)?;
                *count += 1;
            }
            (AggregateKind::Reduce(f), acc) => self.reduce(py, f, acc, value)?,
            (_, acc) => {
                let part = self.part(py, value)?;
                self.combine(py, acc, part)?;
            }
        }
        Ok(())
    }

    /// Adds a value, or the accumulator of later values: for these aggregates it is the same.
    fn combine(&self, py: Python<'_>, acc: &mut Acc, value: Acc) -> PyResult<()> {
        if matches!(acc, Acc::Empty) {
            self.examine_first(py, &value)?;
            *acc = value;
            return Ok(());
        }
        match &self.make {
            AggregateKind::Sum(_) | AggregateKind::Mean(_) => *acc = acc.plus(py, &value)?,
            AggregateKind::Min(_) if value.before(py, acc)? => *acc = value,
            AggregateKind::Max(_) if acc.before(py, &value)? => *acc = value,
            _ => {}
        }
        Ok(())
    }
}

impl Aggregate for PyAggregate {
    type In = Py<PyAny>;
    type Acc = Acc;
    type Out = Py<PyAny>;
    type Error = PyErr;

    fn codec(&self, _: &Codecs) -> Result<BoxedCodec<Acc>, Cause> {
        Ok(Box::new(Accumulators {
            form: self.make.form(),
            made: self.made.clone(),
            datetimes: Rc::clone(&self.datetimes),
        }))
    }

    fn item_codec(&self, _: &Codecs) -> Result<BoxedCodec<Py<PyAny>>, Cause> {
        Ok(Box::new(Values {
            made: self.made.clone(),
            datetimes: Rc::clone(&self.datetimes),
        }))
    }

    fn initial(&mut self) -> PyResult<Acc> {
        Ok(match &self.make {
            AggregateKind::Count => Acc::Int(0),
            AggregateKind::Collect => Acc::List(Box::default()),
            AggregateKind::Sides => Acc::Sides(Box::default()),
            AggregateKind::Mean(_) => Acc::Mean(Box::new(Acc::Empty), 0),
            AggregateKind::Functions(functions) => {
                let made = locked(|py| functions.initial.bind(py).call0().map(Bound::unbind));
                Acc::Object(made?)
            }
            _ => Acc::Empty,
        })
    }

    fn add(&mut self, acc: &mut Acc, value: Py<PyAny>) -> PyResult<()> {
        if let (AggregateKind::Count, Acc::Int(count)) = (&self.make, &mut *acc) {
            *count += 1;
            return Ok(());
        }
        let added = locked(|py| self.add_value(py, acc, &value));
        if added.is_err() {
            self.failed = Some(value);
        }
        added
    }

    /// Refuses the value on which `add` has failed. For an early result it is skipped, and refused at the end.
    fn refuse(&mut self, error: PyErr, early: bool) -> PyResult<()> {
        if let Some(value) = self.failed.take()
            && !early
        {
            self.refused.push_back((value, error));
        }
        Ok(())
    }

    fn take_refused(&mut self) -> Option<(Py<PyAny>, PyErr)> {
        self.refused.pop_front()
    }

    fn grows(&self) -> bool {
        matches!(self.make, AggregateKind::Collect | AggregateKind::Sides)
    }

    fn merge(&mut self, acc: &mut Acc, later: &Acc) -> PyResult<()> {
        locked(|py| match (&self.make, acc, later) {
            (AggregateKind::Count, Acc::Int(count), Acc::Int(later)) => {
                *count += later;
                Ok(())
            }
            (AggregateKind::Collect, Acc::List(list), Acc::List(later)) => {
                list.extend(later.iter().map(|value| value.clone_ref(py)));
                Ok(())
            }
            (AggregateKind::Sides, Acc::Sides(sides), Acc::Sides(later)) => {
                for (side, later) in sides.iter_mut().zip(&**later) {
                    side.extend(later.iter().map(|value| value.clone_ref(py)));
                }
                Ok(())
            }
            (AggregateKind::Functions(functions), Acc::Object(acc), Acc::Object(later)) => {
                // A part of one window is a part of others too: each has a copy, which the function may keep.
                let later = if functions.merge_reads {
                    later.bind(py).clone()
                } else {
                    separate(later.bind(py))?
                };
                *acc = functions.merge.bind(py).call1((&*acc, later))?.unbind();
                Ok(())
            }
            (AggregateKind::Reduce(f), acc, Acc::Object(later)) => {
                let later = separate(later.bind(py))?;
                *acc = Acc::Object(match &*acc {
                    Acc::Empty => later.unbind(),
                    before => f.bind(py).call1((before.object(py)?, later))?.unbind(),
                });
                Ok(())
            }
            (AggregateKind::Mean(_), Acc::Mean(sum, count), Acc::Mean(other, more)) => {
                *count += more;
                self.combine(py, sum, other.copy(py)?)
            }
            (_, acc, later) => self.combine(py, acc, later.copy(py)?),
        })
    }

    fn result(&mut self, acc: &mut Acc, bounds: Bounds) -> PyResult<Py<PyAny>> {
        locked(|py| {
            let (start, end) = self.edges(py, bounds)?;
            let early = PyBool::new(py, bounds.early);
            let value = match &self.make {
                AggregateKind::Functions(Functions {
                    result: Some(result),
                    ..
                }) => {
                    static BOUNDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                    let class = BOUNDS.import(py, "millstream.windows", "Bounds")?;
                    let bounds = class.call1((&start, &end, early))?;
                    result.bind(py).call1((acc.object(py)?, bounds))?
                }
                _ => acc.object(py)?,
            };
            // The window is still open: later values must not change this result.
            let value = match acc {
                Acc::Object(object) if bounds.early && value.is(&*object) => copied(&value)?,
                _ => value,
            };
            static WINDOWED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let class = WINDOWED.import(py, "millstream.windows", "Windowed")?;
            // A named tuple is made by a Python function that does no more than this.
            let new = NEW.get_or_try_init(py, || {
                let new = py.get_type::<PyTuple>().getattr("__new__")?;
                PyResult::Ok(new.unbind())
            })?;
            Ok(new
                .bind(py)
                .call1((class, (start, end, value, early)))?
                .unbind())
        })
    }
}
