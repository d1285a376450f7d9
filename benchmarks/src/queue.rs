//! `millstream-bench queue`: the queue server as clients see it, over loopback sockets.
//!
//! The server is a process of its own; this one is the load: one thread, all connections in one poll, so that it costs
//! as little as it can on a machine with two cores. Each connection has a fixed number of requests in flight, and the
//! answers are checked by their length and first bytes.

mod backlog;
mod beside;
mod dialect;
mod load;
mod redis;
mod server;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use millstream_queue::address::Address;
use serde::Serialize;

use self::backlog::Backlog;
use self::beside::{Beside, await_answer, free_address};
use self::dialect::Dialect;
use self::load::{Load, Measured};
use self::redis::Redis;
use self::server::{ANY_PORT, serve};
use crate::figures::median_index;
use crate::program::Program;
use crate::programs::{self, cpu_seconds_of};
use crate::scratch::Scratch;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of each figure the median of so many runs.
    pub runs: u32,
    /// Of sustained load.
    pub seconds: f64,
    /// Where queues are kept.
    pub dir: PathBuf,
    /// Only loads with this text in their name, and no backlogs.
    pub only: Option<String>,
    /// A server that runs already.
    pub server: Option<Address>,
    /// Take turns with another server.
    pub against: Option<Against>,
    /// So many programs use the cores too.
    pub busy: u32,
    /// Over Unix sockets instead of loopback.
    pub unix: bool,
}

/// A server to compare with.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Its list type, with an append-only file: everysec for --sync never, always for always.
    Redis,
    /// The same server with --commit-on-replica, and a follower on this machine with the same --sync.
    Follower,
}

/// One row of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub name: String,
    /// The server that did it.
    pub server: String,
    /// The server's `--sync`, or what comes nearest to it.
    pub sync: String,
    /// What came out.
    pub measured: Measured,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// A few bytes to a thread that sleeps in `read` and back, over such a socket: no two threads that sleep are faster
    /// here.
    pub round_trip_us: f64,
    /// Over Unix sockets instead of loopback.
    pub unix: bool,
    /// Load over sockets.
    pub rows: Vec<Row>,
    /// Memory and restart.
    pub backlogs: Vec<Backlog>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = if self.unix { "Unix socket" } else { "loopback" };
        writeln!(f, "{socket} round trip {:.1} us", self.round_trip_us)?;
        writeln!(
            f,
            "{:42} {:10} {:7} {:>9} {:>11} {:>9} {:>9}  CPU of load, server",
            "load", "server", "sync", "seconds", "ops/s", "p50 us", "p99 us"
        )?;
        for Row {
            name,
            server,
            sync,
            measured: m,
        } in &self.rows
        {
            writeln!(
                f,
                "{name:42} {server:10} {sync:7} {:9.3} {:11.0} {:9.1} {:9.1}  {:.2} {:.2}",
                m.seconds, m.per_second, m.p50_us, m.p99_us, m.load_cpu, m.server_cpu
            )?;
        }
        for b in &self.backlogs {
            let each = b.memory_bytes_per_item;
            let limit = &b.memory_limit;
            writeln!(
                f,
                "backlog of {} items of 64 B, memory limit {limit}: {:.1} MiB, {each:.0} B an item",
                b.items, b.memory_mib
            )?;
            writeln!(
                f,
                "  restart with its journal of {:.0} MiB: {:.3} s",
                b.journal_mib, b.restart_seconds
            )?;
        }
        Ok(())
    }
}

/// Measures everything that the plan names.
pub fn measure(plan: &Plan) -> Result<Report, String> {
    let program = programs::millstream().map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    let syncs: &[&str] = if plan.server.is_some() {
        &["its own"]
    } else {
        &["never", "always"]
    };
    let kinds = match (&plan.server, plan.against) {
        (Some(address), _) => vec![Kind::Running(address)],
        (None, None) => vec![Kind::Ours],
        (None, Some(Against::Redis)) => vec![Kind::Ours, Kind::Redis],
        (None, Some(Against::Follower)) => vec![Kind::Ours, Kind::Followed],
    };
    let _busy = Beside::loops(plan.busy)?;
    for &sync in syncs {
        let wanted = |name: &str| plan.only.as_deref().is_none_or(|only| name.contains(only));
        for (name, load) in loads(plan.seconds)
            .into_iter()
            .filter(|(name, _)| wanted(name))
        {
            let mut runs = vec![Vec::new(); kinds.len()];
            for _ in 0..plan.runs {
                for (kind, runs) in kinds.iter().zip(&mut runs) {
                    runs.push(run(&program, plan, *kind, sync, &load)?);
                }
            }
            for (kind, mut runs) in kinds.iter().zip(runs) {
                let rates: Vec<f64> = runs.iter().map(|run| run.per_second).collect();
                rows.push(Row {
                    name: name.clone(),
                    server: kind.to_string(),
                    sync: sync.to_owned(),
                    measured: runs.swap_remove(median_index(&rates)),
                });
            }
        }
    }
    let backlogs = if plan.server.is_some() || plan.only.is_some() {
        Vec::new()
    } else {
        backlog::measure(&program, &plan.dir)?
    };
    Ok(Report {
        round_trip_us: load::round_trip_us(plan.unix).map_err(|error| error.to_string())?,
        unix: plan.unix,
        rows,
        backlogs,
    })
}

/// Which server is measured.
#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Ours,
    Followed,
    Redis,
    Running(&'a Address),
}

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Ours => f.write_str("millstream"),
            Kind::Followed => f.write_str("followed"),
            Kind::Redis => f.write_str("redis"),
            Kind::Running(address) => address.fmt(f),
        }
    }
}

fn loads(seconds: f64) -> Vec<(String, Load)> {
    let sustained = Some(Duration::from_secs_f64(seconds));
    let mut loads = vec![
        (
            "10,000 sets, one client".to_owned(),
            Load {
                connections: 1,
                sets: 10_000,
                ..Load::default()
            },
        ),
        (
            "100 clients x 100 sets".to_owned(),
            Load {
                connections: 100,
                sets: 100,
                ..Load::default()
            },
        ),
    ];
    for item_bytes in [64, 1024, 4096] {
        for connections in [1, 10, 100] {
            let load = Load {
                connections,
                item_bytes,
                sustained,
                ..Load::default()
            };
            loads.push((
                format!("set + get, {connections} conn., {item_bytes} B"),
                load,
            ));
        }
    }
    let load = Load {
        connections: 100,
        in_flight: 16,
        sustained,
        ..Load::default()
    };
    loads.push(("set + get, 100 conn., 64 B, 16 in flight".to_owned(), load));
    loads
}

fn run(
    program: &Program,
    plan: &Plan,
    kind: Kind<'_>,
    sync: &str,
    load: &Load,
) -> Result<Measured, String> {
    if let Kind::Running(address) = kind {
        return load.run(Dialect::Memcache, address);
    }
    let folder = Scratch::new(&plan.dir).map_err(|error| error.to_string())?;
    let socket = plan.unix.then(|| folder.path().join("socket"));
    let with_cpu = |dialect, address: &Address, id| {
        let before = cpu_seconds_of(id)?;
        let mut measured = load.run(dialect, address)?;
        measured.server_cpu = (cpu_seconds_of(id)? - before) / measured.seconds;
        Ok::<_, String>(measured)
    };
    if let Kind::Redis = kind {
        let server = Redis::start(folder.path(), socket.as_deref(), sync)?;
        let measured = with_cpu(Dialect::RedisList, &server.address, server.id())?;
        server.stop()?;
        return Ok(measured);
    }
    let socket = socket.map(Address::Unix);
    let listen = socket
        .as_ref()
        .map_or_else(|| ANY_PORT.to_owned(), Address::to_string);
    let mut options = vec!["--sync", sync];
    let replica = free_address()?.to_string();
    if let Kind::Followed = kind {
        options.extend(["--replica", &replica, "--commit-on-replica"]);
    }
    let server = serve(program, &folder.path().join("queues"), &listen, &options)?;
    let _follower = match kind {
        Kind::Followed => Beside::follower(program, (&replica, folder.path()), sync)?,
        _ => Beside::default(),
    };
    let address = match socket {
        Some(address) => address,
        None => Address::Tcp(
            server
                .address
                .parse()
                .map_err(|_| format!("'{}' is no address", server.address))?,
        ),
    };
    // It answers once its follower is there.
    await_answer(&address).map_err(|error| error.to_string())?;
    let measured = with_cpu(Dialect::Memcache, &address, server.id())?;
    server.stop().map_err(|error| error.to_string())?;
    Ok(measured)
}
