//! The order in which inputs, schedule and outputs become durable, and followers of the outputs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_journal::{CursorMode, Journal, Options, Sync};
use millstream_service::{Meter, Service, Settings, Stop, publisher};
use millstream_wire::Cause;

use crate::desk::{Desk, Folder, Limits, Orders, Replies};

/// Records at each call the durable ends of its inputs and its schedule.
struct Looking {
    orders: Journal,
    /// The schedule of the service, once there is one.
    schedule: std::path::PathBuf,
    calls: u64,
    /// For each call: durable orders, durable entries of the schedule, all entries of it.
    seen: Arc<Mutex<Vec<(u64, u64, u64)>>>,
}

impl Orders for Looking {
    fn place(&mut self, _: &crate::desk::Order<'_>) -> Result<(), Cause> {
        self.calls += 1;
        let (durable, entries) = match Journal::open(&self.schedule, Options::read_only()) {
            Ok(schedule) => (schedule.durable(), schedule.next()?),
            Err(_) => (0, 0),
        };
        let mut seen = self.seen.lock().unwrap();
        seen.push((self.orders.durable(), durable, entries));
        Ok(())
    }
}

impl Limits for Looking {
    fn limit(&mut self, _: u64) {}
}

/// What a component with two inputs, or one, sees of its journals when its output has this `sync`.
fn seen(sync: Sync, inputs: usize) -> Vec<(u64, u64, u64)> {
    let folder = Folder::new();
    folder.orders(0..5);
    let options = Options::default().with_sync(sync);
    let output = Journal::open(folder.path("replies"), options).unwrap();
    let seen = Arc::default();
    let looking = Looking {
        orders: folder.journal("orders"),
        schedule: folder.path("replies.schedule"),
        calls: 0,
        seen: Arc::clone(&seen),
    };
    let service = Service::new(&output).unwrap();
    let mut setup = service
        .component(looking)
        .input::<dyn Orders>(&folder.journal("orders"))
        .unwrap();
    if inputs > 1 {
        let limits = folder.journal("limits");
        setup = setup.input::<dyn Limits>(&limits).unwrap();
    }
    let mut runner = setup.start(Settings::default()).unwrap();
    // The schema and five orders.
    assert_eq!(folder.journal("orders").next().unwrap(), 6);
    runner.drain().unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 5);
    seen.clone()
}

#[test]
fn with_sync_always_an_input_and_its_entry_are_durable_before_the_component_is_called() {
    for inputs in [1, 2] {
        for (call, (orders, durable, entries)) in (0u64..).zip(seen(Sync::Always, inputs)) {
            assert!(orders > call + 1, "order {} of {orders}", call + 1);
            assert_eq!(durable, entries, "of the schedule");
            // The announcement of the start; with several inputs, also an entry for each call.
            assert!(entries > if inputs > 1 { call + 1 } else { 0 });
        }
        // The control: without it nothing is.
        let last = *seen(Sync::Never, inputs).last().unwrap();
        assert!(last.0 == 0 && last.1 == 0 && last.2 > 0, "{last:?}");
    }
}

#[test]
fn snapshots_are_as_durable_as_the_outputs() {
    for (sync, durable) in [(Sync::Always, true), (Sync::Never, false)] {
        let folder = Folder::new();
        folder.orders(0..20);
        let options = Options::default().with_sync(sync);
        let output = Journal::open(folder.path("replies"), options).unwrap();
        let service = Service::new(&output).unwrap();
        let desk = Desk::new(service.publisher::<dyn Replies>().unwrap(), service.clock());
        let setup = service
            .component(desk)
            .snapshots_with(5, 1, |_| Ok(vec![1]), |_, _, _| Ok(()));
        let setup = setup
            .input::<dyn Orders>(&folder.journal("orders"))
            .unwrap();
        let mut runner = setup.start(Settings::default()).unwrap();
        runner.drain().unwrap();
        let kept = Journal::open(folder.path("replies.snapshots"), Options::read_only()).unwrap();
        let next = kept.next().unwrap();
        assert!(next >= 8);
        assert_eq!(kept.durable() == next, durable);
    }
}

#[test]
fn a_call_that_is_too_large_is_refused_and_the_next_one_is_recorded() {
    #[millstream_wire::interface]
    trait Notes {
        fn note(&mut self, text: &str);
    }
    let folder = Folder::new();
    let notes = folder.journal("notes");
    let mut publisher = publisher::<dyn Notes>(&notes).unwrap();
    publisher.note("first");
    publisher.note(&"large".repeat(4 << 20));
    publisher.note("last");
    let error = format!("{:?}", publisher.check().unwrap_err());
    assert!(
        error.starts_with("a record of ") && error.contains("is over the limit of"),
        "{error}"
    );
    // The schema, and two calls.
    assert_eq!(notes.next().unwrap(), 3);
    // Another machine leads: nothing can be recorded any more, and nothing is until that was asked for.
    assert!(notes.supersede(7).unwrap());
    publisher.note("lost");
    publisher.note("lost too");
    let error = format!("{:?}", publisher.check().unwrap_err());
    assert!(
        error.starts_with("2 calls were not published; the first: "),
        "{error}"
    );
}

#[test]
fn a_publisher_waits_for_its_followers() {
    let folder = Folder::new();
    let orders = folder.journal("orders");
    let outlet = millstream_service::Outlet::outside(&orders).unwrap();
    let outlet = outlet.followed(1, Duration::from_millis(5));
    let mut place = millstream_wire::Publisher::<dyn Orders, _>::new(outlet).unwrap();
    let order = crate::desk::Order {
        id: 1,
        symbol: "VOD.L",
        quantity: 1,
    };
    let error = place.place(&order).unwrap_err().to_string();
    assert!(
        error.starts_with("record 1 is in the journal, but 0 of 1"),
        "{error}"
    );
    let follower = orders
        .cursor("follower.backup", CursorMode::Shared)
        .unwrap();
    assert!(orders.admit_follower("backup").unwrap());
    let outlet = millstream_service::Outlet::outside(&orders).unwrap();
    let outlet = outlet.followed(1, Duration::from_secs(60));
    let mut place = millstream_wire::Publisher::<dyn Orders, _>::new(outlet).unwrap();
    std::thread::scope(|scope| {
        let placing = scope.spawn(move || place.place(&order));
        while orders.next().unwrap() < 4 {
            std::thread::yield_now();
        }
        assert!(!placing.is_finished(), "it waits for the follower");
        follower.set(4).unwrap();
        placing.join().unwrap().unwrap();
    });
}

#[test]
fn a_service_does_not_run_away_from_its_followers() {
    let folder = Folder::new();
    folder.orders(0..2_000);
    let output = folder.journal("replies");
    let follower = output
        .cursor("follower.backup", CursorMode::Shared)
        .unwrap();
    assert!(output.admit_follower("backup").unwrap());
    let stop = Stop::default();
    let meter = Arc::new(Meter::default());
    let stopped = stop.clone();
    let watched = Arc::clone(&meter);
    let settings = Settings {
        followers: 1,
        ..Settings::default()
    };
    let mut runner = folder.start("replies", settings).unwrap();
    let mut calls = 0;
    std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            while !runner.wait_followed(Duration::from_millis(1)).unwrap() {}
            while runner.turn().unwrap() != millstream_service::Outcome::Nothing {
                runner.write_to(&watched);
                while runner.is_ahead() && !runner.wait_followed(Duration::from_millis(1)).unwrap()
                {
                }
            }
            runner.run(&stopped).unwrap()
        });
        // It waits after 256 calls until the follower acknowledges.
        for expected in [256, 512] {
            while meter.read().report.calls < expected {
                std::thread::yield_now();
            }
            for _ in 0..1_000 {
                std::thread::yield_now();
                calls = meter.read().report.calls;
                assert_eq!(calls, expected);
            }
            // The schema and the orders of these calls.
            assert_eq!(meter.read().positions, Some(vec![expected + 1]));
            follower.set(output.next().unwrap()).unwrap();
        }
        while meter.read().report.calls < 2_000 {
            follower.set(output.next().unwrap()).unwrap();
        }
        stop.stop();
        calls = running.join().unwrap().calls;
    });
    assert_eq!(calls, 2_000);
}

#[test]
fn a_service_without_output_has_no_followers_to_wait_for() {
    let folder = Folder::new();
    folder.orders(0..1);
    drop(publisher::<dyn Orders>(&folder.journal("orders")).unwrap());
    let desk = Desk::new(
        millstream_wire::Publisher::<dyn Replies, _>::new(millstream_wire::Recorder::default())
            .unwrap(),
        Service::without_output().clock(),
    );
    let setup = Service::without_output().component(desk);
    let setup = setup
        .input::<dyn Orders>(&folder.journal("orders"))
        .unwrap();
    let settings = Settings {
        followers: 1,
        ..Settings::default()
    };
    let error = setup.start(settings).err().unwrap().to_string();
    assert!(error.contains("need an output journal"), "{error}");
}
