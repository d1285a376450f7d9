//! New queues that threads create: the set that needs one waits for it, and no other request.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use millstream_queue::Moment;
use millstream_queue::broker::{Broker, EndedBy};
use millstream_queue::config::Config;
use millstream_queue::session::{Session, SessionOptions};
use millstream_queue::storage::{JournalStorage, Storage};

const NOW: Moment = Moment {
    wall_ms: 1_700_000_000_000,
    steady_us: 0,
};

struct Server {
    queues: Broker<JournalStorage>,
    storage: JournalStorage,
    created: Receiver<()>,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let (notify, created) = channel();
        let storage = JournalStorage::open(folder, 1 << 20).unwrap();
        let storage = storage.with_makers(move || notify.send(()).unwrap_or_default());
        let storage = storage.unwrap();
        Server {
            queues: Broker::open(storage.clone(), Config::default(), NOW).unwrap(),
            storage,
            created,
        }
    }

    fn connect(&mut self) -> Session {
        Session::new(&mut self.queues, SessionOptions::default())
    }

    fn ask(&mut self, client: &mut Session, request: &str) -> String {
        client.receive(
            &mut self.queues,
            request.replace('|', "\r\n").as_bytes(),
            NOW,
        );
        self.answer(client)
    }

    fn answer(&mut self, client: &mut Session) -> String {
        self.queues.commit().unwrap();
        let answer = String::from_utf8_lossy(client.output()).replace("\r\n", "|");
        client.sent(usize::MAX);
        answer
    }

    /// The rest of an answer that ends with a line, after the threads have created what it waits for.
    fn rest(&mut self, client: &mut Session) -> String {
        let mut answer = String::new();
        loop {
            client.resume(&mut self.queues, NOW);
            answer += &self.answer(client);
            if !client.is_waiting() && !client.has_work() && !answer.is_empty() {
                return answer;
            }
            // Each thread that is done says so.
            if let Ok(()) = self.created.recv_timeout(Duration::from_millis(20)) {
                self.queues.created(NOW);
            }
        }
    }

    /// The whole answer to a request.
    fn end(&mut self, client: &mut Session, request: &str) -> String {
        match self.ask(client, request) {
            answer if answer.is_empty() => self.rest(client),
            answer => answer,
        }
    }

    /// Waits until a thread has created a queue, or could not, and resumes these clients if they are woken.
    fn create_next(&mut self, clients: &mut [&mut Session]) {
        self.created.recv().unwrap();
        self.queues.created(NOW);
        let woken = self.queues.take_woken();
        for client in clients.iter_mut().filter(|one| woken.contains(&one.id())) {
            client.resume(&mut self.queues, NOW);
        }
    }
}

#[test]
fn only_the_sets_that_need_a_new_queue_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut one = server.connect();
    let mut two = server.connect();
    let mut other = server.connect();
    assert_eq!(server.ask(&mut one, "set q 0 0 1|1|get q|"), "");
    assert_eq!(
        server.ask(&mut two, "set q 0 0 1 noreply|2|set q 0 0 1|3|"),
        ""
    );
    assert_eq!(
        server.ask(&mut other, "get q|get q/peek|get none|version|"),
        "END|END|END|VERSION 1.5.0|"
    );
    server.create_next(&mut [&mut one, &mut two]);
    assert_eq!(server.answer(&mut one), "STORED|VALUE q 0 1|1|END|");
    assert_eq!(server.answer(&mut two), "STORED|");
    assert_eq!(
        server.ask(&mut other, "get q|get q|get q|"),
        "VALUE q 0 1|2|END|VALUE q 0 1|3|END|END|"
    );
    let sets = server.queues.counters().cmd_set;
    assert_eq!((sets, server.storage.open_logs()), (3, 1));
    // A queue that was there is not waited for, also after a restart.
    assert_eq!(server.ask(&mut one, "set q 0 0 1|4|"), "STORED|");
    drop(server);
    let mut server = Server::start(folder.path());
    let mut one = server.connect();
    assert_eq!(
        server.ask(&mut one, "set q 0 0 1|5|get q|"),
        "STORED|VALUE q 0 1|4|END|"
    );
}

#[test]
fn a_queue_stays_without_its_client_and_a_deleted_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut one = server.connect();
    let mut other = server.connect();
    server.ask(&mut one, "set gone 0 0 1|1|");
    one.end(&mut server.queues, EndedBy::Client, NOW);
    // It has the number of the one that has gone, and waits for nothing.
    let mut next = server.connect();
    server.create_next(&mut [&mut next]);
    assert_eq!(server.storage.open_logs(), 1);
    assert_eq!(server.ask(&mut next, "get gone|"), "END|");

    let mut one = server.connect();
    assert_eq!(server.ask(&mut one, "set q 0 0 1|1|"), "");
    assert_eq!(server.ask(&mut other, "delete q|"), "DELETED|");
    assert!(!folder.path().join("q").exists());
    // The set is done anew, which creates another one.
    server.create_next(&mut [&mut one]);
    assert_eq!(server.answer(&mut one), "");
    server.create_next(&mut [&mut one]);
    assert_eq!(server.answer(&mut one), "STORED|");
    assert_eq!(server.ask(&mut other, "get q|"), "VALUE q 0 1|1|END|");
}

#[test]
fn a_queue_that_cannot_be_created_is_an_error_once_for_each_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut one = server.connect();
    assert_eq!(server.ask(&mut one, "get q/t=1|"), "");
    std::fs::write(folder.path().join("q"), "a file").unwrap();
    let mut two = server.connect();
    for _ in 0..2 {
        assert_eq!(server.ask(&mut two, "set q 0 0 1|1|"), "");
        server.create_next(&mut [&mut two]);
        let answer = server.answer(&mut two);
        assert!(answer.starts_with("SERVER_ERROR queue \"q\": "), "{answer}");
    }
    std::fs::remove_file(folder.path().join("q")).unwrap();
    assert_eq!(server.ask(&mut two, "set q 0 0 1|1|"), "");
    server.create_next(&mut [&mut two]);
    assert_eq!(server.answer(&mut two), "STORED|");
}

#[test]
fn the_first_mention_of_a_fan_out_queue_waits_for_it_and_no_other_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut one = server.connect();
    let mut two = server.connect();
    let mut other = server.connect();
    assert_eq!(server.end(&mut one, "set p 0 0 1|1|"), "STORED|");

    // Not one of them waits when the threads are fast; what was answered before is not answered again.
    let begun = [
        server.ask(&mut one, "get p p+a|"),
        server.ask(&mut two, "get p+a/peek|"),
    ];
    assert_eq!(
        server.ask(&mut other, "get p|version|"),
        "END|VERSION 1.5.0|"
    );
    let [first, second] = begun;
    assert_eq!(first + &server.rest(&mut one), "VALUE p 0 1|1|END|");
    assert_eq!(second + &server.rest(&mut two), "END|");
    assert_eq!(server.end(&mut other, "set p 0 0 1|2|"), "STORED|");
    assert_eq!(
        server.end(&mut one, "get p+a|get p|"),
        "VALUE p+a 0 1|2|END|VALUE p 0 1|2|END|"
    );

    // A wait for an item begins when the queue is there, and `monitor` too.
    server.ask(&mut one, "get p,p+b/t=1000|");
    server.ask(&mut two, "monitor p+b 1 1|");
    assert_eq!(server.end(&mut other, "set p 0 0 1|3|"), "STORED|");
    assert_eq!(server.rest(&mut one), "VALUE p,p+b/t=1000 0 1|3|END|");
    assert_eq!(server.rest(&mut two), "VALUE p+b 0 1|3|END|END|");
}

#[test]
fn a_fan_out_queue_that_cannot_be_created_is_an_error_for_its_reader_and_gets_copies_once_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut one = server.connect();
    assert_eq!(server.end(&mut one, "set p 0 0 1|1|"), "STORED|");
    std::os::unix::fs::symlink("/nothing/there", folder.path().join("p+a")).unwrap();
    for request in ["get p+a|", "get p+a/t=10|", "set p 0 0 1|2|"] {
        let answer = server.end(&mut one, request);
        assert!(
            answer.starts_with("SERVER_ERROR queue \"p+a\": "),
            "{request}: {answer}"
        );
    }
    std::fs::remove_file(folder.path().join("p+a")).unwrap();
    assert_eq!(server.end(&mut one, "set p 0 0 1|3|"), "STORED|");
    assert_eq!(server.ask(&mut one, "get p+a|"), "VALUE p+a 0 1|3|END|");
}

#[test]
fn the_files_of_a_deleted_queue_are_removed_when_its_storage_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut one = server.connect();
    for round in 0..20 {
        assert_eq!(server.ask(&mut one, "set q 0 0 1|1|"), "");
        server.create_next(&mut [&mut one]);
        assert_eq!(server.answer(&mut one), "STORED|", "{round}");
        assert_eq!(server.ask(&mut one, "delete q|get q|"), "DELETED|END|");
        assert!(!folder.path().join("q").exists());
    }
    drop(server);
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .collect();
    let left: Vec<_> = left.iter().map(std::fs::DirEntry::file_name).collect();
    assert_eq!(left, [".lock"]);
}
