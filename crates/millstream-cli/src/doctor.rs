//! `millstream doctor`: what of this machine matters to Millstream.
//!
//! A *finding* is a fact with its name; one that costs speed or a promise has advice, too.

use std::fmt::{self, Write as _};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytesize::ByteSize;
use millstream_journal::file_system::{FileSystem, Kind};
use millstream_journal::{Journal, Options, Sync, chain};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::{python, report};

/// The options of `millstream doctor`.
#[derive(clap::Args, Debug)]
#[command(
    long_about = "Show what of this machine matters: the file system of a directory and what is promised on it, the cost of a sync, \
                  limits, the clock, ports, the Python interpreter and its clients. What should be changed is marked with !",
    after_help = "Example:\n  millstream doctor /var/lib/orders"
)]
pub(super) struct Args {
    /// The directory in which journals, states or queues will be.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The ports that programs have by default: queues, followers, the page.
const PORTS: [(u16, &str); 3] = [
    (22133, "queue serve"),
    (7600, "journal serve"),
    (8080, "--http 8080"),
];
/// Open files for some hundred journals or queues, and as many connections.
const FILES_MIN: u64 = 4096;
/// The records of which each is synced, to measure a sync.
const SYNCS: usize = 16;

/// Looks, and prints what it finds; what cannot be found out is a finding, too.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut report = Report(Vec::new());
    report.program();
    report.directory(&args.dir);
    report.limits();
    report.clock();
    report.ports();
    report.python();
    report::print(&report, report.to_string().trim_end(), args.json)
}

/// A fact of this machine.
#[derive(Serialize)]
struct Finding {
    name: &'static str,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

#[derive(Serialize)]
struct Report(Vec<Finding>);

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            let mark = if finding.advice.is_some() { '!' } else { ' ' };
            writeln!(out, "{mark} {:12}{}", finding.name, finding.value)?;
            if let Some(advice) = &finding.advice {
                writeln!(out, "{:14}{advice}", "")?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn add(&mut self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        self.0.push(Finding {
            name,
            value,
            advice: None,
        });
    }

    fn warn(&mut self, name: &'static str, value: impl Into<String>, advice: impl Into<String>) {
        self.add(name, value);
        if let Some(finding) = self.0.last_mut() {
            finding.advice = Some(advice.into());
        }
    }

    fn program(&mut self) {
        let system = rustix::system::uname();
        let text = |bytes: &std::ffi::CStr| bytes.to_string_lossy().into_owned();
        let version = env!("CARGO_PKG_VERSION");
        let target = std::env::consts::ARCH;
        self.add("program", format!("millstream {version}, {target}"));
        let name = text(system.sysname());
        let release = text(system.release());
        self.add("system", format!("{name} {release}"));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = ByteSize::b(rustix::system::sysinfo().totalram as u64);
        self.add(
            "machine",
            format!("{cores} processors, {memory:.1} of memory"),
        );
    }

    fn directory(&mut self, dir: &Path) {
        let shown = dir.display();
        if dir.is_file() {
            let advice = "name a directory: journals, states and queues are directories in it";
            return self.warn("directory", format!("{shown} is a file"), advice);
        }
        let Ok(free) = rustix::fs::statvfs(dir) else {
            let advice = "name a directory that exists, on the disk that you mean to use";
            return self.warn("directory", format!("{shown} cannot be read"), advice);
        };
        let system = FileSystem::of(dir);
        let room = ByteSize::b(free.f_bavail * free.f_frsize);
        let value = format!("{shown}: {}, {room:.1} free", system.name);
        match advice(system) {
            None => self.add("directory", value),
            Some(advice) => self.warn("directory", value, advice),
        }
        match sync_cost(dir) {
            Ok(cost) => self.add(
                "sync",
                format!("{cost:.1?}, the median of {SYNCS} appends with sync=always"),
            ),
            Err(error) => {
                let advice = "a journal cannot be written there: see docs/file-systems.md";
                self.warn("sync", chain(&error).to_string(), advice);
            }
        }
    }

    fn limits(&mut self) {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let shown =
            |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
        let value = format!(
            "{} open files, at most {}",
            shown(limit.current),
            shown(limit.maximum)
        );
        match limit.current {
            Some(files) if files < FILES_MIN => {
                let advice = "each journal and connection has one: ulimit -n 65536, or LimitNOFILE= of systemd";
                self.warn("limits", value, advice);
            }
            _ => self.add("limits", value),
        }
    }

    fn clock(&mut self) {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = fs::read_to_string(path).unwrap_or_default();
        match source.trim() {
            "" => self.add("clock", "its source is not known"),
            fast @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page") => {
                self.add("clock", fast);
            }
            slow => {
                let advice = "each reading is a system call, which costs latency: see clocksource= of the kernel";
                self.warn("clock", slow, advice);
            }
        }
    }

    fn ports(&mut self) {
        let mut text = String::new();
        for (port, verb) in PORTS {
            let comma = if text.is_empty() { "" } else { ", " };
            let state = match TcpListener::bind(("127.0.0.1", port)) {
                Ok(_) => "free",
                Err(_) => "in use",
            };
            let _ = write!(text, "{comma}{port} ({verb}) {state}");
        }
        self.add("ports", text);
    }

    fn python(&mut self) {
        let interpreter = python::interpreter();
        let found = Command::new(&interpreter)
            .args(["-m", "millstream._run.about"])
            .output();
        let about = found
            .ok()
            .and_then(|found| serde_json::from_slice::<About>(&found.stdout).ok());
        let Some(about) = about else {
            let value = format!(
                "{} does not have the package millstream",
                interpreter.display()
            );
            let advice = "flows and services in Python need it: pip install millstream";
            return self.warn("python", value, advice);
        };
        self.add(
            "python",
            format!("{}, millstream {}", about.python, about.millstream),
        );
        self.add("clients", about.clients);
    }
}

/// What the Python package says of itself.
#[derive(Deserialize)]
struct About {
    python: String,
    millstream: String,
    clients: String,
}

/// What is not promised on this file system, and the remedy.
fn advice(system: FileSystem) -> Option<&'static str> {
    Some(match system.kind {
        Kind::InPlace => return None,
        Kind::Local if system.name == "overlay" => {
            "what is promised is that of its upper layer; use a volume for data that is to stay"
        }
        Kind::Local => return None,
        Kind::Copied => {
            "after a full disk a journal must be opened again; `chattr +C` on the empty directory avoids it"
        }
        Kind::Memory => "nothing survives the machine: for tests only",
        Kind::User => {
            "a full disk may lose records that are not synced: use a file system of the kernel"
        }
        Kind::Shared => {
            "two machines may see two states, and nothing is promised: use a local file system"
        }
    })
}

/// The median time of an append that is synced, in a journal that is removed afterwards.
fn sync_cost(dir: &Path) -> Result<Duration, millstream_journal::Error> {
    let path = dir.join(format!(".millstream-doctor-{}", std::process::id()));
    let timed = || {
        let journal = Journal::open(&path, Options::default().with_sync(Sync::Always))?;
        let writer = journal.writer()?;
        let mut costs = Vec::new();
        for _ in 0..SYNCS {
            let before = millstream_journal::clock::monotonic_ns();
            writer.append(b"millstream doctor")?;
            costs.push(millstream_journal::clock::monotonic_ns().saturating_sub(before));
        }
        costs.sort_unstable();
        Ok(Duration::from_nanos(costs[SYNCS / 2]))
    };
    let cost = timed();
    let _ = fs::remove_dir_all(&path);
    cost
}
