//! The context of a partition of a source written in Python: its worker, and its wake-ups.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_flow::metrics::{Lag, LagGauge};
use millstream_flow::poller::{Io, Readiness, Wake};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A file descriptor to watch, or to stop watching.
enum Request {
    Register(RawFd),
    Unregister(RawFd),
}

type Requests = Arc<Mutex<Vec<Request>>>;

/// A source's requests to be called: ``worker`` and ``workers`` say which worker of how many reads the
/// partition.
///
/// Example:
///     >>> import threading
///     >>> import millstream as ms
///     >>> class Once(ms.Source[str]):
///     ...     def open(self, partition, position, io):
///     ...         self.batches = []
///     ...         def arrive():
///     ...             self.batches += [["late"], None]
///     ...             io.wake()
///     ...         threading.Timer(0.01, arrive).start()
///     ...         return self
///     ...     def next_batch(self):
///     ...         return self.batches.pop(0) if self.batches else []
///     ...     def next_awake(self):
///     ...         return None
///     ...     def position(self):
///     ...         return 0
///     >>> flow, out = ms.Flow("woken"), ms.testing.collect()
///     >>> flow.source("in", Once()).sink("out", out)
///     >>> _ = ms.run(flow)
///     >>> out
///     ['late']
#[pyclass(frozen, name = "SourceIo", module = "millstream._millstream")]
pub(crate) struct SourceIo {
    place: (usize, usize),
    wake: Wake,
    requests: Requests,
    lag: LagGauge,
}

#[pymethods]
impl SourceIo {
    /// The number of the worker that reads the partition, from 0.
    #[getter]
    fn worker(&self) -> usize {
        self.place.0
    }

    /// How many workers the run has.
    #[getter]
    pub(crate) fn workers(&self) -> usize {
        self.place.1
    }

    /// Requests a call of ``next_batch`` soon. Any thread may call this.
    ///
    /// Example:
    ///     >>> import threading
    ///     >>> import millstream as ms
    ///     >>> class Once(ms.Source[str]):
    ///     ...     def open(self, partition, position, io):
    ///     ...         self.batches = []
    ///     ...         def arrive():
    ///     ...             self.batches += [["late"], None]
    ///     ...             io.wake()
    ///     ...         threading.Timer(0.01, arrive).start()
    ///     ...         return self
    ///     ...     def next_batch(self):
    ///     ...         return self.batches.pop(0) if self.batches else []
    ///     ...     def next_awake(self):
    ///     ...         return None
    ///     ...     def position(self):
    ///     ...         return 0
    ///     >>> flow, out = ms.Flow("woken"), ms.testing.collect()
    ///     >>> flow.source("in", Once()).sink("out", out)
    ///     >>> _ = ms.run(flow)
    ///     >>> out
    ///     ['late']
    fn wake(&self) {
        self.wake.wake();
    }

    /// Reports how much of its input the partition has not read yet, as far as it knows: see ``Report.lags``. Any
    /// thread may call this.
    ///
    /// Args:
    ///     records: the number of records.
    ///     bytes: their bytes.
    ///     seconds: the time since the last record that was read was made; 0 if there are no more.
    ///
    /// Raises:
    ///     ValueError: ``seconds`` is negative or not a number.
    ///     OverflowError: a number is negative or too large.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> class Three(ms.Source[int]):
    ///     ...     def open(self, partition, position, io):
    ///     ...         self.io, self.left = io, [1, 2, 3]
    ///     ...         return self
    ///     ...     def next_batch(self):
    ///     ...         batch = [self.left.pop(0)] if self.left else None
    ///     ...         self.io.report_lag(records=len(self.left))
    ///     ...         return batch
    ///     ...     def next_awake(self):
    ///     ...         return None
    ///     ...     def position(self):
    ///     ...         return 3 - len(self.left)
    ///     >>> flow = ms.Flow("three")
    ///     >>> flow.source("in", Three()).sink("out", ms.testing.discard())
    ///     >>> [lag] = ms.run(flow).lags
    ///     >>> lag["source"], lag["partition"], lag["records"]
    ///     ('in', '0', 0)
    #[pyo3(signature = (records=None, bytes=None, seconds=None))]
    fn report_lag(
        &self,
        records: Option<u64>,
        bytes: Option<u64>,
        seconds: Option<f64>,
    ) -> PyResult<()> {
        let age = seconds.map(Duration::try_from_secs_f64).transpose();
        let age = age.map_err(|error| PyValueError::new_err(format!("seconds: {error}")))?;
        self.lag.set(Lag {
            records,
            bytes,
            age,
            ..Lag::default()
        });
        Ok(())
    }

    /// Requests a call of ``next_batch`` whenever a file descriptor has input.
    ///
    /// Args:
    ///     fd: a socket, a pipe or another object with ``fileno()``, or a number.
    ///
    /// Raises:
    ///     ValueError: ``fd`` is no file descriptor.
    ///
    /// Example:
    ///     >>> import socket
    ///     >>> import millstream as ms
    ///     >>> class Datagrams(ms.Source[bytes]):
    ///     ...     def open(self, partition, position, io):
    ///     ...         self.io, self.done = io, False
    ///     ...         self.theirs, self.ours = socket.socketpair()
    ///     ...         io.register(self.ours)
    ///     ...         self.theirs.send(b"hello")
    ///     ...         return self
    ///     ...     def next_batch(self):
    ///     ...         if self.done:
    ///     ...             self.io.unregister(self.ours)
    ///     ...             return None
    ///     ...         self.done = True
    ///     ...         return [self.ours.recv(100)]
    ///     ...     def next_awake(self):
    ///     ...         return None
    ///     ...     def position(self):
    ///     ...         return 0
    ///     >>> flow, out = ms.Flow("datagrams"), ms.testing.collect()
    ///     >>> flow.source("in", Datagrams()).sink("out", out)
    ///     >>> _ = ms.run(flow)
    ///     >>> out
    ///     [b'hello']
    fn register(&self, fd: &Bound<'_, PyAny>) -> PyResult<()> {
        self.request(Request::Register(number(fd)?));
        Ok(())
    }

    /// Ends the requests of ``register``.
    ///
    /// Args:
    ///     fd: the object or number that was registered.
    ///
    /// Raises:
    ///     ValueError: ``fd`` is no file descriptor.
    ///
    /// Example:
    ///     >>> import socket
    ///     >>> import millstream as ms
    ///     >>> class Datagrams(ms.Source[bytes]):
    ///     ...     def open(self, partition, position, io):
    ///     ...         self.io, self.done = io, False
    ///     ...         self.theirs, self.ours = socket.socketpair()
    ///     ...         io.register(self.ours)
    ///     ...         self.theirs.send(b"hello")
    ///     ...         return self
    ///     ...     def next_batch(self):
    ///     ...         if self.done:
    ///     ...             self.io.unregister(self.ours)
    ///     ...             return None
    ///     ...         self.done = True
    ///     ...         return [self.ours.recv(100)]
    ///     ...     def next_awake(self):
    ///     ...         return None
    ///     ...     def position(self):
    ///     ...         return 0
    ///     >>> flow, out = ms.Flow("datagrams"), ms.testing.collect()
    ///     >>> flow.source("in", Datagrams()).sink("out", out)
    ///     >>> _ = ms.run(flow)
    ///     >>> out
    ///     [b'hello']
    fn unregister(&self, fd: &Bound<'_, PyAny>) -> PyResult<()> {
        self.request(Request::Unregister(number(fd)?));
        Ok(())
    }
}

impl SourceIo {
    fn request(&self, request: Request) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request);
        drop(requests);
        self.wake.wake();
    }
}

fn number(fd: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let number: RawFd = match fd.getattr_opt("fileno")? {
        Some(fileno) => fileno.call0()?.extract()?,
        None => fd.extract()?,
    };
    match number {
        0.. => Ok(number),
        _ => Err(PyValueError::new_err(format!(
            "{number} is no file descriptor"
        ))),
    }
}

/// The side of the worker: the file descriptors that it watches for one partition.
pub(crate) struct Wakeups {
    io: Io,
    requests: Requests,
    fds: Vec<(RawFd, Readiness)>,
}

impl Wakeups {
    /// The two sides for a partition that is about to be opened.
    pub(crate) fn new(io: &Io) -> (SourceIo, Self) {
        let requests = Requests::default();
        let of_source = SourceIo {
            place: io.place(),
            wake: io.wake(),
            lag: io.lag_gauge(),
            requests: Arc::clone(&requests),
        };
        let io = io.clone();
        let fds = Vec::new();
        (of_source, Wakeups { io, requests, fds })
    }

    /// Applies the requests of the source, and arms its file descriptors for the next wake-up.
    pub(crate) fn arm(&mut self) -> Result<(), Cause> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let requests: Vec<Request> = { requests }.drain(..).collect();
        let named = |fd: RawFd| {
            move |error: std::io::Error| format!("file descriptor {fd} cannot be watched: {error}")
        };
        for (fd, readiness) in &self.fds {
            let gone = requests
                .iter()
                .any(|request| matches!(request, Request::Unregister(of) if of == fd));
            if !gone {
                self.io.watch_fd_again(*fd, readiness).map_err(named(*fd))?;
            }
        }
        for request in requests {
            match request {
                Request::Register(fd) if self.fds.iter().all(|(known, _)| *known != fd) => {
                    let readiness = self.io.watch_fd(fd).map_err(named(fd))?;
                    self.fds.push((fd, readiness));
                }
                Request::Register(_) => {}
                Request::Unregister(fd) => {
                    for (fd, readiness) in self.fds.extract_if(.., |(known, _)| *known == fd) {
                        self.io.forget_fd(fd, &readiness);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        for (fd, readiness) in self.fds.drain(..) {
            self.io.forget_fd(fd, &readiness);
        }
    }
}
