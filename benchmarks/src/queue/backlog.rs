//! Memory with a backlog, and how long a restart takes with it.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use millstream_flow::clock;
use serde::Serialize;

use super::server::{ANY_PORT, serve};
use crate::program::{Program, Receiver};
use crate::scratch::Scratch;

/// A backlog, and what it cost.
#[derive(Clone, Debug, Serialize)]
pub struct Backlog {
    /// Of 64 bytes each.
    pub items: u64,
    /// What the server may hold ready in memory.
    pub memory_limit: String,
    /// Memory of the server that is its own, in MiB: mapped files are the system's.
    pub memory_mib: f64,
    /// The same for each item, in bytes.
    pub memory_bytes_per_item: f64,
    /// What the queue's journal holds, in MiB.
    pub journal_mib: f64,
    /// From the start of a new server on this journal until it takes connections.
    pub restart_seconds: f64,
}

const BATCH: u64 = 1_000;

/// 1 M items held ready, 1 M with a limit on memory, and 5 M, which is a journal of about 500 MiB.
pub(super) fn measure(program: &Program, dir: &Path) -> Result<Vec<Backlog>, String> {
    let cases = [
        (1_000_000, "none", 1 << 40),
        (1_000_000, "16 MiB", 16 << 20),
        (5_000_000, "128 MiB (default)", 128 << 20),
    ];
    cases
        .iter()
        .map(|&(items, limit, bytes)| one(program, dir, items, limit, bytes))
        .collect()
}

fn one(
    program: &Program,
    dir: &Path,
    items: u64,
    limit: &str,
    memory_bytes: u64,
) -> Result<Backlog, String> {
    let failed = |error: std::io::Error| error.to_string();
    let folder = Scratch::new(dir).map_err(failed)?;
    let config = folder.path().join("config.toml");
    std::fs::write(
        &config,
        format!("[defaults]\nmemory_bytes = {memory_bytes}\n"),
    )
    .map_err(failed)?;
    let queues = folder.path().join("queues");
    let config = config.to_string_lossy().into_owned();
    let options = ["--sync", "never", "--config", &config];
    let server = serve(program, &queues, ANY_PORT, &options)?;
    let empty = own_memory_bytes(&server)?;
    let mut stream = TcpStream::connect(&server.address).map_err(failed)?;
    let set = format!("set bench 0 0 64 noreply\r\n{}\r\n", "x".repeat(64));
    let batch = set.repeat(BATCH as usize);
    for _ in 0..items / BATCH {
        stream.write_all(batch.as_bytes()).map_err(failed)?;
    }
    // When this is answered all has arrived.
    stream.write_all(b"version\r\n").map_err(failed)?;
    std::io::Read::read_exact(&mut stream, &mut [0; 8]).map_err(failed)?;
    let memory = own_memory_bytes(&server)? - empty;
    server.stop().map_err(failed)?;
    let begun_ns = clock::now_ns();
    let server = serve(program, &queues, ANY_PORT, &options)?;
    let restart_seconds = (clock::now_ns() - begun_ns) as f64 / 1e9;
    server.stop().map_err(failed)?;
    let journal: u64 = std::fs::read_dir(queues.join("bench"))
        .map_err(failed)?
        .map(|entry| {
            entry
                .and_then(|entry| entry.metadata())
                .map_or(0, |data| data.len())
        })
        .sum();
    Ok(Backlog {
        items,
        memory_limit: limit.to_owned(),
        memory_mib: memory / 1048576.0,
        memory_bytes_per_item: memory / items as f64,
        journal_mib: journal as f64 / 1048576.0,
        restart_seconds,
    })
}

/// Anonymous memory.
fn own_memory_bytes(server: &Receiver) -> Result<f64, String> {
    let path = format!("/proc/{}/status", server.id());
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0)
        .ok_or_else(|| format!("{path} has no RssAnon"))
}
