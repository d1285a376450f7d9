//! `bench queue`: the queue server as clients see it, over loopback sockets.
//!
//! The server is a process of its own; this one is the load: one thread, all connections in one poll, so that it costs as little
//! as it can on a machine with two cores. Each connection has a fixed number of requests in flight, and the answers are
//! checked by their length and first bytes.

mod backlog;
mod load;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

pub use self::backlog::Backlog;
pub use self::load::{Load, Measured};
use super::figures::median_index;
use super::peers::Program;

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
    pub server: Option<std::net::SocketAddr>,
}

/// One row of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub name: String,
    /// The server's `--sync`.
    pub sync: String,
    /// What came out.
    pub measured: Measured,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// A byte to a thread that sleeps in `read` and back, over loopback: nothing over a socket is faster here.
    pub round_trip_us: f64,
    /// Load over sockets.
    pub rows: Vec<Row>,
    /// Memory and restart.
    pub backlogs: Vec<Backlog>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "loopback round trip {:.1} us", self.round_trip_us)?;
        writeln!(
            f,
            "{:42} {:8} {:>9} {:>11} {:>9} {:>9}",
            "load", "sync", "seconds", "ops/s", "p50 us", "p99 us"
        )?;
        for Row {
            name,
            sync,
            measured: m,
        } in &self.rows
        {
            writeln!(
                f,
                "{name:42} {sync:8} {:9.3} {:11.0} {:9.1} {:9.1}",
                m.seconds, m.per_second, m.p50_us, m.p99_us
            )?;
        }
        for b in &self.backlogs {
            let (each, limit) = (b.memory_bytes_per_item, &b.memory_limit);
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

/// Measure everything.
///
/// # Errors
/// The server could not be started, or gave an answer that is none.
pub fn measure(plan: &Plan) -> Result<Report, String> {
    let program = Program::this().map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    let syncs: &[&str] = if plan.server.is_some() {
        &["its own"]
    } else {
        &["never", "always"]
    };
    for &sync in syncs {
        let wanted = |name: &str| plan.only.as_deref().is_none_or(|only| name.contains(only));
        for (name, load) in loads(plan.seconds)
            .into_iter()
            .filter(|(name, _)| wanted(name))
        {
            let mut runs = Vec::new();
            for _ in 0..plan.runs {
                runs.push(run(&program, plan, sync, &load)?);
            }
            let rates: Vec<f64> = runs.iter().map(|run| run.per_second).collect();
            let measured = runs.swap_remove(median_index(&rates));
            rows.push(Row {
                name,
                sync: sync.to_owned(),
                measured,
            });
        }
    }
    let backlogs = if plan.server.is_some() || plan.only.is_some() {
        Vec::new()
    } else {
        backlog::measure(&program, &plan.dir)?
    };
    Ok(Report {
        round_trip_us: load::round_trip_us().map_err(|error| error.to_string())?,
        rows,
        backlogs,
    })
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
    for item_bytes in [64, 1024] {
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

fn run(program: &Program, plan: &Plan, sync: &str, load: &Load) -> Result<Measured, String> {
    if let Some(server) = plan.server {
        return load.run(server);
    }
    let folder = Folder::new(&plan.dir)?;
    let server = serve(program, &folder.0, &["--sync", sync])?;
    let address = server
        .address
        .parse()
        .map_err(|_| format!("'{}' is no address", server.address))?;
    let measured = load.run(address);
    server.stop().map_err(|error| error.to_string())?;
    measured
}

/// Start a server on a free port.
fn serve(
    program: &Program,
    folder: &Path,
    options: &[&str],
) -> Result<super::peers::Receiver, String> {
    let dir = folder.to_string_lossy();
    let args = ["queue", "serve", "--listen", "127.0.0.1:0", "--dir", &dir]
        .into_iter()
        .chain(options.iter().copied());
    program.listening(&args.map(str::to_owned).collect::<Vec<_>>())
}

/// A folder for queues that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(within: &Path) -> Result<Self, String> {
        let path = within.join(format!("bench-queue-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is seen by whoever looks into the folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
