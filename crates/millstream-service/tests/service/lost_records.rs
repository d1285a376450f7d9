//! A journal that has lost its end is noticed at the start, and each way on that the error names leads to the right
//! state.

use std::path::Path;

use millstream_journal::{Journal, Options};
use millstream_service::{Runner, Service, ServiceError, Settings, publisher};
use millstream_wire::Call;

use crate::desk::{Folder, Rebuild, calls};

#[millstream_wire::interface]
trait Pay {
    fn pay(&mut self, amount: u64);
}

#[millstream_wire::interface]
trait Add {
    fn add(&mut self, amount: u64);
}

#[millstream_wire::interface]
trait Totals {
    fn total(&mut self, total: u64);
}

/// Adds up what both inputs say.
struct Sum<T> {
    totals: T,
    total: u64,
}

impl<T: Totals> Pay for Sum<T> {
    fn pay(&mut self, amount: u64) {
        self.total += amount;
        self.totals.total(self.total);
    }
}

impl<T: Totals> Add for Sum<T> {
    fn add(&mut self, amount: u64) {
        self.total += amount;
        self.totals.total(self.total);
    }
}

struct Heard(u64);

impl Totals for Heard {
    fn total(&mut self, total: u64) {
        self.0 = total;
    }
}

struct Summing<T> {
    sum: Sum<T>,
    heard: Heard,
}

impl<T: Totals> Pay for Summing<T> {
    fn pay(&mut self, amount: u64) {
        self.sum.total = self.sum.total.max(self.heard.0);
        self.sum.pay(amount);
    }
}

impl<T: Totals> Add for Summing<T> {
    fn add(&mut self, amount: u64) {
        self.sum.total = self.sum.total.max(self.heard.0);
        self.sum.add(amount);
    }
}

fn start(
    folder: &Folder,
    inputs: &[&str],
    rebuild: Rebuild,
) -> Result<Runner<impl Sized + use<>>, ServiceError> {
    let service = Service::new(&folder.journal("totals"))?;
    let sum = Sum {
        totals: service.publisher::<dyn Totals>().unwrap(),
        total: 0,
    };
    let mut setup = service.component(Summing {
        sum,
        heard: Heard(0),
    });
    for name in inputs {
        setup = match *name {
            "pay" => setup.input::<dyn Pay>(&folder.journal("pay"))?,
            _ => setup.input::<dyn Add>(&folder.journal("add"))?,
        };
    }
    let save = |sum: &mut Summing<_>| Ok(sum.sum.total.to_le_bytes().to_vec());
    let restore = |sum: &mut Summing<_>, state: &[u8], _| {
        sum.sum.total = u64::from_le_bytes(state.try_into().unwrap());
        Ok(())
    };
    setup = match rebuild {
        Rebuild::Snapshot => setup.snapshots_with(3, 1, save, restore),
        Rebuild::Outputs => setup.rebuild_from::<dyn Totals, _>(|sum| &mut sum.heard)?,
        Rebuild::Inputs | Rebuild::Nothing => setup,
    };
    setup.start(Settings {
        rebuild: rebuild != Rebuild::Nothing,
        ..Settings::default()
    })
}

fn pay(folder: &Folder, amounts: &[u64]) {
    let mut pay = publisher::<dyn Pay>(&folder.journal("pay")).unwrap();
    amounts.iter().for_each(|amount| pay.pay(*amount));
}

fn add(folder: &Folder, amounts: &[u64]) {
    let mut add = publisher::<dyn Add>(&folder.journal("add")).unwrap();
    amounts.iter().for_each(|amount| add.add(*amount));
}

fn run(folder: &Folder, inputs: &[&str], rebuild: Rebuild) {
    let mut runner = start(folder, inputs, rebuild).unwrap();
    runner.drain().unwrap();
}

fn totals(folder: &Folder) -> Vec<u64> {
    let total = |(_, call): (_, Call)| call.to_text().lines().last().map(str::to_owned);
    let texts = calls(&folder.journal("totals")).into_iter().map(total);
    let number = |text: Option<String>| {
        let text = text.unwrap();
        text.rsplit(' ').next().unwrap().parse().unwrap()
    };
    texts.map(number).collect()
}

fn cut(path: &Path, sequence: u64) {
    let options = Options {
        exclusive: true,
        ..Options::default()
    };
    Journal::open(path, options).unwrap().cut(sequence).unwrap();
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status();
    assert!(copied.unwrap().success());
}

/// The error of a start: journal, lost record, and up to where it is known to agree.
fn lost(folder: &Folder, inputs: &[&str], rebuild: Rebuild) -> (String, u64, u64) {
    let error = start(folder, inputs, rebuild).err().unwrap();
    let ServiceError::Lost {
        journal,
        sequence,
        confirmed,
        ..
    } = error
    else {
        unreachable!("{rebuild:?}: {error}");
    };
    let name = journal.rsplit('/').next().unwrap().to_owned();
    (name, sequence, confirmed)
}

/// The journals beside the output, which a service that begins anew must not find.
fn move_away(folder: &Folder) {
    for name in ["totals", "totals.schedule", "totals.snapshots"] {
        let path = folder.path(name);
        if path.exists() {
            std::fs::rename(&path, folder.path(&format!("{name}.old"))).unwrap();
        }
    }
}

#[test]
fn an_only_input_that_was_replaced_by_an_older_copy_is_noticed_before_and_after_new_calls() {
    for rebuild in Rebuild::ALL {
        let folder = Folder::new();
        pay(&folder, &[1; 5]);
        let input = folder.path("pay");
        let backup = folder.path("backup");
        copy(&input, &backup);
        pay(&folder, &[1; 5]);
        copy(&input, &folder.path("follower"));
        run(&folder, &["pay"], rebuild);
        std::fs::remove_dir_all(&input).unwrap();
        copy(&backup, &input);
        let end = folder.journal("pay").next().unwrap();
        let (journal, sequence, _) = lost(&folder, &["pay"], rebuild);
        assert_eq!(journal, "pay");
        assert!(sequence >= end, "{rebuild:?}: {sequence} {end}");

        // Publishers continue, and their calls get the numbers of the lost ones.
        pay(&folder, &[10; 8]);
        let (journal, sequence, confirmed) = lost(&folder, &["pay"], rebuild);
        assert_eq!(journal, "pay");
        assert!(confirmed <= end && sequence >= end, "{rebuild:?}");

        // The first way: a copy that has the records.
        let replaced = folder.path("replaced");
        std::fs::rename(&input, &replaced).unwrap();
        copy(&folder.path("follower"), &input);
        pay(&folder, &[100]);
        run(&folder, &["pay"], rebuild);
        let found = totals(&folder);
        assert_eq!(found.len(), 11, "{rebuild:?}");
        if rebuild != Rebuild::Nothing {
            let expected: Vec<u64> = (1..=10).chain([110]).collect();
            assert_eq!(found, expected, "{rebuild:?}");
        }

        // The second way: the service begins anew with what the input holds now.
        std::fs::remove_dir_all(&input).unwrap();
        std::fs::rename(&replaced, &input).unwrap();
        move_away(&folder);
        run(&folder, &["pay"], rebuild);
        let expected: Vec<u64> = (1..=5).chain((1..=8).map(|n| 5 + 10 * n)).collect();
        assert_eq!(totals(&folder), expected, "{rebuild:?}");
    }
}

#[test]
fn one_of_two_inputs_that_has_lost_its_end_is_noticed() {
    for rebuild in Rebuild::ALL {
        let folder = Folder::new();
        let both = ["pay", "add"];
        pay(&folder, &[1; 2]);
        add(&folder, &[100]);
        run(&folder, &both, rebuild);
        let end = folder.journal("add").next().unwrap();
        add(&folder, &[100; 2]);
        copy(&folder.path("add"), &folder.path("follower"));
        run(&folder, &both, rebuild);
        pay(&folder, &[1]);
        run(&folder, &both, rebuild);
        if rebuild != Rebuild::Nothing {
            assert_eq!(totals(&folder).last(), Some(&303), "{rebuild:?}");
        }
        let before = totals(&folder).len();
        // The last output is an effect of the other input.
        cut(&folder.path("add"), end);
        for grown in [false, true] {
            if grown {
                pay(&folder, &[1]);
                add(&folder, &[7; 9]);
            }
            let (journal, sequence, confirmed) = lost(&folder, &both, rebuild);
            assert_eq!((journal.as_str(), confirmed), ("add", end), "{rebuild:?}");
            assert!(sequence >= end);
        }
        std::fs::remove_dir_all(folder.path("add")).unwrap();
        copy(&folder.path("follower"), &folder.path("add"));
        run(&folder, &both, rebuild);
        let all = totals(&folder);
        assert_eq!(all.len(), before + 1);
        if rebuild != Rebuild::Nothing {
            assert_eq!(all.last(), Some(&304), "{rebuild:?}");
        }
        // Anew, with what is there.
        cut(&folder.path("add"), end);
        add(&folder, &[7; 9]);
        move_away(&folder);
        run(&folder, &both, rebuild);
        assert_eq!(totals(&folder).last(), Some(&(4 + 100 + 63)), "{rebuild:?}");
    }
}

#[test]
fn each_record_of_the_schedule_must_be_there() {
    // A power cut takes records from the end of one of two inputs at any place; positions are announced at the end
    // only.
    let whole = Folder::new();
    let both = ["pay", "add"];
    for n in 0..10 {
        pay(&whole, &[1]);
        add(&whole, &[10 + n]);
    }
    run(&whole, &both, Rebuild::Inputs);
    let expected = totals(&whole);
    for name in both {
        let end = whole.journal(name).next().unwrap();
        for at in 0..end {
            let folder = Folder::new();
            for copied in ["pay", "add", "totals", "totals.schedule"] {
                copy(&whole.path(copied), &folder.path(copied));
            }
            // Nothing but entries says how much was taken.
            let schedule = folder.journal("totals.schedule").next().unwrap();
            cut(&folder.path("totals.schedule"), schedule - 1);
            cut(&folder.path(name), at);
            let (journal, sequence, confirmed) = lost(&folder, &both, Rebuild::Inputs);
            assert_eq!((journal.as_str(), confirmed), (name, at));
            assert!(sequence >= at);
            // What is lost comes back.
            let publish = |amounts: &[u64]| match name {
                "pay" => pay(&folder, amounts),
                _ => add(&folder, amounts),
            };
            publish(&[1; 30]);
            let (journal, _, confirmed) = lost(&folder, &both, Rebuild::Inputs);
            assert_eq!((journal.as_str(), confirmed), (name, at));
        }
    }
    run(&whole, &both, Rebuild::Inputs);
    assert_eq!(totals(&whole), expected);
}

#[test]
fn positions_do_not_bind_when_the_outputs_before_them_are_lost_too() {
    for rebuild in [Rebuild::Inputs, Rebuild::Snapshot, Rebuild::Outputs] {
        let folder = Folder::new();
        pay(&folder, &[1; 4]);
        run(&folder, &["pay"], rebuild);
        let input = folder.journal("pay").next().unwrap();
        let output = folder.journal("totals").next().unwrap();
        pay(&folder, &[1; 4]);
        run(&folder, &["pay"], rebuild);
        // All that the service has done since is gone, with what made it do so.
        cut(&folder.path("pay"), input);
        cut(&folder.path("totals"), output);
        pay(&folder, &[10; 6]);
        for _ in 0..2 {
            run(&folder, &["pay"], rebuild);
        }
        let expected: Vec<u64> = (1..=4).chain((1..=6).map(|n| 4 + 10 * n)).collect();
        assert_eq!(totals(&folder), expected, "{rebuild:?}");
    }
}
