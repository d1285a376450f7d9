//! Leader, follower and the link between them, killed and cut at random moments while writers write.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use millstream_journal::random::Random;
use millstream_journal::{Journal, Options};

use super::leader::{Follower, Leader, Proxy, assert_same, next, until};
use super::process::{command, feed, interrupt, printed, text};

/// How many kills and cuts: `MILLSTREAM_KILLS`, or a few.
fn rounds() -> u64 {
    let told = std::env::var("MILLSTREAM_KILLS");
    told.map_or(12, |text| text.parse().unwrap())
}

/// The seed of this run: `MILLSTREAM_SEED`, or another one each time.
fn seed() -> u64 {
    let told = std::env::var("MILLSTREAM_SEED");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    told.map_or(now.unwrap().subsec_nanos().into(), |text| {
        text.parse().unwrap()
    })
}

fn fresh(path: &Path) {
    let made = feed(
        &["journal", "append", text(path), "--segment-bytes", "64KiB"],
        "first\n",
    );
    printed(&made);
}

/// A process that appends lines as fast as a follower acknowledges them. Gives what it has acknowledged: all before.
fn waiting_writer(
    orders: &Path,
    done: &Arc<AtomicBool>,
    acknowledged: &Arc<AtomicU64>,
) -> std::thread::JoinHandle<()> {
    let mut writer = command(&["journal", "append", text(orders), "--wait-follower=300s"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    let stdout = BufReader::new(writer.stdout.take().unwrap());
    let done = Arc::clone(done);
    let acknowledged = Arc::clone(acknowledged);
    let feeder = std::thread::spawn(move || {
        for n in 0_u64.. {
            if done.load(Ordering::Relaxed) || writeln!(stdin, "line {n}").is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        for line in stdout.lines() {
            let number: u64 = line.unwrap().parse().unwrap();
            acknowledged.fetch_max(number + 1, Ordering::SeqCst);
        }
        feeder.join().unwrap();
        let output = writer.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    })
}

/// Records of all sizes, without waiting for a follower.
fn eager_writer(orders: PathBuf, done: Arc<AtomicBool>, seed: u64) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let writer = Journal::open(orders, Options::default())
            .unwrap()
            .writer()
            .unwrap();
        let mut random = Random::new(seed);
        while !done.load(Ordering::Relaxed) {
            for _ in 0..50 {
                let longest = if random.below(20) == 0 { 20_000 } else { 300 };
                let length = random.below(longest);
                writer.append(&vec![length as u8; length as usize]).unwrap();
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    })
}

#[test]
fn whatever_dies_the_copy_is_the_original_and_has_all_that_was_acknowledged() {
    kill_and_cut(&[]);
}

#[test]
fn whatever_dies_the_copy_is_the_original_over_tls_too() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "correct horse battery").unwrap();
    kill_and_cut(&["--secret-file", text(&secret)]);
}

/// Kill leader and follower and cut the connection, while writers write. Both have these options.
fn kill_and_cut(options: &[&str]) {
    let seed = seed();
    println!("MILLSTREAM_SEED={seed}");
    let mut random = Random::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let copy = folder.path().join("copy");
    fresh(&orders);
    let serve = [&[text(&orders)], options].concat();
    let mut leader = Leader::start(":0", &serve);
    let address = leader.address.clone();
    let proxy = Proxy::start(&address);
    let sync = |random: &mut Random| ["never", "10ms", "always"][random.below(3) as usize];
    let follow = |sync| {
        let sync = [&["--sync", sync], options].concat();
        Follower::start(&proxy.address, &copy, &sync)
    };
    let mut follower = follow(sync(&mut random));

    let done = Arc::<AtomicBool>::default();
    let acknowledged = Arc::<AtomicU64>::default();
    let waiting = waiting_writer(&orders, &done, &acknowledged);
    let eager = eager_writer(orders.clone(), Arc::clone(&done), seed);
    for round in 0..rounds() {
        let before = next(&copy);
        std::thread::sleep(Duration::from_millis(random.below(150)));
        match random.below(4) {
            0 => {
                follower.kill();
                follower = follow(sync(&mut random));
            }
            1 => {
                leader.kill();
                leader = Leader::start(&address, &serve);
            }
            2 => proxy.cut(),
            // In the middle of whatever is on its way, again and again.
            _ => {
                proxy
                    .cut_after
                    .store(1 + random.below(100_000), Ordering::Relaxed);
                proxy.cut();
                std::thread::sleep(Duration::from_millis(random.below(500)));
                proxy.cut_after.store(0, Ordering::Relaxed);
            }
        }
        let told = acknowledged.load(Ordering::SeqCst);
        let have = next(&copy);
        assert!(
            have >= told,
            "seed {seed}, round {round}: {told} acknowledged, {have} there"
        );
        until("progress", || next(&copy) > before);
    }
    done.store(true, Ordering::Relaxed);
    eager.join().unwrap();
    waiting.join().unwrap();
    until("the whole copy", || next(&copy) == next(&orders));
    interrupt(&follower.child);
    assert_eq!(
        follower.child.wait().unwrap().code(),
        Some(0),
        "{}",
        follower.said()
    );
    assert_same(&orders, &copy);
    assert!(acknowledged.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_follower_with_a_full_disk_continues_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let small = folder.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let Some(_mount) = Mount::tmpfs(&small) else {
        eprintln!("skipped: only root may mount");
        return;
    };
    let ballast = small.join("ballast");
    std::fs::write(&ballast, vec![1; 10 << 20]).unwrap();
    let copy = small.join("copy");
    fresh(&orders);
    let leader = Leader::start(":0", &[text(&orders)]);
    let mut follower = Follower::start(&leader.address, &copy, &[]);
    let writer = Journal::open(&orders, Options::default())
        .unwrap()
        .writer()
        .unwrap();
    for n in 0..3_000 {
        writer.append(&[n as u8; 1_000]).unwrap();
    }
    until("the full disk", || {
        follower.said().contains("the disk is full")
    });
    // The error is logged once, for any number of attempts, and the leader continues.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(
        follower.said().matches("the disk is full").count(),
        1,
        "{}",
        follower.said()
    );
    assert!(next(&copy) < 3_001);
    std::fs::remove_file(&ballast).unwrap();
    until("the whole copy", || next(&copy) == 3_001);
    interrupt(&follower.child);
    assert_eq!(follower.child.wait().unwrap().code(), Some(0));
    assert_same(&orders, &copy);
}

/// A small file system, as long as this lives.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=12m", "tmpfs"])
            .arg(at);
        let mounted = mount.stderr(Stdio::null()).status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Mount(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _status = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}
