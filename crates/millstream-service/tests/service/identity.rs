//! Inputs are known by their identity: while they are empty, when they may only be read, and when copies disagree with
//! their original.

use std::time::Duration;

use millstream_journal::{Journal, Options};
use millstream_service::{Outcome, Runner, Service, ServiceError, Settings, publisher};
use millstream_wire::Cause;

use crate::desk::{Desk, Folder, Order, Orders, Replies, calls};

fn copy(folder: &Folder, from: &str, to: &str) {
    let from = folder.path(from);
    let to = folder.path(to);
    let mut folders = vec![(from, to)];
    while let Some((from, to)) = folders.pop() {
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push((entry.path(), target))
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }
}

fn start(folder: &Folder, input: &Journal) -> Result<Runner<impl Orders + use<>>, ServiceError> {
    let service = Service::new(&folder.journal("replies"))?;
    let replies = service.publisher::<dyn Replies>().unwrap();
    let desk = Desk::new(replies, service.clock());
    let setup = service.component(desk).input::<dyn Orders>(input)?;
    setup.start(Settings::default())
}

#[test]
fn an_empty_input_may_become_a_copy_while_the_service_runs() {
    let folder = Folder::new();
    folder.orders(0..10);
    let orders = folder.journal("orders");
    // The service is there before the follower, which makes the empty journal a copy.
    let waiting = folder.journal("waiting");
    let mut runner = start(&folder, &waiting).unwrap();
    assert_eq!(runner.drain().unwrap().calls, 0);
    waiting.become_copy(orders.lineage().unwrap()).unwrap();
    let writer = waiting.writer().unwrap();
    let mut reader = orders.reader().unwrap();
    while let Some(record) = reader.next().unwrap() {
        writer.append_at(record.time_ns, record.body).unwrap();
    }
    assert_eq!(runner.drain().unwrap().calls, 10);
    drop((runner, writer, waiting));
    let before = calls(&folder.journal("replies"));
    // It continues with the original as well.
    folder.orders(10..20);
    let report = start(&folder, &orders).unwrap().drain().unwrap();
    assert_eq!(report.calls, 20);
    let after = calls(&folder.journal("replies"));
    assert_eq!(after[..before.len()], before);
}

#[test]
fn the_outputs_name_an_empty_input_again_when_it_has_become_a_copy() {
    let folder = Folder::new();
    folder.orders(0..3);
    let orders = folder.journal("orders");
    let far = folder.journal("far");
    let place = |journal: &Journal, id| {
        let order = Order {
            id,
            symbol: "VOD.L",
            quantity: 100,
        };
        let mut orders = publisher::<dyn Orders>(journal).unwrap();
        orders.place(&order).unwrap();
    };
    place(&far, 10);
    let start = |other: &Journal| {
        let service = Service::new(&folder.journal("replies"))?;
        let replies = service.publisher::<dyn Replies>().unwrap();
        let desk = Desk::new(replies, service.clock());
        let setup = service.component(desk).input::<dyn Orders>(&orders)?;
        let setup = setup.input::<dyn Orders>(other)?;
        setup.start(Settings::default())
    };
    let waiting = folder.journal("waiting");
    let mut runner = start(&waiting).unwrap();
    // The names of both inputs are in the segment of the outputs before one of them is a copy.
    while runner.turn().unwrap() != Outcome::Nothing {}
    waiting.become_copy(far.lineage().unwrap()).unwrap();
    let writer = waiting.writer().unwrap();
    let mut reader = far.reader().unwrap();
    while let Some(record) = reader.next().unwrap() {
        writer.append_at(record.time_ns, record.body).unwrap();
    }
    while runner.turn().unwrap() != Outcome::Nothing {}
    drop((runner, writer, waiting));
    let before = calls(&folder.journal("replies"));
    // The last output is an effect of the copy, and the service resumes with the original.
    assert_eq!(before.last().unwrap().0.unwrap().input, 1);
    place(&far, 11);
    let report = start(&far).unwrap().drain().unwrap();
    assert_eq!(report.calls, 5);
    let after = calls(&folder.journal("replies"));
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), before.len() + 1);
}

#[test]
fn an_input_that_may_only_be_read_has_no_cursor() {
    let folder = Folder::new();
    folder.orders(0..10);
    let reading = Journal::open(folder.path("orders"), Options::read_only()).unwrap();
    let mut runner = start(&folder, &reading).unwrap();
    let [warning] = runner.warnings() else {
        panic!("{:?}", runner.warnings())
    };
    let expected = format!(
        "{}: may only be read, so no cursor keeps its records from being pruned",
        folder.path("orders").display()
    );
    assert_eq!(*warning, expected);
    assert_eq!(runner.drain().unwrap().calls, 10);
    drop(runner);
    assert!(folder.journal("orders").cursors().unwrap().is_empty());
    let runner = start(&folder, &folder.journal("orders")).unwrap();
    assert!(runner.warnings().is_empty());
    assert_eq!(folder.journal("orders").cursors().unwrap().len(), 1);
}

#[test]
fn a_service_with_an_older_copy_of_its_output_resumes_at_its_end() {
    for rebuild in [true, false] {
        let folder = Folder::new();
        let settings = Settings {
            rebuild,
            ..Settings::default()
        };
        // The last of them has one reply, whatever the state.
        folder.orders(0..11);
        let run = |output: &str| {
            let mut runner = folder.start(output, settings.clone()).unwrap();
            runner.drain().unwrap();
        };
        run("replies");
        copy(&folder, "replies", "backup");
        copy(&folder, "replies.schedule", "backup.schedule");
        folder.orders(11..20);
        run("replies");
        // The cursor on the input is after the records that the backup has taken.
        run("backup");
        let outputs = |name: &str| {
            let found = calls(&folder.journal(name)).into_iter();
            let ids = found.map(|(_, call)| call.arguments[0].clone());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(outputs("backup"), outputs("replies"), "rebuild {rebuild}");
    }
}

/// Answers with how often it was called by what.
struct Counter<R> {
    replies: R,
    orders: u64,
    ticks: u64,
}

impl<R: Replies> Orders for Counter<R> {
    fn place(&mut self, _: &Order<'_>) -> Result<(), Cause> {
        self.orders += 1;
        self.replies.accepted(self.orders, self.ticks);
        Ok(())
    }
}

#[test]
fn timers_are_known_by_their_names() {
    let folder = Folder::new();
    folder.orders(0..1);
    let start = |names: &[&str]| {
        let service = Service::new(&folder.journal("replies")).unwrap();
        let counter = Counter {
            replies: service.publisher::<dyn Replies>().unwrap(),
            orders: 0,
            ticks: 0,
        };
        let orders = folder.journal("orders");
        let mut setup = service.component(counter).input::<dyn Orders>(&orders);
        for name in names {
            let step = if *name == "beat" { 1 } else { 1_000_000 };
            setup = Ok(setup
                .unwrap()
                .every(name, Duration::from_millis(1), move |counter, _| {
                    counter.ticks += step;
                    Ok(())
                }));
        }
        setup.unwrap().start(Settings::default())
    };
    let mut runner = start(&["beat"]).unwrap();
    while runner.report().ticks < 5 {
        runner.turn().unwrap();
    }
    let ticks = runner.report().ticks;
    drop(runner);
    // A timer that is declared before it is not called instead.
    let mut runner = start(&["alarm", "beat"]).unwrap();
    assert_eq!(
        (runner.report().ticks, runner.component().ticks),
        (ticks, ticks)
    );
    drop(runner);
    let mut runner = start(&["alarm"]).unwrap();
    assert_eq!(runner.component().ticks, 0);
    drop(runner);
    let error = start(&["beat", "beat"]).err().unwrap();
    assert!(matches!(error, ServiceError::SameTimer { .. }), "{error}");
    // A publisher of its own is in no service's way.
    publisher::<dyn Orders>(&folder.journal("orders")).unwrap();
}

#[test]
fn an_input_that_another_journal_has_replaced_is_an_error() {
    let folder = Folder::new();
    folder.orders(0..3);
    start(&folder, &folder.journal("orders"))
        .unwrap()
        .drain()
        .unwrap();
    std::fs::rename(folder.path("orders"), folder.path("before")).unwrap();
    folder.orders(0..5);
    let error = start(&folder, &folder.journal("orders")).err().unwrap();
    let ServiceError::Replaced { taken, .. } = &error else {
        unreachable!("{error}");
    };
    assert_eq!(*taken, 4);
    // The advice of the message: the journal as it was, or another path for this one.
    start(&folder, &folder.journal("before")).unwrap();
    std::fs::rename(folder.path("orders"), folder.path("after")).unwrap();
    let mut runner = start(&folder, &folder.journal("after")).unwrap();
    assert_eq!(runner.drain().unwrap().calls, 5);
}

#[test]
fn an_input_that_was_replaced_before_a_record_was_taken_is_none() {
    let folder = Folder::new();
    drop(start(&folder, &folder.journal("orders")).unwrap());
    std::fs::remove_dir_all(folder.path("orders")).unwrap();
    folder.orders(0..5);
    let mut runner = start(&folder, &folder.journal("orders")).unwrap();
    assert_eq!(runner.drain().unwrap().calls, 5);
}
