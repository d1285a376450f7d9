//! Random requests to a server and its follower, with crashes of both between any two steps, and what each of them may
//! lose in a loss of power.
//!
//! What is compared are the records of all logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::copies::Copies;
use super::survey::Survey;
use super::{ReplicatedStorage, complete, prune};
use crate::Moment;
use crate::broker::snapshot::Snapshot;
use crate::broker::{Broker, BrokerLimits, EndedBy};
use crate::config::Config;
use crate::session::{Session, SessionOptions};
use crate::storage::{CHANGES, JournalStorage, Log, Storage};
use millstream_journal::{Journal, Options};

const ITEM_BYTES: usize = 10_000;
const NAMES: [&str; 5] = ["a", "b", "b+copy", "c", "failed"];
const CONFIG: &str = "
[queue.a]
max_deliveries = 2
error_queue = 'failed'
max_age = '5s'
[queue.c]
max_items = 20
on_full = 'drop-oldest'
";

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The two machines.
struct Pair {
    seed: u64,
    random: Random,
    leader: PathBuf,
    copy: PathBuf,
    now: Moment,
    broker: Option<(Broker<ReplicatedStorage>, Vec<Session>)>,
    snapshot: Option<Snapshot>,
    copies: Option<Copies>,
    losses: usize,
    /// The most changes that snapshots have made superfluous.
    pruned: u64,
}

impl Pair {
    fn new(folder: &Path, seed: u64) -> Self {
        Pair {
            seed,
            random: Random(seed),
            leader: folder.join("leader"),
            copy: folder.join("copy"),
            now: Moment {
                wall_ms: 1_700_000_000_000,
                steady_us: 0,
            },
            broker: None,
            snapshot: None,
            copies: None,
            losses: 0,
            pruned: 0,
        }
    }

    fn broker(&mut self) -> &mut (Broker<ReplicatedStorage>, Vec<Session>) {
        if self.broker.is_none() {
            let storage = JournalStorage::open_followed(&self.leader, ITEM_BYTES).unwrap();
            let storage = ReplicatedStorage::followed(storage).unwrap();
            storage.changes().unwrap().snapshot_after(20_000);
            let config: Config = CONFIG.parse().unwrap();
            let mut broker = Broker::open(storage, config, self.now).unwrap();
            assert_eq!(broker.closed().next(), None, "{}", self.seed);
            let options = SessionOptions::default;
            let sessions = (0..3).map(|_| Session::new(&mut broker, options()));
            let sessions = sessions.collect();
            self.broker = Some((broker, sessions));
        }
        self.broker.as_mut().unwrap()
    }

    /// A request of one of the clients; whether it is answered does not matter.
    fn request(&mut self) {
        let name = NAMES[self.random.below(5) as usize];
        let number = self.random.below(1_000_000);
        let length = self.random.below(3_000);
        let body = "x".repeat(if self.random.is(80) {
            10
        } else {
            length as usize
        });
        let body = format!("{number}{body}");
        let set = |options: &str| format!("set {name}{options} 0 0 {}\r\n{body}\r\n", body.len());
        let text = match self.random.below(100) {
            0..40 => set(""),
            40..45 => set("/delay=700"),
            45..60 => format!("get {name}\r\n"),
            60..75 => format!("get {name}/close/open\r\n"),
            75..80 => format!("get {name}/abort\r\n"),
            80..83 => format!("get {name}/abort/delay=300\r\n"),
            83..85 => format!("flush {name}\r\n"),
            85..87 => format!("delete {name}\r\n"),
            87..88 => "flush_all\r\n".to_owned(),
            _ => format!("confirm {name} 1\r\n"),
        };
        let client = self.random.below(3) as usize;
        let now = self.now;
        let (broker, sessions) = self.broker();
        let session = &mut sessions[client];
        session.receive(broker, text.as_bytes(), now);
        for _ in 0..50 {
            session.sent(usize::MAX);
            if session.has_work() {
                session.resume(broker, now);
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now.wall_ms += ms;
        self.now.steady_us += ms * 1_000;
        let now = self.now;
        self.broker().0.run_due(now).unwrap();
    }

    /// A round of the snapshot, which begins if it is due.
    fn write_snapshot(&mut self) {
        let now = self.now;
        let mut snapshot = self.snapshot.take();
        let (broker, _) = self.broker();
        let limits = BrokerLimits {
            round_items: 12,
            ..BrokerLimits::default()
        };
        broker.set_limits(limits);
        if snapshot.is_none() {
            snapshot = broker.begin_snapshot().unwrap();
        }
        let Some(mut writing) = snapshot else {
            return;
        };
        match broker.write_snapshot(&mut writing, now).unwrap() {
            None => self.snapshot = Some(writing),
            Some(begin) => {
                prune(&broker.changes_journal(), begin).unwrap();
            }
        }
    }

    /// The leader ends, as by a signal or as if it was killed.
    fn end_leader(&mut self) {
        self.snapshot = None;
        if let Some((mut broker, sessions)) = self.broker.take()
            && self.random.is(50)
        {
            for mut session in sessions {
                session.end(&mut broker, EndedBy::Server, self.now);
            }
            broker.close().unwrap();
        }
    }

    /// The leader's machine loses power, with the files of an earlier moment: of the queues or of their changes.
    fn lose_power(&mut self) {
        self.end_leader();
        let saved = self.leader.with_file_name("saved");
        if !saved.exists() || self.random.is(30) {
            let _none = fs::remove_dir_all(&saved);
            return copy_dir(&self.leader, &saved);
        }
        let before = records(&self.leader);
        // Only a snapshot gives queues back that are lost.
        let changes = Journal::open(self.leader.join(CHANGES), Options::read_only()).unwrap();
        let has_snapshot = Survey::of(&changes).unwrap().is_some();
        drop(changes);
        let loses_changes = self.random.is(50) || !has_snapshot;
        for folder in [&self.leader, &saved] {
            // Of one there is what was, of the other what is.
            for entry in fs::read_dir(folder).unwrap() {
                let (path, name) = entry
                    .map(|entry| (entry.path(), entry.file_name()))
                    .unwrap();
                let is_of_changes = name.to_string_lossy() == CHANGES;
                if path.is_dir() && is_of_changes == loses_changes {
                    if folder == &self.leader {
                        fs::remove_dir_all(path).unwrap()
                    } else {
                        copy_dir(&path, &self.leader.join(name))
                    }
                }
            }
        }
        fs::remove_dir_all(saved).unwrap();
        if loses_changes {
            // A follower that has more is refused, and begins anew.
            self.copies = None;
            let _none = fs::remove_dir_all(&self.copy);
        }
        self.broker();
        self.broker.take();
        let after = records(&self.leader);
        for (name, (lineage, records)) in before {
            // A queue that was deleted may be back, as without a second machine.
            let Some((_, after)) = after.get(&name).filter(|after| after.0 == lineage) else {
                assert!(!loses_changes, "{name}");
                continue;
            };
            assert_eq!(
                after.last().map(|one| one.0),
                records.last().map(|one| one.0),
                "{name}"
            );
            assert!(records.iter().all(|one| after.contains(one)), "{name}");
        }
        self.losses += 1;
    }

    /// Brings the copy of the changes to what the leader's are, as the replication of journals does; sometimes not to
    /// the end.
    fn copy_changes(&mut self, all: bool) {
        let from = Journal::open(self.leader.join(CHANGES), Options::read_only()).unwrap();
        let to = self.copy.join(CHANGES);
        fs::create_dir_all(&self.copy).unwrap();
        let options = Options {
            first_sequence: from.first().unwrap(),
            sole_writer: true,
            ..Options::default()
        };
        let next = Journal::open(&to, options.clone()).unwrap().next().unwrap();
        if next < from.first().unwrap() {
            // It was away for too long, and begins anew.
            self.copies = None;
            fs::remove_dir_all(&self.copy).unwrap();
            fs::create_dir_all(&self.copy).unwrap();
        }
        let to = Journal::open(to, options).unwrap();
        let writer = to.writer().unwrap();
        let mut reader = from.reader().unwrap();
        reader.seek(to.next().unwrap()).unwrap();
        while let Some(record) = reader.next().unwrap() {
            writer.append_at(record.time_ns, record.body).unwrap();
            if !all && self.random.is(1) {
                break;
            }
        }
    }

    /// The follower applies what has come; it may be killed in between.
    fn apply(&mut self) {
        if self.copies.is_none() {
            let storage = JournalStorage::open_copy(&self.copy).unwrap();
            self.copies = Copies::open(storage).unwrap();
        }
        if let Some(copies) = &mut self.copies {
            copies.follow(std::time::Duration::ZERO).unwrap();
        }
        if self.random.is(20) {
            self.copies = None;
        }
    }

    /// All that a crash may leave is equal on both machines, once the follower has all changes.
    fn compare(&mut self, seed: u64) {
        while self.snapshot.is_some() || !self.broker().0.has_snapshot() {
            self.write_snapshot();
        }
        self.end_leader();
        // Opening it writes what a crash has kept from being written.
        self.broker();
        self.broker.take();
        self.copies = None;
        self.copy_changes(true);
        if let Err(cause) = complete(&self.copy) {
            let changes = Journal::open(self.copy.join(CHANGES), Options::read_only()).unwrap();
            let mut reader = changes.reader().unwrap();
            while let Some(record) = reader.next().unwrap() {
                match super::Change::read(record.body).unwrap() {
                    super::Change::Record {
                        name,
                        position,
                        of_snapshot,
                        ..
                    } => eprintln!("{} {name} {position} {of_snapshot}", record.sequence),
                    other => eprintln!("{} {other:?}", record.sequence),
                }
            }
            panic!("seed {seed}: {cause}");
        }
        let changes = Journal::open(self.leader.join(CHANGES), Options::read_only()).unwrap();
        self.pruned = self.pruned.max(changes.first().unwrap());
        let ours = records(&self.leader);
        let theirs = records(&self.copy);
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>(),
            "seed {seed}"
        );
        for (name, (lineage, ours)) in ours {
            let (copied, theirs) = &theirs[&name];
            assert_eq!(lineage, *copied, "seed {seed}: {name}");
            // Segments begin elsewhere in the copy, so that it may have removed more of what is not needed.
            let first = |all: &Records| all.first().map_or(0, |one| one.0);
            let from = first(&ours).max(first(theirs));
            let of = |all: &Records| {
                all.iter()
                    .filter(|one| one.0 >= from)
                    .cloned()
                    .collect::<Vec<_>>()
            };
            let ours = of(&ours);
            let theirs = of(theirs);
            let ends = |all: &Records| (first(all), all.last().map(|one| one.0));
            assert!(
                ours == theirs,
                "seed {seed}: {name}: {:?} and {:?}",
                ends(&ours),
                ends(&theirs)
            );
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).into_iter().flatten() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &to)
        } else {
            // The work in the background may remove a file meanwhile.
            match fs::copy(entry.path(), to) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

type Records = Vec<(u64, Vec<u8>)>;

/// The lineage and the records of each queue in a directory.
fn records(folder: &Path) -> BTreeMap<String, (u128, Records)> {
    let mut storage = JournalStorage::open_followed(folder, ITEM_BYTES).unwrap();
    let mut found = BTreeMap::new();
    for name in storage.names().unwrap() {
        let mut log = storage.open(&name).unwrap();
        let positions = log.first()..log.next();
        let all = positions.map(|position| (position, log.read(position).unwrap().to_vec()));
        let all = all.collect();
        found.insert(name, (log.lineage().unwrap(), all));
    }
    found
}

#[test]
fn the_copy_has_what_the_queues_have_whatever_ends_in_between() {
    let runs = std::env::var("QUEUE_REPLICA_RUNS").map_or(6, |runs| runs.parse().unwrap());
    let mut losses = 0;
    let mut pruned = 0;
    let first = std::env::var("QUEUE_REPLICA_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..first + runs {
        let folder = tempfile::tempdir().unwrap();
        let mut pair = Pair::new(folder.path(), seed);
        for _ in 0..4 {
            for _ in 0..250 {
                match pair.random.below(100) {
                    0..80 => pair.request(),
                    80..88 => pair.write_snapshot(),
                    88..92 => pair.pass(400),
                    92 => pair.end_leader(),
                    93 => pair.lose_power(),
                    _ if pair.leader.join(CHANGES).exists() => {
                        pair.copy_changes(false);
                        pair.apply();
                    }
                    _ => {}
                }
            }
            pair.compare(seed);
        }
        losses += pair.losses;
        pruned += pair.pruned;
    }
    assert!(losses > runs as usize, "{losses} losses of power");
    assert!(pruned > 100 * runs, "{pruned} changes were pruned");
}

#[test]
fn a_copy_whose_snapshot_was_removed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut pair = Pair::new(folder.path(), 1);
    for _ in 0..200 {
        pair.request();
    }
    pair.compare(1);
    let changes = Journal::open(pair.copy.join(CHANGES), Options::default()).unwrap();
    while changes.first().unwrap() < changes.next().unwrap() / 2 {
        let before = changes.next().unwrap();
        for _ in 0..200 {
            let beat = [8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            changes
                .writer()
                .unwrap()
                .append_many(vec![beat; 5_000])
                .unwrap();
        }
        let all = millstream_journal::Retention {
            bytes: Some(1),
            ..Default::default()
        };
        changes.prune(&all).unwrap();
        assert!(changes.next().unwrap() > before);
    }
    drop(changes);
    let storage = JournalStorage::open_copy(&pair.copy).unwrap();
    let error = Copies::open(storage).unwrap_err().to_string();
    assert!(error.contains("the changes have no snapshot"), "{error}");
}
