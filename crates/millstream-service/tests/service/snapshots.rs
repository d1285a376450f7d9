//! States from snapshots and from outputs: wherever a service ends, the outputs are those of an uninterrupted run.

use millstream_journal::{Journal, Options, Retention};
use millstream_service::{
    Clock, Runner, Service, ServiceError, Settings, Setup, Snapshot, publisher,
};
use millstream_wire::{Call, Cause, Record, packed, unpacked};

use crate::desk::{Desk, Folder, Limits, Order, Orders, Replies, calls};

impl<R> Snapshot for Desk<R> {
    fn snapshot(&self) -> Result<Vec<u8>, Cause> {
        Ok(packed(&vec![self.limit, self.total, self.accepted])?)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Cause> {
        let numbers: Vec<u64> = unpacked(state)?;
        let [limit, total, accepted] = numbers[..] else {
            return Err("not the three numbers of a desk".into());
        };
        (self.limit, self.total, self.accepted) = (limit, total, accepted);
        Ok(())
    }
}

/// Calls without the times at which they were written.
fn outputs(journal: &Journal) -> Vec<Call> {
    let calls = calls(journal).into_iter().map(|(_, mut call)| {
        call.arguments.retain(|(name, _)| name != "at");
        call
    });
    calls.collect()
}

fn setup(folder: &Folder) -> Setup<impl Orders + Limits + Snapshot + use<>> {
    let service = Service::new(&folder.journal("replies")).unwrap();
    let replies = service.publisher::<dyn Replies>().unwrap();
    let desk = Desk::new(replies, service.clock());
    service.component(desk)
}

/// A desk with one input, or with limits beside it, that keeps its state every few calls.
fn start(folder: &Folder, several: bool, every: u64) -> Runner<impl Orders + use<>> {
    let mut setup = setup(folder).snapshots(every);
    if several {
        setup = setup
            .input::<dyn Limits>(&folder.journal("limits"))
            .unwrap();
    }
    let setup = setup
        .input::<dyn Orders>(&folder.journal("orders"))
        .unwrap();
    setup.start(Settings::default()).unwrap()
}

fn cut(folder: &Folder, name: &str, sequence: u64) {
    let options = Options {
        exclusive: true,
        ..Options::default()
    };
    let journal = Journal::open(folder.path(name), options).unwrap();
    journal.cut(sequence).unwrap();
}

fn limit(folder: &Folder, quantity: u64) {
    let mut limits = publisher::<dyn Limits>(&folder.journal("limits")).unwrap();
    limits.limit(quantity);
}

/// The journals of two folders differ in their times only.
fn feed(folder: &Folder, part: u64) {
    folder.orders(part * 30..(part + 1) * 30);
    if part % 2 == 1 {
        limit(folder, 10_000 + part * 500);
    }
}

#[test]
fn a_service_interrupted_anywhere_resumes_as_if_it_had_not_been() {
    for several in [false, true] {
        let whole = Folder::new();
        for part in 0..6 {
            feed(&whole, part);
            start(&whole, several, u64::MAX).drain().unwrap();
        }
        let expected = outputs(&whole.journal("replies"));
        for seed in 0..12_u64 {
            let folder = Folder::new();
            for part in 0..6 {
                feed(&folder, part);
                // Some turns, and then it is gone: no snapshot at the end, which `drain` would make.
                let mut broken = start(&folder, several, 1 + seed % 7);
                for _ in 0..(seed * 13 + part * 5) % 37 {
                    broken.turn().unwrap();
                }
                drop(broken);
                start(&folder, several, 3 + seed % 5).drain().unwrap();
            }
            assert_eq!(
                outputs(&folder.journal("replies")),
                expected,
                "several {several}, seed {seed}"
            );
        }
    }
}

#[test]
fn a_start_repeats_only_what_came_after_the_snapshot() {
    let folder = Folder::new();
    folder.orders(0..100);
    start(&folder, false, 30).drain().unwrap();
    // The end of a run makes a snapshot too: no call is repeated.
    assert_eq!(start(&folder, false, 30).report().calls, 0);
    folder.orders(100..105);
    let mut runner = start(&folder, false, 30);
    for _ in 0..5 {
        runner.turn().unwrap();
    }
    drop(runner);
    // Of the five, the last one has no output: it is not repeated, but taken.
    let mut runner = start(&folder, false, 30);
    assert_eq!(runner.report().calls, 4);
    assert_eq!(runner.drain().unwrap().calls, 5);
}

#[test]
fn a_snapshot_lets_inputs_be_removed() {
    let folder = Folder::new();
    folder.orders(0..20_000);
    start(&folder, false, 5_000).drain().unwrap();
    let retention = Retention {
        bytes: Some(1 << 17),
        ..Retention::default()
    };
    folder.journal("orders").prune(&retention).unwrap();
    assert!(folder.journal("orders").first().unwrap() > 0);
    folder.orders(20_000..20_010);
    let report = start(&folder, false, 5_000).drain().unwrap();
    assert_eq!(report.calls, 10);
}

#[test]
fn a_snapshot_that_is_ahead_of_the_outputs_is_passed_over() {
    let folder = Folder::new();
    folder.orders(0..40);
    start(&folder, false, 10).drain().unwrap();
    let expected = outputs(&folder.journal("replies"));
    let end = folder.journal("replies").next().unwrap();
    for left in (1..end).rev() {
        cut(&folder, "replies", left);
        start(&folder, false, 10).drain().unwrap();
        assert_eq!(
            outputs(&folder.journal("replies")),
            expected,
            "cut at {left}"
        );
    }
}

#[test]
fn a_state_that_does_not_fit_is_reported_with_its_place() {
    struct Other;
    impl Orders for Other {
        fn place(&mut self, _: &Order<'_>) -> Result<(), Cause> {
            Ok(())
        }
    }
    impl Snapshot for Other {
        fn snapshot(&self) -> Result<Vec<u8>, Cause> {
            Err("too large".into())
        }
        fn restore(&mut self, _: &[u8]) -> Result<(), Cause> {
            Err("no state of mine".into())
        }
    }
    let folder = Folder::new();
    folder.orders(0..40);
    start(&folder, false, 10).drain().unwrap();
    let begin = |output: &str| {
        let service = Service::new(&folder.journal(output)).unwrap();
        let setup = service.component(Other).snapshots(10);
        let setup = setup.input::<dyn Orders>(&folder.journal("orders"));
        setup.unwrap().start(Settings::default())
    };
    let error = format!("{:?}", begin("replies").err().unwrap());
    assert!(
        error.contains("replies.snapshots, record ") && error.contains(": no state of mine"),
        "{error}"
    );
    let error = format!("{:?}", begin("others").unwrap().drain().unwrap_err());
    assert!(
        error.ends_with("others: no snapshot could be made: too large"),
        "{error}"
    );
    let setup = Service::without_output().component(Other).snapshots(10);
    let error = setup.start(Settings::default()).err().unwrap();
    assert!(matches!(error, ServiceError::NoOutput), "{error}");
}

/// Counts, and says so in its output, from which the count can be taken again.
struct Counter<R> {
    counted: Counted,
    replies: R,
    clock: Clock,
}

#[derive(Default)]
struct Counted {
    accepted: u64,
    total: u64,
}

impl<R: Replies> Orders for Counter<R> {
    fn place(&mut self, order: &Order<'_>) -> Result<(), Cause> {
        self.counted.total += u64::from(order.quantity);
        self.replies.accepted(order.id, self.counted.total);
        self.counted.accepted += 1;
        self.replies
            .summary(self.counted.accepted, self.clock.now_ns());
        Ok(())
    }
}

impl Replies for Counted {
    fn accepted(&mut self, _: u64, total: u64) {
        self.total = total;
    }
    fn rejected(&mut self, _: u64, _: &str, _: i64) {}
    fn summary(&mut self, accepted: u64, _: i64) {
        self.accepted = accepted;
    }
}

#[test]
fn a_state_comes_back_from_the_outputs_wherever_they_end() {
    let folder = Folder::new();
    let start = || {
        let service = Service::new(&folder.journal("replies")).unwrap();
        let counter = Counter {
            counted: Counted::default(),
            replies: service.publisher::<dyn Replies>().unwrap(),
            clock: service.clock(),
        };
        let setup = service.component(counter);
        let setup = setup
            .input::<dyn Orders>(&folder.journal("orders"))
            .unwrap();
        let setup = setup.rebuild_from::<dyn Replies, _>(|counter| &mut counter.counted);
        setup.unwrap().start(Settings::default()).unwrap()
    };
    folder.orders(0..50);
    start().drain().unwrap();
    let expected = outputs(&folder.journal("replies"));
    assert_eq!(expected.len(), 100);
    let end = folder.journal("replies").next().unwrap();
    for left in (1..end).rev() {
        cut(&folder, "replies", left);
        start().drain().unwrap();
        assert_eq!(
            outputs(&folder.journal("replies")),
            expected,
            "cut at {left}"
        );
    }
}

#[test]
fn two_interfaces_on_one_journal_are_one_input() {
    let folder = Folder::new();
    let start = || {
        let both = folder.journal("both");
        let setup = setup(&folder).input::<dyn Limits>(&both).unwrap();
        setup
            .input::<dyn Orders>(&both)
            .unwrap()
            .start(Settings::default())
            .unwrap()
    };
    let both = folder.journal("both");
    let mut orders = publisher::<dyn Orders>(&both).unwrap();
    let mut limits = publisher::<dyn Limits>(&both).unwrap();
    for id in 0..30 {
        let order = Order {
            id,
            symbol: "VOD.L",
            quantity: 100,
        };
        orders.place(&order).unwrap();
        limits.limit(1_000 + id * 60);
    }
    start().drain().unwrap();
    let expected = outputs(&folder.journal("replies"));
    assert!(expected.iter().any(|call| call.method == "rejected"));
    let schedule = folder.journal("replies.schedule");
    let mut reader = schedule.reader().unwrap();
    while let Some(record) = reader.next().unwrap() {
        let is_note = matches!(Record::read(record.body), Ok(Record::Note(_)));
        assert!(is_note, "one input has an order of its own");
    }
    drop((reader, schedule));
    for left in [1, 9, 20] {
        cut(&folder, "replies", left);
        start().drain().unwrap();
        assert_eq!(
            outputs(&folder.journal("replies")),
            expected,
            "cut at {left}"
        );
    }
}

/// A desk of the next version, which counts its starts.
struct Next<const MIGRATES: bool> {
    total: u64,
}

impl<const MIGRATES: bool> Orders for Next<MIGRATES> {
    fn place(&mut self, order: &Order<'_>) -> Result<(), Cause> {
        self.total += u64::from(order.quantity);
        Ok(())
    }
}

impl<const MIGRATES: bool> Snapshot for Next<MIGRATES> {
    const VERSION: u64 = 2;

    fn snapshot(&self) -> Result<Vec<u8>, Cause> {
        Ok(packed(&self.total)?)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Cause> {
        self.total = unpacked(state)?;
        Ok(())
    }

    fn migrate(state: &[u8], version: u64) -> Result<Vec<u8>, Cause> {
        if !MIGRATES {
            return Err(format!("version {version} is not known").into());
        }
        let numbers: Vec<u64> = unpacked(state)?;
        // So that a total which was migrated differs from one that was rebuilt.
        Ok(packed(&(numbers[1] + 1))?)
    }
}

fn next<const MIGRATES: bool>(folder: &Folder) -> Result<Runner<Next<MIGRATES>>, ServiceError> {
    let service = Service::new(&folder.journal("replies")).unwrap();
    let setup = service.component(Next { total: 0 }).snapshots(10);
    let setup = setup.input::<dyn Orders>(&folder.journal("orders"));
    setup.unwrap().start(Settings::default())
}

/// A service without outputs: the two versions agree in them.
fn quiet(folder: &Folder, count: u64) {
    let order = Order {
        id: 6,
        symbol: "VOD.L",
        quantity: 1,
    };
    let mut orders = publisher::<dyn Orders>(&folder.journal("orders")).unwrap();
    for _ in 0..count {
        orders.place(&order).unwrap();
    }
    start(folder, false, 10).drain().unwrap();
}

#[test]
fn a_state_of_another_version_is_migrated_or_rebuilt() {
    let folder = Folder::new();
    quiet(&folder, 20);
    let mut migrated = next::<true>(&folder).unwrap();
    assert_eq!(
        (migrated.component().total, migrated.warnings().len()),
        (21, 0)
    );
    drop(migrated);
    let mut rebuilt = next::<false>(&folder).unwrap();
    assert_eq!(rebuilt.component().total, 20);
    let [warning] = rebuilt.warnings() else {
        unreachable!("{:?}", rebuilt.warnings());
    };
    let end =
        "the state cannot be read: version 1 is not known: the state is rebuilt from the inputs";
    assert!(warning.ends_with(end), "{warning}");
    // The next start has the snapshot of this version.
    rebuilt.drain().unwrap();
    let mut orders = publisher::<dyn Orders>(&folder.journal("orders")).unwrap();
    let order = Order {
        id: 6,
        symbol: "VOD.L",
        quantity: 1,
    };
    orders.place(&order).unwrap();
    rebuilt.drain().unwrap();
    drop(rebuilt);
    let mut again = next::<false>(&folder).unwrap();
    assert_eq!((again.component().total, again.warnings().len()), (21, 0));
}

#[test]
fn a_state_that_nothing_restores_says_what_to_remove() {
    let folder = Folder::new();
    quiet(&folder, 10_000);
    let retention = Retention {
        bytes: Some(1 << 16),
        ..Retention::default()
    };
    let orders = folder.journal("orders");
    orders.prune(&retention).unwrap();
    let first = orders.first().unwrap();
    assert!(first > 0);
    let error = next::<false>(&folder).err().unwrap();
    assert!(matches!(error, ServiceError::NoState { .. }), "{error}");
    let snapshots = folder.path("replies.snapshots");
    let advice = format!(
        "remove the directory {} and start with Settings::skip_pruned",
        snapshots.display()
    );
    assert!(error.to_string().contains(&advice), "{error}");
    std::fs::remove_dir_all(snapshots).unwrap();
    let service = Service::new(&folder.journal("replies")).unwrap();
    let setup = service.component(Next::<false> { total: 0 }).snapshots(10);
    let settings = Settings {
        skip_pruned: true,
        ..Settings::default()
    };
    let setup = setup.input::<dyn Orders>(&orders).unwrap();
    let mut runner = setup.start(settings).unwrap();
    runner.drain().unwrap();
    assert!(runner.component().total < 10_000);
}
