//! After a loss of power a journal holds a prefix of what was appended, with everything that was durable: on a
//! simulated machine whose disk shows each page at a moment of its own.

use millstream_journal::storage::{Defect, Simulated, Storage};
use millstream_journal::{CursorMode, Host, Journal, Options, Retention, Sync, Writer};

use crate::support::{Random, small};

fn options(sync: Sync, boot: u128) -> Options {
    let time = std::sync::atomic::AtomicU64::new(1);
    let tick = move || time.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let host = Host::simulated(tick, move || boot as u64 * 7 + 1).with_boot(boot);
    Options {
        sync,
        host,
        ..small()
    }
}

/// The records of the journal, or the error.
fn contents(
    machine: &Simulated,
    boot: u128,
) -> Result<(u64, Vec<Vec<u8>>), millstream_journal::Error> {
    let journal = Journal::open_in(machine.process(), options(Sync::Never, boot))?;
    let mut reader = journal.reader()?;
    let first = reader.position();
    let mut bodies = Vec::new();
    while let Some(record) = reader.next()? {
        bodies.push(record.body.to_vec());
    }
    Ok((first, bodies))
}

/// Append something, or abandon a claim, or sync and record what is durable.
fn step(writer: &Writer<Simulated>, model: &mut Vec<Vec<u8>>, random: &mut Random) -> Option<u64> {
    match random.below(8) {
        0 => {
            let bodies: Vec<_> = (0..random.below(20)).map(|_| random.bytes(300)).collect();
            writer.append_many(&bodies).unwrap();
            model.extend(bodies);
        }
        1 => writer
            .claim(random.below(9_000) as usize)
            .unwrap()
            .fill(random.below(256) as u8),
        2 => return Some(writer.sync().unwrap()),
        _ => {
            let body = random.bytes(4_000);
            writer.append(&body).unwrap();
            model.push(body);
        }
    }
    None
}

/// One seeded life: appends, batches and abandoned claims, several losses of power, each with several states of the
/// disk. Returns how many records that were durable were missing, with a disk that syncs what it confirms or one that
/// does not.
fn live(seed: u64, lying: bool) -> u64 {
    let mut random = Random(seed);
    let mut machine = Simulated::new();
    if lying {
        machine.set_defect(Some(Defect::NoSyncs));
    }
    let mut model: Vec<Vec<u8>> = Vec::new();
    let mut lost = 0;
    for boot in 1..6_u128 {
        let sync = if random.below(2) == 0 {
            Sync::Always
        } else {
            Sync::Never
        };
        let process = machine.process();
        let journal = Journal::open_in(process.clone(), options(sync, boot * 100)).unwrap();
        let writer = journal.writer().unwrap();
        let mut durable = journal.durable().max(if sync == Sync::Always {
            model.len() as u64
        } else {
            0
        });
        for _ in 0..random.below(60) {
            if let Some(synced) = step(&writer, &mut model, &mut random) {
                durable = synced;
            }
            if sync == Sync::Always {
                durable = durable.max(journal.durable());
            }
        }
        // The process ends with the machine: it must not close the journal tidily.
        process.kill();
        drop((writer, journal));
        for state in 0..5 {
            let after = machine.lose_power(&mut |limit| random.below(limit));
            match contents(&after, boot * 100 + state + 1) {
                Ok((first, bodies)) => {
                    let count = bodies.len() as u64;
                    assert_eq!(first, 0);
                    assert!(model.starts_with(&bodies), "seed {seed}: not a prefix");
                    lost += durable.saturating_sub(count);
                }
                Err(error) if lying => {
                    drop(error);
                    lost += 1;
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
            if state == 4 {
                model.truncate(
                    contents(&after, boot * 100 + 6).map_or(0, |(_, bodies)| bodies.len()),
                );
                machine = after;
            }
        }
        if lying {
            break;
        }
    }
    lost
}

#[test]
fn what_was_durable_is_there_and_nothing_was_invented() {
    for seed in 1..60 {
        assert_eq!(live(seed, false), 0, "seed {seed}");
    }
}

#[test]
fn a_disk_that_confirms_what_it_did_not_write_is_detected() {
    let caught = (1..50).filter(|seed| live(*seed, true) > 0).count();
    assert!(caught > 25, "{caught} of 49");
}

#[test]
fn a_pruned_journal_has_no_gap_after_a_loss_of_power() {
    for seed in 1..60 {
        let mut random = Random(seed);
        let machine = Simulated::new();
        let process = machine.process();
        let journal = Journal::open_in(process.clone(), options(Sync::Always, 1)).unwrap();
        let bodies: Vec<_> = (0..300).map(|_| random.bytes(3_000)).collect();
        journal.writer().unwrap().append_many(&bodies).unwrap();
        let keep = Retention {
            bytes: Some((1 + random.below(5)) << 16),
            ..Retention::default()
        };
        process.kill_after(random.below(40));
        let pruned = journal.prune(&keep);
        process.kill();
        drop(journal);
        let after = machine.lose_power(&mut |limit| random.below(limit));
        let (first, found) =
            contents(&after, 2).unwrap_or_else(|error| panic!("seed {seed}: {error} ({pruned:?})"));
        assert_eq!(found, bodies[first as usize..], "seed {seed}");
    }
}

#[test]
fn what_an_interrupted_prune_leaves_is_synced_with_the_rest() {
    for seed in 1..150 {
        let mut random = Random(seed);
        let machine = Simulated::new();
        let one = machine.process();
        let other = machine.process();
        let journal = Journal::open_in(one.clone(), options(Sync::Never, 1)).unwrap();
        let mut bodies: Vec<_> = (0..200).map(|_| random.bytes(3_000)).collect();
        journal.writer().unwrap().append_many(&bodies).unwrap();
        let open = || Journal::open_in(other.clone(), options(Sync::Never, 1)).unwrap();
        // A process that had it open already, or one that opens it when none has.
        let was_open = (random.below(2) == 0).then(open);
        let keep = Retention {
            bytes: Some((1 + random.below(5)) << 16),
            ..Retention::default()
        };
        one.kill_after(random.below(40));
        let _outcome = journal.prune(&keep);
        one.kill();
        drop(journal);
        let goes_on = was_open.unwrap_or_else(open);
        let is_synced = random.below(2) == 0;
        if is_synced {
            let writer = goes_on.writer().unwrap();
            bodies.push(b"behind it".to_vec());
            writer.append(&bodies[200]).unwrap();
            assert_eq!(writer.sync().unwrap(), 201);
        }
        other.kill();
        drop(goes_on);
        let after = machine.lose_power(&mut |limit| random.below(limit));
        let (first, found) =
            contents(&after, 2).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(bodies[first as usize..].starts_with(&found), "seed {seed}");
        assert!(
            !is_synced || first as usize + found.len() == 201,
            "seed {seed}: {first} and {} more",
            found.len()
        );
    }
}

#[test]
fn a_cut_is_complete_or_not_made() {
    let mut outcomes = [0; 2];
    for seed in 1..150 {
        let mut random = Random(seed);
        let machine = Simulated::new();
        let process = machine.process();
        let exclusive = Options {
            exclusive: true,
            ..options(Sync::Always, 1)
        };
        let journal = Journal::open_in(process.clone(), exclusive).unwrap();
        let bodies: Vec<_> = (0..100).map(|_| random.bytes(4_000)).collect();
        journal.writer().unwrap().append_many(&bodies).unwrap();
        let cut = random.below(100) as usize;
        let stores = [12, 30_000][random.below(2) as usize];
        process.kill_after(random.below(stores));
        let _outcome = journal.cut(cut as u64);
        process.kill();
        drop(journal);
        // Once a cut has begun, an interrupted one is ended, and the end survives another loss of power.
        let after = machine.lose_power(&mut |limit| random.below(limit));
        let (_, found) = contents(&after, 2).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(
            found == bodies || found == bodies[..cut],
            "seed {seed}: {} of {cut}",
            found.len()
        );
        outcomes[usize::from(found == bodies)] += 1;
        let again = after.lose_power(&mut |limit| random.below(limit));
        assert_eq!(
            contents(&again, 3).unwrap().1.len(),
            found.len(),
            "seed {seed}"
        );
    }
    assert!(outcomes.iter().all(|count| *count > 5), "{outcomes:?}");
}

#[test]
fn a_journal_that_was_closed_keeps_its_watermark() {
    let machine = Simulated::new();
    let journal = Journal::open_in(machine.process(), options(Sync::Always, 1)).unwrap();
    journal.writer().unwrap().append(&[1; 100]).unwrap();
    drop(journal);
    let after = machine.lose_power(&mut |limit| limit - 1);
    // The last record that was synced is damaged on the disk: that is no torn end.
    let name = "segment-0000000000.log";
    assert!(after.process().list("").unwrap().contains(&name.to_owned()));
    assert!(after.damage(name, 8_192 + 40, |byte| byte ^ 1));
    let error = contents(&after, 2).unwrap_err();
    assert!(error.to_string().contains(name), "{error}");
}

#[test]
fn a_time_between_syncs_bounds_what_is_lost() {
    for seed in 1..40 {
        let mut random = Random(seed);
        let machine = Simulated::new();
        let process = machine.process();
        // Every look at the clock is a microsecond later; an append looks twice.
        let every = std::time::Duration::from_micros(20);
        let journal =
            Journal::open_in(process.clone(), options_ticking(Sync::Every(every))).unwrap();
        let writer = journal.writer().unwrap();
        let appended = 100 + random.below(100);
        for _ in 0..appended {
            writer.append(&random.bytes(500)).unwrap();
        }
        process.kill();
        drop((writer, journal));
        let after = machine.lose_power(&mut |limit| random.below(limit));
        let (_, found) = contents(&after, 2).unwrap();
        let lost = appended - found.len() as u64;
        assert!(lost <= 20, "seed {seed}: {lost} of {appended}");
    }
}

fn options_ticking(sync: Sync) -> Options {
    let time = std::sync::atomic::AtomicU64::new(1);
    let tick = move || time.fetch_add(1_000, std::sync::atomic::Ordering::Relaxed);
    Options {
        sync,
        host: Host::simulated(tick, || 1),
        ..small()
    }
}

#[test]
fn a_cursor_is_not_ahead_of_records_that_were_lost() {
    let mut ahead = 0;
    for seed in 1..40 {
        let mut random = Random(seed);
        let machine = Simulated::new();
        let process = machine.process();
        let journal = Journal::open_in(process.clone(), options(Sync::Never, 1)).unwrap();
        let cursor = journal.cursor("follower", CursorMode::Shared).unwrap();
        journal.writer().unwrap().append_many(["old"; 100]).unwrap();
        cursor.set(100).unwrap();
        cursor.sync().unwrap();
        process.kill();
        drop((cursor, journal));

        let after = machine.lose_power(&mut |limit| random.below(limit));
        let journal = Journal::open_in(after.process(), options(Sync::Never, 2)).unwrap();
        let end = journal.next().unwrap();
        ahead += u64::from(end < 100);
        journal.writer().unwrap().append_many(["new"; 200]).unwrap();
        let found = journal.cursors().unwrap()[0].position;
        assert!(found <= end, "seed {seed}: {found} of {end}");
    }
    assert!(ahead > 10, "records were lost in {ahead} of 39");
}

/// What is synced in a directory whose own entry is not would be lost with it.
#[test]
fn a_new_journal_is_found_after_a_loss_of_power() {
    for seed in 1..50 {
        let machine = Simulated::new();
        let queue = machine.folder("queue");
        for storage in [machine.process(), queue.clone()] {
            let journal = Journal::open_in(storage, options(Sync::Always, 1)).unwrap();
            journal.writer().unwrap().append(b"acknowledged").unwrap();
        }
        let mut random = Random(seed);
        let after = machine.lose_power(&mut |limit| random.below(limit));
        for storage in [after.process(), after.folder("queue")] {
            let options = Options {
                create: false,
                ..options(Sync::Never, 2)
            };
            let journal = Journal::open_in(storage, options).unwrap();
            assert_eq!(journal.next().unwrap(), 1, "seed {seed}");
        }
    }
}
