//! `kill -9` of processes that write to and read from one journal, at random moments under load. Nothing that was
//! acknowledged is lost, no reader sees half a record, and the other processes continue.
//!
//! `MILLSTREAM_KILLS` says how many are killed (`make kills`), `MILLSTREAM_SEED` repeats the order of things, as far as
//! processes do. The writers are slow inside their appends, so that many die there: they append single records, batches
//! and claims, in each sync mode.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millstream_journal::{Cursor, CursorMode, Error, Journal, Reader, Retention, Sync, Wait};

use crate::processes::{body, check};
use crate::support::{Random, small};
use crate::trial::number;

const ROLE: &str = "MILLSTREAM_KILLS_TEST_ROLE";
const WRITERS: [&str; 4] = ["append", "batch", "claim", "append"];
const READERS: [&str; 2] = ["block", "back-off"];
/// No progress for so long is a hang, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(120);

/// A process, and the acknowledgements that it received.
struct Member {
    process: Child,
    role: &'static str,
    life: u64,
    notes: PathBuf,
}

impl Member {
    fn start(role: &'static str, life: u64, path: &Path) -> Self {
        let notes = path.with_file_name(format!("notes-{life}"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["kills_under_load::child", "--exact", "--nocapture"]);
        command
            .env(ROLE, format!("{role} {life} {}", path.display()))
            .stdout(Stdio::null());
        Member {
            process: command.spawn().unwrap(),
            role,
            life,
            notes,
        }
    }

    fn kill(&mut self) {
        let ended = self.process.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended by itself: {ended:?}", self.role);
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// What a writer notes before it appends and when it is acknowledged: the number of its next record, how many, and
/// where they are.
struct Notes(File, u64);

const BEGUN: u64 = u64::MAX;

impl Notes {
    fn note(&mut self, count: u64, records: u64, sequence: u64) {
        let words = [count, records, sequence].map(u64::to_le_bytes);
        self.0.write_all_at(words.as_flattened(), self.1).unwrap();
        self.1 += 24;
    }

    /// What is acknowledged, as pairs of number and sequence, and whether the writer died inside an append.
    fn read(path: &Path) -> (Vec<(u64, u64)>, bool) {
        let bytes = fs::read(path).unwrap_or_default();
        let words: Vec<u64> = { bytes.as_chunks::<8>().0.iter() }
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let mut acknowledged = Vec::new();
        let mut inside = false;
        for note in words.as_chunks::<3>().0 {
            inside = note[2] == BEGUN;
            if !inside {
                acknowledged.extend((0..note[1]).map(|at| (note[0] + at, note[2] + at)));
            }
        }
        (acknowledged, inside)
    }
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut words = role.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let role = word();
    let life = word().parse().unwrap();
    let path = word();
    let mut random = Random(life * 2 + 1);
    let sync = match random.below(3) {
        0 => Sync::Never,
        1 => Sync::Every(Duration::from_millis(10)),
        _ => Sync::Always,
    };
    let retention = Retention {
        bytes: Some(16 << 20),
        keep_for_cursors: true,
        ..Retention::default()
    };
    let journal = Journal::open(path, small().with_sync(sync).with_retention(retention)).unwrap();
    match role {
        "block" => read(&journal, Wait::Block),
        "back-off" => read(&journal, Wait::BackOff),
        _ => write(&journal, role, life, &mut random, Path::new(path)),
    }
}

/// A while of work.
fn dawdle(random: &mut Random) {
    (0..random.below(3_000)).for_each(|_| std::hint::spin_loop());
}

fn write(journal: &Journal, role: &str, life: u64, random: &mut Random, path: &Path) -> ! {
    let file = File::create(path.with_file_name(format!("notes-{life}"))).unwrap();
    let mut notes = Notes(file, 0);
    let writer = journal.writer().unwrap();
    let mut count = 0;
    loop {
        let records = if role == "batch" {
            1 + random.below(9)
        } else {
            1
        };
        notes.note(count, records, BEGUN);
        let first = match role {
            "append" => writer.append(&body(life, count, random)).unwrap(),
            "batch" => {
                let bodies: Vec<_> = (count..count + records)
                    .map(|count| body(life, count, random))
                    .collect();
                let slowly = bodies.iter().inspect(|_| dawdle(random));
                writer.append_many(slowly).unwrap().start
            }
            _ => {
                let body = body(life, count, random);
                let mut claim = writer.claim(400).unwrap();
                for (to, from) in claim.chunks_mut(64).zip(body.chunks(64)) {
                    to[..from.len()].copy_from_slice(from);
                    dawdle(random);
                }
                claim.commit(body.len()).unwrap()
            }
        };
        notes.note(count, records, first);
        count += records;
    }
}

/// Read on forever: each writer's records come whole, and in order.
fn read(journal: &Journal, wait: Wait) -> ! {
    let mut reader = journal.reader().unwrap();
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    loop {
        let record = match reader.wait(wait, Some(LIMIT)) {
            Ok(true) => reader.next(),
            Ok(false) => continue,
            Err(error) => Err(error),
        };
        match record {
            Ok(Some(record)) => {
                let (writer, count) = check(record.body);
                let expected = counts.insert(writer, count + 1).unwrap_or(count);
                assert_eq!(expected, count, "of writer {writer}");
            }
            Ok(None) => panic!("waited for it"),
            // Retention was faster.
            Err(Error::Pruned { .. }) => {
                counts.clear();
                reader.seek(journal.next().unwrap()).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads everything, and knows where each record of the living is.
struct Judge {
    journal: Journal,
    reader: Reader,
    cursor: Cursor,
    /// By life of a writer, the sequence numbers of its records.
    seen: BTreeMap<u64, Vec<u64>>,
}

impl Judge {
    fn new(journal: &Journal) -> Self {
        Judge {
            reader: journal.reader().unwrap(),
            cursor: journal.cursor("judge", CursorMode::Exclusive).unwrap(),
            journal: journal.clone(),
            seen: BTreeMap::new(),
        }
    }

    /// Read up to this sequence number, which a process will come to.
    fn read_to(&mut self, sequence: u64) {
        while self.reader.position() < sequence {
            let came = self.reader.wait(Wait::Block, Some(LIMIT)).unwrap();
            assert!(came, "nobody appends any more");
            let record = self.reader.next().unwrap().unwrap();
            let (writer, count) = check(record.body);
            let seen = self.seen.entry(writer).or_default();
            assert_eq!(seen.len() as u64, count, "of writer {writer}");
            seen.push(record.sequence);
        }
        self.cursor.set(sequence).unwrap();
    }

    /// A writer is dead. Returns how many records it had acknowledged, how many of them are lost, and whether it died
    /// inside an append.
    fn autopsy(&mut self, member: &Member) -> (u64, u64, bool) {
        self.read_to(self.journal.next().unwrap());
        let (acknowledged, inside) = Notes::read(&member.notes);
        let seen = self.seen.remove(&member.life).unwrap_or_default();
        let lost = acknowledged
            .iter()
            .filter(|(count, sequence)| seen.get(*count as usize) != Some(sequence))
            .count();
        let _none = fs::remove_file(&member.notes);
        (acknowledged.len() as u64, lost as u64, inside)
    }
}

#[test]
fn what_was_acknowledged_survives_and_the_living_go_on() {
    let kills = number("MILLSTREAM_KILLS", 40);
    let seed = number("MILLSTREAM_SEED", 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path, small()).unwrap();
    let mut judge = Judge::new(&journal);
    let mut random = Random(seed * 2 + 1);
    let roles = WRITERS.iter().chain(&READERS);
    let mut members: Vec<_> = { roles.zip(seed * 1_000_000..) }
        .map(|(role, life)| Member::start(role, life, &path))
        .collect();
    let mut acknowledged = 0;
    let mut lost = 0;
    let mut insides = 0;
    for life in 0..kills {
        // A process appends, whichever died before.
        judge.read_to(judge.reader.position() + 1 + random.below(800));
        let victim = random.below(members.len() as u64) as usize;
        members[victim].kill();
        let (more, gone, inside) = judge.autopsy(&members[victim]);
        acknowledged += more;
        lost += gone;
        insides += u64::from(inside);
        let life = (seed * 1_000_000) + 1_000 + life;
        members[victim] = Member::start(members[victim].role, life, &path);
    }
    for member in &mut members {
        member.kill();
        let (more, gone, _) = judge.autopsy(member);
        acknowledged += more;
        lost += gone;
    }
    println!(
        "{{\"promise\":1,\"runs\":{kills},\"failures\":{lost},\"first_seed\":{seed}}} {insides} inside an append, {acknowledged} records acknowledged"
    );
    assert_eq!(lost, 0);
    assert!(
        insides * 10 >= kills && acknowledged > kills,
        "{insides} {acknowledged}"
    );
    let next = journal.next().unwrap();
    drop((judge, journal));
    assert_eq!(Journal::open(&path, small()).unwrap().next().unwrap(), next);
    assert_eq!(Journal::verify(&path).unwrap().damages, []);
}
