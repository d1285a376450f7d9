//! The process of a program that serves beside other work: the server takes nothing of it, and its death loses nothing.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use millstream_queue::address::Address;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::client::{Client, start};

/// The directory of the program's server.
const DIR: &str = "MILLSTREAM_TEST_SERVES";
/// The line after which the program stops its server, and ends.
const ADDRESS: &str = "listening on ";

/// The program: it serves until its standard input ends.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let server = start(Path::new(&dir));
    println!("{ADDRESS}{}", server.addresses()[0]);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    for name in ["LISTEN_FDS", "NOTIFY_SOCKET"] {
        println!("{name} {}", std::env::var(name).is_ok());
    }
    server.stop();
    server.wait().unwrap();
}

struct Program {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    address: Address,
}

impl Program {
    fn start(dir: &Path, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["process::child", "--exact", "--nocapture"])
            .env(DIR, dir)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| Some(line.split_once(ADDRESS)?.1.to_owned()))
            .unwrap();
        Program {
            child,
            lines,
            address: Address::Tcp(address.parse().unwrap()),
        }
    }
}

#[test]
fn a_signal_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut program = Program::start(folder.path(), &[]);
        Client::connect(&program.address).put("jobs", "x");
        kill_process(Pid::from_child(&program.child), signal).unwrap();
        // It has no handler, and neither has the server.
        let ended = program.child.wait().unwrap();
        assert_eq!(ended.signal(), Some(signal.as_raw()));
    }
    let server = start(folder.path());
    assert_eq!(Client::of(&server).drain("jobs").len(), 3);
}

#[cfg(target_os = "linux")]
#[test]
fn no_handler_is_installed_and_no_limit_raised() {
    let handled = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let masks = status.lines().filter(|line| line.starts_with("Sig"));
        let masks = masks.filter(|line| line.contains("Cgt") || line.contains("Ign"));
        masks.map(str::to_owned).collect::<Vec<_>>()
    };
    let low = Rlimit {
        current: Some(512),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, low).unwrap();
    let before = handled();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let mut client = Client::of(&server);
    client.put("jobs", "x");
    assert_eq!(client.drain("jobs"), ["x"]);
    assert_eq!((handled(), before.len()), (before, 2));
    assert_eq!(getrlimit(Resource::Nofile).current, Some(512));
}

#[test]
fn what_systemd_passes_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let notified = UnixDatagram::bind(&path).unwrap();
    notified.set_nonblocking(true).unwrap();
    let environment = [
        ("LISTEN_FDS", "1"),
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
    ];
    let mut program = Program::start(&folder.path().join("queues"), &environment);
    drop(program.child.stdin.take());
    let lines: Vec<_> = program.lines.map(Result::unwrap).collect();
    for line in ["LISTEN_FDS true", "NOTIFY_SOCKET true"] {
        assert!(lines.iter().any(|found| found == line), "{lines:?}");
    }
    assert!(program.child.wait().unwrap().success());
    assert!(
        notified.recv(&mut [0; 100]).is_err(),
        "systemd was notified"
    );
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    let mut number = 0;
    for _ in 0..3 {
        let mut program = Program::start(folder.path(), &[]);
        let mut client = Client::connect(&program.address);
        for _ in 0..20 {
            client.put("jobs", &number.to_string());
            expected.push(number.to_string());
            number += 1;
        }
        let mut opens = Client::connect(&program.address);
        assert_eq!(opens.get("jobs/open").as_ref(), expected.first());
        assert_eq!(client.get("jobs").as_ref(), Some(&expected.remove(1)));
        // On the way when it dies: stored or not.
        client.send("set other 0 0 1\r\nx\r\n");
        program.child.kill().unwrap();
        program.child.wait().unwrap();
    }
    let server = start(folder.path());
    let mut client = Client::of(&server);
    assert_eq!(client.drain("jobs"), expected);
    assert!(client.drain("other").len() <= 3);
}
