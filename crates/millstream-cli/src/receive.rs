//! `millstream receive`: take messages from sockets, count them, check them, write them to a file.
//!
//! One thread waits for the listener and all connections at once. The invariant: what is written to the file is whole
//! frames in their framing, so that a file received from one connection equals, byte for byte, the file that was sent.

mod connection;
mod dedupe;
mod intake;

use std::fs::File;
use std::io::BufWriter;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;

use millstream_flow::clock;
use millstream_flow::framing::Framing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use self::connection::{Connection, Progress};
use self::dedupe::Dedupe;
use self::intake::{Intake, cannot_write};
use crate::failure::Failure;
use crate::stop::Stop;
use crate::{address, report};

/// The options of `millstream receive`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream receive --listen :7000 --framing u32 --out received.msg --json"
)]
pub(super) struct Args {
    /// Where to listen; port 0 takes a free one, which is printed to stderr.
    #[arg(long, value_name = "HOST:PORT", value_parser = address::parse)]
    listen: SocketAddr,
    /// u8, u16, u16le, u32, u32le, lines or fixed:N.
    #[arg(long, default_value = "u32")]
    framing: Framing,
    /// Write all messages to this file, in their framing.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Drop messages whose number has come before, as a numbered TCP sink sends them after a crash. An output file that
    /// exists is continued: it says which messages have come.
    #[arg(long)]
    dedupe: bool,
    /// End after this many messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End when this many connections have come and closed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Fail on a message of any other length (without prefix or line end).
    #[arg(long, value_name = "BYTES")]
    expect_length: Option<usize>,
    /// Fail on a message over this length.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    max_frame: usize,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// What was received.
#[derive(Debug, Default, Serialize)]
struct Report {
    messages: u64,
    /// With prefixes and line ends.
    bytes: u64,
    /// From the first byte to the last.
    seconds: f64,
    messages_per_second: f64,
    connections: u32,
    /// With --dedupe: messages that were dropped because they had come before.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<u64>,
    /// With --dedupe: numbers that are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<u64>,
    /// Of the first and the last byte, CLOCK_MONOTONIC.
    start_ns: u64,
    end_ns: u64,
}

/// Receive until all connections have closed.
pub(super) fn run(args: Args) -> Result<(), Failure> {
    let json = args.json;
    let mut receiver = Receiver::open(args)?;
    let outcome = receiver.run();
    // What came before the failure is worth a report too.
    receiver.close()?;
    let report = &receiver.report;
    let mut text = format!(
        "{} messages, {}B in {:.3} s from {} connection(s){}",
        report.messages,
        report::human(report.bytes as f64),
        report.seconds,
        report.connections,
        report::rate(report.messages_per_second),
    );
    if let (Some(repeated), Some(missing)) = (report.repeated, report.missing) {
        text += &format!("; {repeated} repeated, {missing} missing");
    }
    report::print(report, &text, json)?;
    outcome
}

struct Receiver {
    args: Args,
    listener: TcpListener,
    connections: Vec<Connection>,
    intake: Intake,
    stop: Stop,
    report: Report,
}

impl Receiver {
    fn open(args: Args) -> Result<Self, Failure> {
        let cannot_listen =
            |error| Failure::failed(format!("cannot listen on {}: {error}", args.listen));
        let listener = TcpListener::bind(args.listen).map_err(cannot_listen)?;
        listener.set_nonblocking(true).map_err(cannot_listen)?;
        if args.dedupe && args.framing == Framing::Lines {
            let what = "--dedupe needs another framing than lines: a number may contain a line end";
            return Err(Failure::usage(what));
        }
        let mut dedupe = args.dedupe.then(Dedupe::default);
        let out = match (&args.out, &mut dedupe) {
            (Some(path), Some(dedupe)) => {
                Some((path, dedupe.resume(path, &args.framing, args.max_frame)?))
            }
            (Some(path), None) => {
                let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
                Some((path, file))
            }
            (None, _) => None,
        };
        let out =
            out.map(|(path, file)| (path.clone(), BufWriter::with_capacity(256 * 1024, file)));
        let intake = Intake {
            out,
            left: args.count.unwrap_or(u64::MAX),
            expect_length: args.expect_length,
            dedupe,
        };
        let stop = Stop::on_signals()?;
        // After the signals are hooked: a process that reads this line may send one.
        eprintln!(
            "listening on {}",
            listener.local_addr().map_err(cannot_listen)?
        );
        Ok(Self {
            args,
            listener,
            connections: Vec::new(),
            intake,
            stop,
            report: Report::default(),
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        while !self.stop.requested() && self.intake.left > 0 {
            let accepting = self.report.connections < self.args.connections;
            if !accepting && self.connections.is_empty() {
                break;
            }
            let ready = self.wait(accepting)?;
            if accepting && ready.last() == Some(&true) {
                self.accept()?;
            }
            self.read(&ready)?;
        }
        Ok(())
    }

    /// Wait until a connection has bytes, or the listener (last) a connection; not for long, as a signal may come just
    /// before the wait.
    fn wait(&self, accepting: bool) -> Result<Vec<bool>, Failure> {
        let mut waiting: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .map(|c| PollFd::new(c.socket(), PollFlags::IN))
            .collect();
        if accepting {
            waiting.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        match poll(
            &mut waiting,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 200_000_000,
            }),
        ) {
            Ok(_) | Err(Errno::INTR) => {
                Ok(waiting.iter().map(|fd| !fd.revents().is_empty()).collect())
            }
            Err(error) => Err(Failure::failed(format!(
                "cannot wait for messages: {error}"
            ))),
        }
    }

    fn accept(&mut self) -> Result<(), Failure> {
        match self.listener.accept() {
            Ok((socket, peer)) => {
                let connection =
                    Connection::new(socket, peer, self.args.framing.clone(), self.args.max_frame);
                self.connections.push(connection.map_err(Failure::failed)?);
                self.report.connections += 1;
                Ok(())
            }
            // It was there and is gone: the next one will come.
            Err(error) if connection::is_transient(&error) => Ok(()),
            Err(error) => Err(Failure::failed(format!(
                "cannot accept a connection: {error}"
            ))),
        }
    }

    fn read(&mut self, ready: &[bool]) -> Result<(), Failure> {
        let several = self.args.connections > 1;
        let mut closed = Vec::new();
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if !ready.get(index).is_some_and(|ready| *ready) {
                continue;
            }
            let mut progress = Progress::default();
            let outcome = connection.read(&mut self.intake, several, &mut progress);
            self.intake.flush_numbered()?;
            let now_ns = clock::now_ns();
            if progress.arrived {
                if self.report.start_ns == 0 {
                    self.report.start_ns = now_ns;
                }
                self.report.end_ns = now_ns;
            }
            self.report.messages += progress.messages;
            self.report.bytes += progress.bytes;
            outcome?;
            if progress.closed {
                closed.push(index);
            }
        }
        for index in closed.into_iter().rev() {
            self.connections.remove(index);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Failure> {
        self.intake.flush()?;
        let report = &mut self.report;
        if let Some(dedupe) = &self.intake.dedupe {
            report.repeated = Some(dedupe.repeated);
            report.missing = Some(dedupe.missing);
        }
        report.seconds = (report.end_ns - report.start_ns) as f64 / 1e9;
        report.messages_per_second = report::per_second(report.messages, report.seconds);
        Ok(())
    }
}
