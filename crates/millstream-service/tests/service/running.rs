//! What a service records, how it is stopped, and where its records come from.

use std::time::Duration;

use millstream_journal::{Options, Wait};
use millstream_service::{
    Answered, Caller, Effects, OnError, Service, ServiceError, Settings, Stop, history, publisher,
};
use millstream_wire::Lineage;

use crate::desk::{Desk, Folder, Limits, Order, Orders, Replies, calls};

#[test]
fn each_output_names_the_input_that_caused_it() {
    let folder = Folder::new();
    folder.orders(0..3);
    let report = folder
        .start("replies", Settings::default())
        .unwrap()
        .drain()
        .unwrap();
    assert_eq!(report.calls, 3);
    let outputs = calls(&folder.journal("replies"));
    let orders = folder.journal("orders");
    let from = |sequence| {
        let checksum = orders.bookmark(sequence + 1).unwrap().checksum.unwrap();
        Some(Lineage {
            input: 0,
            sequence,
            checksum,
        })
    };
    let found: Vec<_> = outputs
        .iter()
        .map(|(lineage, call)| (*lineage, call.method.as_str()))
        .collect();
    // The first record of the orders is their schema.
    let expected = [
        (from(1), "accepted"),
        (from(2), "accepted"),
        (from(3), "accepted"),
        (from(3), "summary"),
    ];
    assert_eq!(found, expected);

    let replies = folder.path("replies");
    let hops = history(&replies, folder.journal("replies").next().unwrap() - 1, &[]).unwrap();
    let texts: Vec<String> = hops
        .iter()
        .map(|hop| hop.call.as_ref().unwrap().to_text())
        .collect();
    assert_eq!(hops[1].journal, folder.path("orders").display().to_string());
    assert_eq!((hops.len(), hops[1].sequence), (2, 3));
    assert!(
        texts[0].starts_with("summary:") && texts[1].starts_with("place:"),
        "{texts:?}"
    );
    assert!(hops[1].time_ns <= hops[0].time_ns);
}

#[test]
fn a_service_runs_until_it_is_stopped() {
    for wait in [Wait::Spin, Wait::BackOff, Wait::Block] {
        let folder = Folder::new();
        folder.orders(0..5);
        let stop = Stop::default();
        let settings = Settings {
            wait,
            ..Settings::default()
        };
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                folder
                    .start("replies", settings)
                    .unwrap()
                    .run(&stop)
                    .unwrap()
            });
            folder.orders(5..10);
            let replies = folder.journal("replies");
            let mut reader = replies.reader().unwrap();
            // Ten orders: nine replies, three summaries, and a schema.
            for _ in 0..13 {
                assert!(
                    reader
                        .wait(Wait::Block, Some(Duration::from_secs(20)))
                        .unwrap()
                );
                reader.next().unwrap();
            }
            stop.stop();
            assert_eq!(running.join().unwrap().calls, 10);
        });
    }
}

#[test]
fn a_second_service_on_one_output_is_refused() {
    let folder = Folder::new();
    folder.orders(0..1);
    let first = folder.start("replies", Settings::default()).unwrap();
    let error = folder.start("replies", Settings::default()).err().unwrap();
    assert!(matches!(error, ServiceError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("replies"), "{error}");
    drop(first);
    folder.start("replies", Settings::default()).unwrap();
}

#[test]
fn timers_fire_by_the_recorded_clock() {
    let folder = Folder::new();
    folder.orders(0..1);
    let run = || {
        let service = Service::new(&folder.journal("replies")).unwrap();
        let replies = service.publisher::<dyn Replies>().unwrap();
        let desk = Desk::new(replies, service.clock());
        let setup = service
            .component(desk)
            .input::<dyn Orders>(&folder.journal("orders"))
            .unwrap();
        let setup = setup.every("summary", Duration::from_millis(1), |desk, at| {
            assert_eq!(at, desk.clock.now_ns());
            desk.replies.summary(desk.accepted, at);
            Ok(())
        });
        let mut runner = setup.start(Settings::default()).unwrap();
        let before = runner.report().ticks;
        while runner.report().ticks < before + 3 {
            runner.turn().unwrap();
        }
        runner.report().ticks
    };
    assert_eq!(run(), 3);
    let first = calls(&folder.journal("replies"));
    // The second start calls the component with the three ticks again, and their outputs are held back.
    assert_eq!(run(), 6);
    let second = calls(&folder.journal("replies"));
    assert_eq!(second[..first.len()], first);
    let ticks = second
        .iter()
        .filter(|(_, call)| call.method == "summary")
        .count();
    assert_eq!(ticks, 6);
}

#[test]
fn inputs_are_merged_by_time() {
    let folder = Folder::new();
    let limits = folder.journal("limits");
    folder.orders(0..2);
    publisher::<dyn Limits>(&limits).unwrap().limit(0);
    folder.orders(2..4);
    let service = Service::new(&folder.journal("replies")).unwrap();
    let desk = Desk::new(service.publisher::<dyn Replies>().unwrap(), service.clock());
    let setup = service
        .component(desk)
        .input::<dyn Limits>(&limits)
        .unwrap();
    let setup = setup
        .input::<dyn Orders>(&folder.journal("orders"))
        .unwrap();
    setup.start(Settings::default()).unwrap().drain().unwrap();
    let outputs = calls(&folder.journal("replies"));
    let methods: Vec<&str> = outputs
        .iter()
        .map(|(_, call)| call.method.as_str())
        .collect();
    assert_eq!(methods, ["accepted", "accepted", "rejected", "rejected"]);
}

#[test]
fn segments_can_be_read_without_those_before_them() {
    let folder = Folder::new();
    folder.orders(0..20_000);
    folder
        .start(
            "replies",
            Settings {
                on_error: OnError::Fail,
                ..Settings::default()
            },
        )
        .unwrap()
        .drain()
        .unwrap();
    let retention = millstream_journal::Retention {
        bytes: Some(1 << 17),
        ..Default::default()
    };
    for name in ["orders", "replies"] {
        let journal = folder.journal(name);
        journal.prune(&retention).unwrap();
        assert!(journal.first().unwrap() > 0, "{name}");
        assert!(
            !calls(
                &millstream_journal::Journal::open(folder.path(name), Options::read_only())
                    .unwrap()
            )
            .is_empty()
        );
    }
}

#[test]
fn a_caller_receives_the_first_output_of_its_call() {
    let folder = Folder::new();
    folder.orders(0..1);
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut runner = folder.start("replies", Settings::default()).unwrap();
            runner.run(&stop).unwrap()
        });
        let orders = folder.journal("orders");
        let replies = folder.journal("replies");
        let mut desk = Caller::<dyn Orders>::new(&orders, &replies).unwrap();
        let limit = Duration::from_secs(20);
        let place = |id, symbol: &'static str| {
            move |orders: &mut millstream_wire::Publisher<
                dyn Orders,
                millstream_service::Outlet,
            >| {
                let order = Order {
                    id,
                    symbol,
                    quantity: 100,
                };
                orders.place(&order)
            }
        };
        for id in 1..4 {
            let answer = desk.call(limit, place(id, "VOD.L")).unwrap();
            let Answered::Call { call, .. } = answer else {
                unreachable!("{answer:?}");
            };
            assert_eq!(call.method, "accepted");
            assert!(
                call.to_text().contains(&format!("id: {id}\n")),
                "{}",
                call.to_text()
            );
        }
        // Order 6 has no output, and nothing follows it.
        let answer = desk
            .call(Duration::from_millis(20), place(6, "VOD.L"))
            .unwrap();
        assert_eq!(answer, Answered::Late);
        let mut effects = Effects::of(&replies, 0).unwrap();
        let sixth = orders.next().unwrap() - 1;
        desk.call(limit, place(7, "VOD.L")).unwrap();
        let answer = effects.answer(&orders, sixth, limit).unwrap();
        assert_eq!(answer, Answered::Nothing);
        assert!(desk.call(limit, |_| ()).is_err());
        stop.stop();
        running.join().unwrap();
    });
}
