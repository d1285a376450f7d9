//! `millstream send`: an open-loop load generator.
//!
//! Message `i` of a stream is due at `start_ns + i * 1e9 / rate` (CLOCK_MONOTONIC), whatever the receiver does. A
//! socket that is full makes the stream late against its schedule, which is recorded, and never moves the schedule.
//! This is what keeps a stall of the receiver visible in its latency ("coordinated omission", Gil Tene). Any process of
//! the same machine can compute when a message was due, from the printed start and the rate.
//!
//! All streams share one thread and non-blocking sockets, so that the generator costs one core.

mod load;
mod outcome;
mod pace;
mod stream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::framing::Framing;

use self::load::Load;
use self::pace::Schedule;
use self::stream::Stream;
use crate::address;
use crate::data::Kind;
use crate::failure::Failure;
use crate::stop::Stop;

/// The options of `millstream send`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  millstream send orders.msg --to :7000 --rate 100000 --seconds 10 --repeat
  millstream send --generate votes --count 1000000 --to :7000
  millstream send --stream nbbo.msg@:7000 --stream orders.msg@:7001 --rate 1000000 --repeat --seconds 30 --json")]
pub(super) struct Args {
    /// Files of messages, sent one after the other as one stream.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to send them; several times for several receivers, each of which gets all.
    #[arg(long, value_name = "HOST:PORT", value_parser = address::parse)]
    to: Vec<SocketAddr>,
    /// One stream of its own: a file and where to send it. May be given several times.
    #[arg(long = "stream", value_name = "FILE@HOST:PORT", value_parser = load::parse_stream)]
    streams: Vec<(PathBuf, SocketAddr)>,
    /// Send generated messages in place of a file.
    #[arg(long, value_name = "KIND", conflicts_with = "files")]
    generate: Option<Kind>,
    /// The seed of generated messages.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Messages per second and stream [default: as fast as possible].
    #[arg(long, value_name = "N", value_parser = pace::parse_rate)]
    rate: Option<f64>,
    /// End after this many messages of each stream.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End with the messages that are due by then (with --rate, up to 1 s is given to catch up).
    #[arg(long, value_name = "T", value_parser = pace::parse_seconds, conflicts_with = "count")]
    seconds: Option<Duration>,
    /// Send the messages again and again, until --count, --seconds or Ctrl-C.
    #[arg(long)]
    repeat: bool,
    /// How many connections to open to each address; each carries all messages.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// u8, u16, u16le, u32, u32le, lines or fixed:N [default: u32, or that of the generated kind].
    #[arg(long)]
    framing: Option<Framing>,
    /// The longest message that a file may have.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    max_frame: usize,
    /// Send what becomes due within this time together: fewer, larger writes, each message up to this much late.
    #[arg(long, value_name = "US", default_value_t = 0)]
    chunk_us: u32,
    /// When the schedule starts, CLOCK_MONOTONIC in ns [default: when all connections are open].
    #[arg(long, value_name = "NS")]
    start_at: Option<u64>,
    /// How long to try to connect, in seconds: the receiver may be starting.
    #[arg(long, value_name = "T", default_value = "5", value_parser = pace::parse_seconds)]
    connect_timeout: Duration,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// Send until the count, the time or a signal ends it.
pub(super) fn run(args: Args) -> Result<(), Failure> {
    if args.generate.is_none() && args.files.is_empty() && args.streams.is_empty() {
        return Err(Failure::usage(
            "nothing to send: give a FILE, --generate KIND or --stream FILE@HOST:PORT",
        ));
    }
    if (args.generate.is_some() || !args.files.is_empty()) == args.to.is_empty() {
        return Err(Failure::usage(
            "a FILE or --generate KIND needs --to HOST:PORT, and --to needs one of them",
        ));
    }
    let loads = load_all(&args)?;
    let stop = Stop::on_signals()?;
    let mut streams = Vec::new();
    for (load, address) in loads {
        for _ in 0..args.connections {
            let socket = stream::connect(address, args.connect_timeout, &stop)?;
            let limit = if args.repeat {
                args.count.unwrap_or(u64::MAX)
            } else {
                load.messages().min(args.count.unwrap_or(u64::MAX))
            };
            streams.push(Stream::new(load.clone(), address, socket, limit)?);
        }
    }
    let schedule = Schedule::new(args.rate, args.start_at, args.chunk_us, args.seconds);
    schedule.bound(&mut streams);
    let (end_ns, sent) = pace::send_all(&mut streams, &schedule, &stop);
    outcome::report(&streams, &schedule, end_ns, stop.requested(), args.json)?;
    sent
}

/// What goes where.
fn load_all(args: &Args) -> Result<Vec<(Arc<Load>, SocketAddr)>, Failure> {
    let framing = args
        .framing
        .clone()
        .or_else(|| args.generate.map(Kind::framing))
        .unwrap_or(Framing::U32);
    let mut loads = Vec::new();
    if !args.to.is_empty() {
        let load = Arc::new(match args.generate {
            Some(kind) => {
                // Repeated, the count is that of the messages sent, not of those generated.
                let count = args
                    .count
                    .filter(|_| !args.repeat)
                    .unwrap_or_else(|| kind.default_count());
                Load::generate(kind, count, args.seed, framing.clone(), args.max_frame)?
            }
            None => Load::read(&args.files, framing.clone(), args.max_frame, args.repeat)?,
        });
        loads.extend(args.to.iter().map(|&address| (load.clone(), address)));
    }
    for (path, address) in &args.streams {
        let load = Load::read(
            std::slice::from_ref(path),
            framing.clone(),
            args.max_frame,
            args.repeat,
        )?;
        loads.push((Arc::new(load), *address));
    }
    Ok(loads)
}
