//! Journals that are followed as a set: a copy never has an effect without its cause, whatever dies and whenever.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::random::Random;
use millstream_journal::{Journal, Options, Reader, Wait};
use millstream_replication::Followers;

use super::leader::{Follower, Leader, assert_same, next, until};
use super::process::{feed, interrupt, millstream, printed, text};

const SET: [&str; 4] = ["orders", "fills.schedule", "fills", "fills.snapshots"];

/// Records of the first journal, and for each of them one in each of the others that names it: as a service does.
fn chain(dir: PathBuf, done: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let writers: Vec<_> = SET
            .iter()
            .map(|name| {
                let options = Options::default().with_segment_bytes(64 << 10);
                let journal = Journal::open(dir.join(name), options).unwrap();
                journal.writer().unwrap()
            })
            .collect();
        let mut random = Random::new(7);
        let mut number = writers[0].journal().next().unwrap();
        while !done.load(Ordering::Relaxed) {
            for _ in 0..20 {
                for writer in &writers {
                    writer.append(&number.to_le_bytes()).unwrap();
                }
                number += 1;
            }
            if random.below(8) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
}

/// How many records each copy has, the last of the set first: what is looked at later may have grown meanwhile.
fn ends(copies: &Path) -> Vec<u64> {
    let mut ends: Vec<u64> = SET
        .iter()
        .rev()
        .map(|name| next(&copies.join(name)))
        .collect();
    ends.reverse();
    ends
}

fn assert_consistent(copies: &Path, what: &str) {
    let ends = ends(copies);
    assert!(ends.is_sorted_by(|up, down| up >= down), "{what}: {ends:?}");
}

fn rounds() -> u64 {
    let told = std::env::var("MILLSTREAM_KILLS");
    told.map_or(8, |text| text.parse().unwrap())
}

#[test]
fn an_output_is_never_ahead_of_its_input_whatever_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let copies = folder.path().join("copies");
    let served = [data.join("orders"), data.join("fills")];
    // The follower is there before the leader, and both before the journals.
    let start = |listen: &str| Leader::start(listen, &[text(&served[0]), text(&served[1])]);
    let mut leader = start(":0");
    let address = leader.address.clone();
    let follow = |sync: &str| {
        let set = ["--set", "orders,fills", "--sync", sync];
        Follower::start(&address, &copies, &set)
    };
    let mut follower = follow("never");
    until("the wait", || {
        follower
            .said()
            .contains("it waits for 'orders.schedule', 'orders'")
    });
    assert!(!data.exists() && !copies.exists());
    let done = Arc::<AtomicBool>::default();
    let chain = chain(data.clone(), Arc::clone(&done));
    let mut random = Random::new(3);
    for round in 0..rounds() {
        let before = ends(&copies)[3];
        until("progress", || {
            assert_consistent(&copies, "live");
            ends(&copies)[3] > before
        });
        std::thread::sleep(Duration::from_millis(random.below(60)));
        if round % 4 == 3 {
            leader.kill();
            leader = start(&address);
        } else {
            follower.kill();
            assert_consistent(&copies, "after a kill");
            follower = follow(["never", "always", "5ms"][random.below(3) as usize]);
        }
    }
    done.store(true, Ordering::Relaxed);
    chain.join().unwrap();
    until("the whole set", || ends(&copies) == ends(&data));
    for name in SET {
        // Writers may wait for each journal of a set, as for one that is followed alone.
        let journal = Journal::open(data.join(name), Options::default()).unwrap();
        let last = journal.next().unwrap() - 1;
        let limit = Some(Duration::from_secs(60));
        Followers::of(&journal).wait(last, 1, limit).unwrap();
    }
    interrupt(&follower.child);
    assert_eq!(follower.child.wait().unwrap().code(), Some(0));
    for name in SET {
        assert_same(&data.join(name), &copies.join(name));
    }
    assert!(!copies.join("orders.schedule").exists());
}

#[test]
fn what_the_follower_appends_to_an_output_has_its_input_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let copies = folder.path().join("copies");
    let done = Arc::<AtomicBool>::default();
    let chain = chain(data.clone(), Arc::clone(&done));
    until("some records", || {
        data.join("fills.snapshots").exists() && ends(&data)[3] > 500
    });
    let served = [data.join("orders"), data.join("fills")];
    let leader = Leader::start(":0", &[text(&served[0]), text(&served[1])]);
    // Acknowledgements come seldom; consistency does not wait for them.
    let set = ["--set", "orders,fills", "--sync", "10s"];
    let follower = Follower::start(&leader.address, &copies, &set);
    let mut looked = 0;
    until("many looks", || {
        // The output first: what it has now, its input had on the disk before.
        let output = next(&copies.join("fills"));
        let input = Journal::open(copies.join("orders"), Options::read_only());
        let durable = input.map_or(0, |journal| journal.durable());
        assert!(
            durable >= output,
            "{output} in the output, {durable} durable"
        );
        looked += u64::from(output > 0);
        looked > 50 && output > 2_000
    });
    done.store(true, Ordering::Relaxed);
    chain.join().unwrap();
    drop((follower, leader));
}

#[test]
fn a_set_is_followed_as_soon_as_a_record_comes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let copies = folder.path().join("copies");
    for name in ["orders", "fills"] {
        let append = ["journal", "append", text(&data.join(name)), "--quiet"].map(str::to_owned);
        let append: Vec<&str> = append.iter().map(String::as_str).collect();
        printed(&feed(&append, "first\n"));
    }
    let served = [data.join("orders"), data.join("fills")];
    let leader = Leader::start(":0", &[text(&served[0]), text(&served[1])]);
    let _follower = Follower::start(&leader.address, &copies, &["--set", "orders,fills"]);
    until("the copies", || next(&copies.join("fills")) == 1);
    let tail = |name: &str| -> Reader {
        let journal = Journal::open(copies.join(name), Options::read_only()).unwrap();
        let mut reader = journal.reader().unwrap();
        reader.seek(1).unwrap();
        reader
    };
    for name in ["fills", "orders"] {
        let mut reader = tail(name);
        let journal = Journal::open(data.join(name), Options::default()).unwrap();
        journal.writer().unwrap().append(b"second").unwrap();
        assert!(
            reader
                .wait(Wait::Block, Some(Duration::from_secs(60)))
                .unwrap()
        );
        assert_eq!(reader.next().unwrap().unwrap().body, b"second");
    }
}

#[test]
fn a_set_is_promoted_by_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let copies = folder.path().join("copies");
    let done = Arc::<AtomicBool>::default();
    let chain = chain(data.clone(), Arc::clone(&done));
    until("some records", || {
        data.join("fills.snapshots").exists() && ends(&data)[3] > 100
    });
    done.store(true, Ordering::Relaxed);
    chain.join().unwrap();
    let served = [data.join("orders"), data.join("fills")];
    let leader = Leader::start(":0", &[text(&served[0]), text(&served[1])]);
    let follow = ["journal", "follow", &leader.address, text(&copies), "--set"];
    let once = [&follow[..], &["orders,fills", "--once", "--json"]].concat();
    let report = super::process::json(&millstream(&once));
    assert_eq!(report.as_array().unwrap().len(), 6);
    // One of them is ahead already, as after a promotion that died in the middle.
    printed(&millstream(&[
        "journal",
        "promote",
        text(&copies.join("orders")),
    ]));
    let promoted = printed(&millstream(&["journal", "promote", text(&copies)]));
    assert_eq!(promoted.lines().count(), 4, "{promoted}");
    assert!(
        promoted
            .lines()
            .all(|line| line.contains("leads in term 2 from record"))
    );
    drop(leader);
    // The old leader comes back: one command for the set.
    printed(&feed(
        &["journal", "append", text(&served[1]), "--quiet"],
        "an effect that nobody has\n",
    ));
    let copied = [copies.join("orders"), copies.join("fills")];
    let leader = Leader::start(":0", &[text(&copied[0]), text(&copied[1])]);
    let rejoin = [
        "journal",
        "rejoin",
        text(&data),
        "--leader",
        &leader.address,
    ];
    let set = ["--set", "orders,fills", "--yes"];
    let report = printed(&millstream(&[&rejoin[..], &set].concat()));
    assert_eq!(report.matches("nothing is dropped").count(), 3, "{report}");
    assert_eq!(report.matches("were dropped").count(), 1, "{report}");
    let follow = ["journal", "follow", &leader.address, text(&data)];
    printed(&millstream(
        &[&follow[..], &["--set", "orders,fills", "--once"]].concat(),
    ));
    for name in SET {
        assert_same(&copies.join(name), &data.join(name));
    }
}
