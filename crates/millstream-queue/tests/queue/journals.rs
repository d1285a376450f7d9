//! Broker on disk: restart, disk use, damage, removal.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use millstream_queue::Moment;
use millstream_queue::broker::Broker;
use millstream_queue::config::{Config, Sync};
use millstream_queue::session::{Session, SessionOptions};
use millstream_queue::storage::JournalStorage;

const NOW: Moment = Moment {
    wall_ms: 1_700_000_000_000,
    steady_us: 0,
};
const ITEM_BYTES_MAX: usize = 1 << 20;

/// A server without sockets, and one client.
struct Server {
    queues: Broker<JournalStorage>,
    session: Session,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let storage = JournalStorage::open(folder, ITEM_BYTES_MAX).unwrap();
        let mut queues = Broker::open(storage, Config::with_sync(Sync::Never), NOW).unwrap();
        let session = Session::new(&mut queues, SessionOptions::default());
        Server { queues, session }
    }

    fn ask(&mut self, request: &str) -> String {
        self.session.receive(
            &mut self.queues,
            request.replace('|', "\r\n").as_bytes(),
            NOW,
        );
        self.queues.commit().unwrap();
        let answer = String::from_utf8_lossy(self.session.output()).replace("\r\n", "|");
        self.session.sent(usize::MAX);
        answer
    }
}

fn disk_bytes(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .unwrap()
        // A file that is removed meanwhile counts for nothing.
        .map(|entry| entry.unwrap().metadata().map_or(0, |found| found.len()))
        .sum()
}

#[test]
fn a_restart_finds_every_item() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    assert_eq!(
        server.ask("get p+c|set p 1 0 3|one|set p/sync 2 0 0||set q 3 0 1|x|get p/open|get q|"),
        "END|STORED|STORED|STORED|VALUE p/open 1 3|one|END|VALUE q 3 1|x|END|"
    );
    drop(server);
    let mut server = Server::start(folder.path());
    assert_eq!(
        server.ask("get p|get p|get p|get p+c|get p+c|get q|"),
        "VALUE p 1 3|one|END|VALUE p 2 0||END|END|VALUE p+c 1 3|one|END|VALUE p+c 2 0||END|END|"
    );
}

#[test]
fn disk_use_follows_the_backlog_also_with_one_old_item() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let body = "x".repeat(100_000);
    server.ask("set q 0 0 3|old|get q/open|");
    let mut keeper = Session::new(&mut server.queues, SessionOptions::default());
    std::mem::swap(&mut server.session, &mut keeper);
    let mut most = 0;
    for n in 0..3_000 {
        assert_eq!(
            server
                .ask(&format!("set q 0 0 100000 noreply|{body}|get q|"))
                .len(),
            100_022,
            "{n}"
        );
        if n % 100 == 0 {
            most = most.max(disk_bytes(&folder.path().join("q")));
        }
    }
    assert!(
        most <= 160 << 20,
        "{most} bytes on disk for one item of three"
    );
    drop(server);
    assert_eq!(
        Server::start(folder.path()).ask("get q|get q|"),
        "VALUE q 0 3|old|END|END|"
    );
}

#[test]
fn a_damaged_queue_stays_closed_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    server.ask(
        "set good 0 0 1|1|set bad/sync 0 0 5|aaaaa|set bad/sync 0 0 5|bbbbb|set bad/sync 0 0 1|c|",
    );
    drop(server);
    let segment = folder.path().join("bad/segment-0000000000.log");
    let bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(5).position(|five| five == b"aaaaa").unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap()
        .write_all_at(b"b", at as u64)
        .unwrap();
    let mut server = Server::start(folder.path());
    let closed: Vec<_> = server
        .queues
        .closed()
        .map(|(name, why)| (name.to_owned(), why.to_owned()))
        .collect();
    assert_eq!(closed.len(), 1);
    let (name, why) = &closed[0];
    assert!(
        name == "bad" && why.contains("segment-0000000000.log: damaged at offset"),
        "{why}"
    );
    assert_eq!(server.ask("get good|"), "VALUE good 0 1|1|END|");
    assert!(
        server
            .ask("set bad 0 0 1|2|")
            .starts_with("SERVER_ERROR queue \"bad\" is closed: ")
    );
}

#[test]
fn a_deleted_queue_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    assert_eq!(
        server.ask("set q 0 0 1|1|delete q|get q|set q 0 0 1|2|delete q|"),
        "STORED|DELETED|END|STORED|DELETED|"
    );
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [".lock"]);
    drop(server);
    fs::create_dir(folder.path().join(".removed-0")).unwrap();
    fs::create_dir(folder.path().join("~not a queue")).unwrap();
    let server = Server::start(folder.path());
    assert_eq!(
        server.queues.names().len() + server.queues.closed().count(),
        0
    );
    assert!(
        !folder.path().join(".removed-0").exists() && folder.path().join("~not a queue").exists()
    );
}

#[test]
fn two_servers_do_not_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    server.ask("set q 0 0 1|1|");
    let second = JournalStorage::open(folder.path(), ITEM_BYTES_MAX).unwrap_err();
    assert_eq!(second.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(server.ask("get q|"), "VALUE q 0 1|1|END|");
    drop(server);
    assert_eq!(
        Server::start(folder.path()).ask("get q|"),
        "END|",
        "the lock ends with its server"
    );
}

#[test]
fn a_sync_that_is_due_is_a_commit_and_what_is_set_meanwhile_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let storage = JournalStorage::open(folder.path(), ITEM_BYTES_MAX).unwrap();
    let policy = Config::with_sync(Sync::Every(Duration::from_millis(10)));
    let mut queues = Broker::open(storage, policy, NOW).unwrap();
    let mut session = Session::new(&mut queues, SessionOptions::default());
    // Whether a commit is wanted after so many milliseconds.
    let mut wants = |ms: u64, sets: bool, commits: bool| {
        let now = Moment {
            steady_us: ms * 1_000,
            ..NOW
        };
        if sets {
            session.receive(&mut queues, b"set q 0 0 1\r\n1\r\n", now)
        } else {
            queues.run_due(now).unwrap()
        }
        let wanted = queues.take_commit_wanted();
        if commits {
            queues.commit().unwrap();
        }
        wanted
    };
    assert!(!wants(0, true, false));
    assert!(!wants(9, false, false));
    assert!(wants(10, false, false));
    // The timer comes again while the disk is slow; what is set is not acknowledged, since the sync is late.
    assert!(!wants(15, false, false));
    assert!(wants(15, true, true));
    // What comes later has a time of its own.
    assert!(!wants(16, true, false));
    assert!(!wants(25, true, false));
    assert!(wants(26, true, true));
    assert!(!wants(40, false, false));
}
