//! TCP as a source (listening or connecting) and as a sink (connecting).
//!
//! A source reads each socket into the buffer in which the frames are then divided and decoded. A sink waits
//! while its receiver is slow; its worker then reads no input, the kernel's buffers fill, and the senders
//! block: this is the back-pressure that bounds memory.
//!
//! If a client violates the framing or disconnects within a frame, its connection is closed, counted as a fault
//! of the source and reported with the offset; other clients are not affected.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock::now_ns;
use crate::control::Control;
use crate::error::{Cause, context};
use crate::framing::{Cutter, Frames, Framing, encode};
use crate::poller::{Io, Readiness};
use crate::sink::{Sink, Token, Writer};
use crate::source::{Events, Next, Partition, Position, Source};

/// The number of bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// The default for the longest frame.
const MAX_FRAME_BYTES: usize = 1 << 20;
/// The time limit of one attempt to connect.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// The default time for which a sink waits at the start of a run for a receiver that is not up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which a listener tries again after it could not accept a connection.
const ACCEPT_PAUSE_NS: u64 = 1_000_000_000;
/// The default for the number of simultaneous connections.
const MAX_CONNECTIONS: usize = 1024;

#[derive(Clone, Debug)]
enum Role {
    /// Accepts connections; ends after this many of them have closed.
    Listen {
        until: Option<usize>,
        max_connections: usize,
    },
    Connect,
}

/// A source of frames from TCP. See [`listen`] and [`connect`].
#[derive(Clone)]
pub struct TcpSource {
    address: String,
    framing: Framing,
    max_frame_bytes: usize,
    role: Role,
    bound: Option<Arc<dyn Fn(SocketAddr) + Send + Sync>>,
}

/// Listens on `address` (`host:port`) and reads frames from all clients. The default framing is a `u32` length
/// before each frame. It is endless unless [`TcpSource::connections`] sets an end.
#[must_use]
pub fn listen(address: &str) -> TcpSource {
    let role = Role::Listen {
        until: None,
        max_connections: MAX_CONNECTIONS,
    };
    TcpSource::new(address, role)
}

/// Connects to `address` and reads frames until the peer closes.
#[must_use]
pub fn connect(address: &str) -> TcpSource {
    TcpSource::new(address, Role::Connect)
}

impl TcpSource {
    fn new(address: &str, role: Role) -> Self {
        let framing = Framing::U32;
        let max_frame_bytes = MAX_FRAME_BYTES;
        TcpSource {
            address: address.to_owned(),
            framing,
            max_frame_bytes,
            role,
            bound: None,
        }
    }
    /// Sets the framing of the stream.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }
    /// Sets the longest allowed frame; a client that sends a longer one is disconnected. The default is 1 MiB.
    #[must_use]
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes;
        self
    }
    /// Ends a listener after this many connections have closed.
    #[must_use]
    pub fn connections(mut self, count: usize) -> Self {
        if let Role::Listen { until, .. } = &mut self.role {
            *until = Some(count);
        }
        self
    }
    /// Sets the number of simultaneous connections of a listener; further ones wait in the system's queue. The
    /// default is 1,024.
    #[must_use]
    pub fn max_connections(mut self, count: usize) -> Self {
        if let Role::Listen {
            max_connections, ..
        } = &mut self.role
        {
            *max_connections = count.max(1);
        }
        self
    }
    /// Calls `call` with the address that a listener is bound to: with port 0 the system chooses the port.
    #[must_use]
    pub fn on_bound(mut self, call: impl Fn(SocketAddr) + Send + Sync + 'static) -> Self {
        self.bound = Some(Arc::new(call));
        self
    }

    fn connection(&self, stream: TcpStream, peer: SocketAddr, io: &Io) -> Result<Conn, Cause> {
        let mut stream = stream;
        let readiness = io.watch(&mut stream)?;
        Ok(Conn {
            stream,
            readiness,
            peer,
            cutter: Cutter::new(self.framing.clone(), self.max_frame_bytes),
            buffer: Vec::new(),
            filled: 0,
            broken: None,
        })
    }
}

/// Calls `open` with each address that `address` resolves to, until one succeeds; returns the last error if
/// none does.
fn first_of<T>(
    address: &str,
    open: impl Fn(SocketAddr) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let mut outcome = Err(std::io::Error::other("no such address"));
    for at in address.to_socket_addrs()? {
        outcome = open(at);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn dial(address: &str) -> std::io::Result<StdStream> {
    first_of(address, |at| StdStream::connect_timeout(&at, CONNECT_WAIT))
}

impl Source<Frames> for TcpSource {
    fn describe(&self) -> String {
        let verb = if matches!(self.role, Role::Connect) {
            "connect"
        } else {
            "listen"
        };
        format!("tcp {verb} {}, {}", self.address, self.framing)
    }
    fn open(
        &self,
        _: usize,
        _: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let named = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", self.address))
        };
        let mut conns = Vec::new();
        let mut listener = None;
        if let Role::Connect = self.role {
            let stream = dial(&self.address).map_err(named)?;
            stream.set_nonblocking(true)?;
            let peer = stream.peer_addr()?;
            conns.push(self.connection(TcpStream::from_std(stream), peer, io)?);
        } else {
            let mut socket = first_of(&self.address, TcpListener::bind).map_err(named)?;
            let readiness = io.watch(&mut socket)?;
            if let Some(call) = &self.bound {
                call(socket.local_addr()?);
            }
            listener = Some((socket, readiness));
        }
        let source = self.clone();
        Ok(Box::new(TcpPartition {
            source,
            io: io.clone(),
            listener,
            conns,
            held: Frames::default(),
            turn: 0,
            gone: 0,
            first_fault: None,
            frames: 0,
            accept_from: 0,
        }))
    }
}

/// One connection that is read.
struct Conn {
    stream: TcpStream,
    readiness: Readiness,
    peer: SocketAddr,
    cutter: Cutter,
    buffer: Vec<u8>,
    filled: usize,
    /// The error after which nothing more is read.
    broken: Option<String>,
}

/// The result of one read of a connection.
enum ReadOnce {
    Frames,
    Nothing,
    Closed,
    Fault(String),
}

impl Conn {
    /// Reads the socket once; complete frames go to `batch`, which takes the buffer.
    fn read(&mut self, batch: &mut Frames) -> ReadOnce {
        if let Some(what) = &self.broken {
            return ReadOnce::Fault(what.clone());
        }
        let want = self.filled + READ_BYTES;
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => self.close(batch),
            Ok(read) => {
                self.filled += read;
                self.cut(batch)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readiness.lower();
                ReadOnce::Nothing
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => ReadOnce::Nothing,
            Err(error) => ReadOnce::Fault(self.about(&error)),
        }
    }

    fn cut(&mut self, batch: &mut Frames) -> ReadOnce {
        let offset = self.cutter.offset();
        if let Err(error) = self
            .cutter
            .cut(&self.buffer[..self.filled], 0, &mut batch.spans)
        {
            self.broken = Some(self.about(&error));
        }
        match (batch.spans.is_empty(), &self.broken) {
            (false, _) => {
                // The frames before a broken one are valid.
                let used = (self.cutter.offset() - offset) as usize;
                self.move_frames(batch, used, offset);
                ReadOnce::Frames
            }
            (true, Some(what)) => ReadOnce::Fault(what.clone()),
            (true, None) => ReadOnce::Nothing,
        }
    }

    /// Moves the buffer to `batch` and keeps the bytes after the last complete frame.
    fn move_frames(&mut self, batch: &mut Frames, used: usize, offset: u64) {
        std::mem::swap(&mut batch.data, &mut self.buffer);
        batch.offset = offset;
        let tail = &batch.data[used..self.filled];
        if self.buffer.len() < tail.len() {
            self.buffer.resize(tail.len() + READ_BYTES, 0);
        }
        self.buffer[..tail.len()].copy_from_slice(tail);
        self.filled = tail.len();
    }

    /// Ends the stream after the peer has closed; a last line without a line end is a frame.
    fn close(&mut self, batch: &mut Frames) -> ReadOnce {
        let offset = self.cutter.offset();
        match self
            .cutter
            .finish(&self.buffer[..self.filled], 0, &mut batch.spans)
        {
            Ok(()) if batch.spans.is_empty() => ReadOnce::Closed,
            Ok(()) => {
                self.move_frames(batch, self.filled, offset);
                ReadOnce::Frames
            }
            Err(error) => ReadOnce::Fault(self.about(&error)),
        }
    }

    fn about(&self, error: &dyn std::error::Error) -> String {
        format!("connection from {} closed: {error}", self.peer)
    }
}

struct TcpPartition {
    source: TcpSource,
    io: Io,
    listener: Option<(TcpListener, Readiness)>,
    conns: Vec<Conn>,
    /// Frames that were read and are not passed on yet.
    held: Frames,
    turn: usize,
    gone: usize,
    /// The error of the first connection that violated the framing.
    first_fault: Option<String>,
    frames: u64,
    /// When to accept connections again after one could not be accepted; 0 for now.
    accept_from: u64,
}

impl TcpPartition {
    fn accept(&mut self, events: &mut Events<'_>) -> Result<(), Cause> {
        let Role::Listen {
            max_connections, ..
        } = self.source.role
        else {
            return Ok(());
        };
        let Some((listener, readiness)) = &self.listener else {
            return Ok(());
        };
        if self.accept_from > 0 {
            if now_ns() < self.accept_from {
                return Ok(());
            }
            self.accept_from = 0;
        }
        while readiness.is_up() && self.conns.len() < max_connections {
            match listener.accept() {
                Ok((stream, peer)) => {
                    // Only latency depends on it.
                    let _ = stream.set_nodelay(true);
                    self.conns
                        .push(self.source.connection(stream, peer, &self.io)?);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => readiness.lower(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // For instance too many open files: existing connections are not affected.
                    self.accept_from = now_ns() + ACCEPT_PAUSE_NS;
                    events.fault(&format!("cannot take a connection: {error}"));
                    break;
                }
            }
        }
        Ok(())
    }

    fn drop_conn(&mut self, index: usize) {
        let mut conn = self.conns.swap_remove(index);
        self.io.forget(&mut conn.stream, &conn.readiness);
        self.gone += 1;
    }

    fn over(&self) -> bool {
        match self.source.role {
            Role::Connect => self.conns.is_empty(),
            Role::Listen { until, .. } => {
                self.conns.is_empty() && until.is_some_and(|until| self.gone >= until)
            }
        }
    }
}

impl Partition<Frames> for TcpPartition {
    fn next_batch(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        if self.held.is_empty() {
            let next = self.read(batch, events)?;
            if batch.len() > events.limit() {
                std::mem::swap(batch, &mut self.held);
            } else {
                self.frames += batch.len() as u64;
                return Ok(next);
            }
        }
        *batch = self.held.take_first(events.limit());
        self.frames += batch.len() as u64;
        Ok(Next::Batch)
    }
    fn next_awake(&self) -> Option<u64> {
        (self.accept_from > 0).then_some(self.accept_from)
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.frames.into())
    }
}

impl TcpPartition {
    /// Reads once from a connection that has input.
    fn read(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        self.accept(events)?;
        // Each ready connection is read once before any is read again. `tried` counts consecutive connections
        // without input; flags are raised by edges, so that none may be skipped.
        let mut tried = 0;
        while tried < self.conns.len() {
            self.turn += 1;
            if self.turn >= self.conns.len() {
                self.turn = 0;
            }
            let conn = &mut self.conns[self.turn];
            if !conn.readiness.is_up() {
                tried += 1;
                continue;
            }
            match conn.read(batch) {
                ReadOnce::Frames => return Ok(Next::Batch),
                // Either the socket is drained, which lowered the flag, or a part of a frame was read:
                // continue.
                ReadOnce::Nothing => {}
                ended => {
                    if let ReadOnce::Fault(what) = ended {
                        events.fault(&what);
                        self.first_fault.get_or_insert(what);
                    }
                    // The last connection takes its index, and a waiting one may be accepted.
                    self.drop_conn(self.turn);
                    self.accept(events)?;
                    tried = 0;
                }
            }
        }
        match (&self.first_fault, self.over()) {
            (_, false) => Ok(Next::Idle),
            // If bytes arrived and none of them formed a message, they are lost: the source must not end
            // without an error.
            (Some(first), true) if self.frames == 0 => {
                let framing = &self.source.framing;
                Err(format!("no message was understood in framing {framing}: {first}").into())
            }
            (_, true) => Ok(Next::End),
        }
    }
}

impl Drop for TcpPartition {
    fn drop(&mut self) {
        if let Some((mut listener, readiness)) = self.listener.take() {
            self.io.forget(&mut listener, &readiness);
        }
        for mut conn in self.conns.drain(..) {
            self.io.forget(&mut conn.stream, &conn.readiness);
        }
    }
}

/// A sink of frames to TCP. See [`send_to`].
#[derive(Clone, Debug)]
pub struct TcpSink {
    address: String,
    framing: Framing,
    reconnect: Option<Duration>,
    connect_timeout: Duration,
}

/// Connects to `address` and writes frames. The default framing is a `u32` length before each frame. Each
/// worker has a connection of its own.
#[must_use]
pub fn send_to(address: &str) -> TcpSink {
    TcpSink {
        address: address.to_owned(),
        framing: Framing::U32,
        reconnect: None,
        connect_timeout: CONNECT_TIMEOUT,
    }
}

impl TcpSink {
    /// Sets the framing of the stream.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }
    /// Reconnects for up to `limit` when a connection is lost or refused, with pauses that double from 10 ms to
    /// 1 s. Bytes that were written to the lost connection and not read by the receiver are lost; a frame is
    /// never split over two connections.
    #[must_use]
    pub fn reconnect(mut self, limit: Duration) -> Self {
        self.reconnect = Some(limit);
        self
    }
    /// Sets how long a run waits at its start for a receiver that is not up. The default is 5 s; with zero it
    /// does not wait. An invalid address is an error at once.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }
    pub(crate) fn framing_used(&self) -> &Framing {
        &self.framing
    }
}

impl Sink<Frames> for TcpSink {
    fn describe(&self) -> String {
        format!("tcp connect {}, {}", self.address, self.framing)
    }
    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        let mut writer = TcpWriter {
            sink: self.clone(),
            control: Arc::clone(control),
            stream: None,
            buffer: Vec::new(),
        };
        writer.connect(self.connect_timeout)?;
        Ok(Box::new(writer))
    }
}

/// The number of bytes that are collected before they are written without a flush.
const WRITE_BYTES: usize = 64 << 10;
/// The length of one wait for a slow receiver, after which the writer checks whether it must stop.
const WRITE_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// The time for the receiver to refuse the last bytes after it has closed, perhaps only its sending half.
const REFUSE_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// How long a flow that is stopping continues to write to a receiver that accepts nothing.
const DRAIN_NS: u64 = 4_000_000_000;
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_LAST: Duration = Duration::from_secs(1);

struct TcpWriter {
    sink: TcpSink,
    control: Arc<Control>,
    stream: Option<StdStream>,
    /// Complete frames that are not written yet.
    buffer: Vec<u8>,
}

/// Whether a receiver may be present later.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::TimedOut
    )
}

impl TcpWriter {
    /// Connects; tries again for as long as the longer of `limit` and the limit for lost connections.
    fn connect(&mut self, limit: Duration) -> Result<(), Cause> {
        let address = &self.sink.address;
        let began = now_ns();
        let until = |limit: Duration| began.saturating_add(limit.as_nanos() as u64);
        let lost = until(self.sink.reconnect.unwrap_or_default());
        let absent = until(limit);
        let mut pause = BACKOFF_FIRST;
        loop {
            match dial(address) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_nonblocking(true)?;
                    self.stream = Some(stream);
                    return Ok(());
                }
                Err(error)
                    if self.control.stopping()
                        || now_ns() >= lost && (now_ns() >= absent || !is_absent(&error)) =>
                {
                    return Err(context(format_args!("cannot connect to {address}"), error));
                }
                Err(_) => {
                    #[expect(clippy::disallowed_methods, reason = "the flow is held up by design")]
                    self.control.outside(&mut || std::thread::sleep(pause));
                    pause = (pause * 2).min(BACKOFF_LAST);
                }
            }
        }
    }

    /// Writes the buffer, however slow the receiver is.
    fn write_out(&mut self) -> Result<(), Cause> {
        let mut written = 0;
        let mut progress = now_ns();
        while written < self.buffer.len() {
            let Some(stream) = &mut self.stream else {
                self.connect(Duration::ZERO)?;
                continue;
            };
            match stream.write(&self.buffer[written..]) {
                Ok(0) => return Err(self.lost("it accepts no more bytes")),
                Ok(count) => {
                    written += count;
                    progress = now_ns();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_writable();
                    let waited = now_ns() - progress;
                    if self.control.aborted() || (self.control.stopping() && waited > DRAIN_NS) {
                        return Err(self.lost("it accepts no bytes, and the flow is stopping"));
                    }
                }
                Err(error) if self.sink.reconnect.is_some() && !self.control.aborted() => {
                    tracing::warn!(
                        address = self.sink.address.as_str(),
                        "{}: {error}; connecting again",
                        self.sink.address
                    );
                    self.stream = None;
                    written = self.frame_start(written)?;
                }
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
        self.buffer.clear();
        Ok(())
    }

    /// Waits for a limited time until the receiver accepts more.
    fn wait_writable(&self) {
        let Some(stream) = &self.stream else { return };
        let mut polled = [PollFd::new(stream, PollFlags::OUT)];
        // An interrupted wait is a short one; the next write reports an error of the socket.
        self.control.outside(&mut || {
            let _ = poll(&mut polled, Some(&WRITE_WAIT));
        });
    }

    /// Returns an error if the receiver has closed and refuses the last bytes, which were written without an
    /// error.
    fn refused(&self, stream: &StdStream) -> Result<(), Cause> {
        // With reconnection the documentation says that such bytes are lost.
        let closed = matches!(stream.peek(&mut [0]), Ok(0));
        if closed && self.sink.reconnect.is_none() {
            let mut polled = [PollFd::new(stream, PollFlags::empty())];
            self.control.outside(&mut || {
                let _ = poll(&mut polled, Some(&REFUSE_WAIT));
            });
            if let Some(error) = stream.take_error()? {
                return Err(self.lost(&error.to_string()));
            }
        }
        Ok(())
    }

    /// The start of the first frame that was not written completely.
    fn frame_start(&self, written: usize) -> Result<usize, Cause> {
        let mut cutter = Cutter::new(self.sink.framing.clone(), usize::MAX >> 1);
        Ok(cutter.cut(&self.buffer[..written], 0, &mut Vec::new())?)
    }

    fn lost(&self, why: &str) -> Cause {
        format!("the receiver {} is gone: {why}", self.sink.address).into()
    }
}

impl Writer<Frames> for TcpWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        for frame in batch.iter() {
            encode(&self.sink.framing, frame, &mut self.buffer)?;
            if self.buffer.len() >= WRITE_BYTES {
                self.write_out()?;
            }
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        if self.buffer.is_empty() {
            Ok(())
        } else {
            self.write_out()
        }
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        self.flush()?;
        if let Some(stream) = self.stream.take() {
            self.refused(&stream)?;
            // The receiver may have closed already.
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        Ok(None)
    }
}
