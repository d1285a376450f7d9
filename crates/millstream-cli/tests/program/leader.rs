//! Leaders and followers as tests run them: real processes, and a proxy that cuts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millstream_journal::{Journal, Options};

use super::process::{command, text};

/// A test waits for something to happen this long at most.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running `millstream journal serve`.
pub struct Leader {
    pub child: Child,
    pub address: String,
    said: Arc<Mutex<String>>,
}

impl Leader {
    /// On a free port, or on the one that it had before.
    pub fn start(listen: &str, args: &[&str]) -> Self {
        let all = [
            &[
                "journal",
                "serve",
                "--listen",
                listen,
                "--heartbeat",
                "200ms",
            ],
            args,
        ]
        .concat();
        let mut child = command(&all).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect(&line);
        let said = Arc::new(Mutex::new(String::new()));
        let address = address.to_owned();
        hear(stderr, &said);
        Leader {
            child,
            address,
            said,
        }
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// A running `millstream journal follow`.
pub struct Follower {
    pub child: Child,
    said: Arc<Mutex<String>>,
}

impl Follower {
    pub fn start(leader: &str, copy: &Path, args: &[&str]) -> Self {
        let own = [
            "journal",
            "follow",
            leader,
            text(copy),
            "--retry-max",
            "200ms",
        ];
        Self::of(&mut command(&[&own, args].concat()))
    }

    pub fn of(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        hear(BufReader::new(child.stderr.take().unwrap()), &said);
        Follower { child, said }
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn hear(mut from: impl BufRead + Send + 'static, said: &Arc<Mutex<String>>) {
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        let mut line = String::new();
        while from.read_line(&mut line).is_ok_and(|count| count > 0) {
            said.lock().unwrap().push_str(&line);
            line.clear();
        }
    });
}

/// Wait for something to become true.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} has not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All that a journal holds: numbers, times, bodies.
pub fn records(path: &Path) -> Vec<(u64, u64, Vec<u8>)> {
    let journal = Journal::open(path, Options::read_only()).unwrap();
    let mut reader = journal.reader().unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        found.push((record.sequence, record.time_ns, record.body.to_vec()));
    }
    found
}

/// The end of a journal, 0 when there is none yet.
pub fn next(path: &Path) -> u64 {
    Journal::open(path, Options::read_only()).map_or(0, |journal| journal.next().unwrap())
}

/// The copy is the original, record by record.
pub fn assert_same(original: &Path, copy: &Path) {
    let ours = records(original);
    let theirs = records(copy);
    let differs = ours
        .iter()
        .zip(&theirs)
        .find(|(ours, theirs)| ours != theirs);
    assert_eq!(differs, None);
    assert_eq!(ours.len(), theirs.len());
}

/// Between leader and follower: passes bytes on until it is cut.
pub struct Proxy {
    pub address: String,
    /// Cut each connection after so many bytes from the leader; 0 is never.
    pub cut_after: Arc<AtomicU64>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    stopped: Arc<AtomicBool>,
}

impl Proxy {
    pub fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            address: listener.local_addr().unwrap().to_string(),
            cut_after: Arc::default(),
            connections: Arc::default(),
            stopped: Arc::default(),
        };
        let to = to.to_owned();
        let cut_after = Arc::clone(&proxy.cut_after);
        let connections = Arc::clone(&proxy.connections);
        let stopped = Arc::clone(&proxy.stopped);
        std::thread::spawn(move || {
            for follower in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(leader) = TcpStream::connect(&to) else {
                    continue;
                };
                let mut open = connections.lock().unwrap();
                for one in [&follower, &leader] {
                    open.push(one.try_clone().unwrap());
                }
                drop(open);
                pass(
                    leader.try_clone().unwrap(),
                    follower.try_clone().unwrap(),
                    Arc::clone(&cut_after),
                );
                pass(follower, leader, Arc::default());
            }
        });
        proxy
    }

    /// Cut all connections now.
    pub fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            let _gone = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.cut();
        let _wakes_it = TcpStream::connect(&self.address);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut_after: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let mut passed = 0;
        let mut buffer = [0; 8 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let limit = cut_after.load(Ordering::Relaxed);
            let left = if limit == 0 {
                u64::MAX
            } else {
                limit.saturating_sub(passed)
            };
            let part = count.min(left as usize);
            if to.write_all(&buffer[..part]).is_err() || part < count {
                break;
            }
            passed += part as u64;
        }
        let _gone = from.shutdown(Shutdown::Both);
        let _gone = to.shutdown(Shutdown::Both);
    });
}
