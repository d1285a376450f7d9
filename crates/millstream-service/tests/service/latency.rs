//! Latencies hop by hop, compared with the times of all records.

use std::time::Duration;

use millstream_journal::{Journal, Options};
use millstream_service::{Latencies, Outcome, Service, Settings, call_times, history, latency};
use millstream_wire::{Cause, Timestamp};

use crate::desk::{Desk, Folder, Limits, Order, Orders, Replies};

/// Takes the answers of the desk, and says something of each.
struct Watch<R>(R);

#[millstream_wire::interface]
trait Seen {
    fn seen(&mut self, id: u64, at: Timestamp);
}

impl<R: Seen> Replies for Watch<R> {
    fn accepted(&mut self, id: u64, _: u64) {
        self.0.seen(id, Timestamp(0));
    }

    fn rejected(&mut self, id: u64, _: &str, _: i64) {
        self.0.seen(id, Timestamp(0));
    }

    fn summary(&mut self, _: u64, _: i64) {}
}

/// Orders and limits to a desk, whose answers go to a watch; all in segments that roll.
fn run(folder: &Folder, limits: bool) {
    for ids in [0..40, 40..90] {
        folder.orders(ids);
        let service = Service::new(&folder.journal("replies")).unwrap();
        let desk = Desk::new(service.publisher::<dyn Replies>().unwrap(), service.clock());
        let setup = service.component(desk);
        let mut setup = setup
            .input::<dyn Orders>(&folder.journal("orders"))
            .unwrap();
        if limits {
            setup = setup
                .input::<dyn Limits>(&folder.journal("limits"))
                .unwrap();
        }
        setup.start(Settings::default()).unwrap().drain().unwrap();
        let service = Service::new(&folder.journal("seen")).unwrap();
        let watch = Watch(service.publisher::<dyn Seen>().unwrap());
        let setup = service.component(watch);
        let setup = setup
            .input::<dyn Replies>(&folder.journal("replies"))
            .unwrap();
        setup.start(Settings::default()).unwrap().drain().unwrap();
    }
}

/// The parts, with how many messages and the longest in us.
fn shown(found: &Latencies) -> Vec<(String, u64, f64)> {
    let hops = found.hops.iter();
    hops.map(|hop| {
        let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        let part = format!("{} {} {}", name(&hop.from), name(&hop.to), hop.part);
        assert!(hop.p50_us <= hop.p90_us && hop.p90_us <= hop.p99_us && hop.p999_us <= hop.max_us);
        (part, hop.count, hop.max_us)
    })
    .collect()
}

/// The longest way from one journal of the ways to another, in us, by [`history`].
fn longest(
    folder: &Folder,
    sequences: std::ops::RangeInclusive<u64>,
    from: usize,
    to: usize,
) -> (u64, f64) {
    let mut times = std::collections::BTreeMap::new();
    for sequence in sequences {
        let hops = history(&folder.path("seen"), sequence, &[]).unwrap_or_default();
        if let (Some(from), Some(to)) = (hops.get(from), hops.get(to)) {
            times.insert((from.sequence, to.sequence), from.time_ns - to.time_ns);
        }
    }
    (
        times.len() as u64,
        times.values().copied().max().unwrap() as f64 / 1e3,
    )
}

/// Equal to three digits, as the histograms are.
fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 * b.abs().max(1.0)
}

#[test]
fn each_hop_is_what_the_records_say() {
    let folder = Folder::new();
    run(&folder, false);
    let end = Journal::open(folder.path("seen"), Options::read_only())
        .unwrap()
        .next()
        .unwrap();
    for (first, last) in [(0, None), (10, Some(30)), (40, Some(end + 10))] {
        let found = latency(&folder.path("seen"), first, last, &[]).unwrap();
        let range = first..=last.unwrap_or(end - 1).min(end - 1);
        let parts = shown(&found);
        let (parts, takes): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .partition(|(name, ..)| !name.contains("take"));
        let expected = [
            ("orders replies publish to output", 1, 2),
            ("replies seen publish to output", 0, 1),
            ("orders seen origin to output", 0, 2),
        ];
        assert_eq!(parts.len(), expected.len(), "{parts:?}");
        // Both parts of a hop are of the same calls, and no longer than the hop.
        for (takes, whole) in takes.chunks(2).zip(&parts) {
            let [(publish, count, longest_us), (output, also, work_us)] = takes else {
                panic!("{takes:?}")
            };
            assert!(publish.ends_with("publish to take") && output.ends_with("take to output"));
            assert_eq!(count, also);
            assert!(*count > 0 && *count < whole.1 + 16, "{takes:?} {whole:?}");
            assert!(longest_us.max(*work_us) <= whole.2 * 1.01);
        }
        for ((part, count, max_us), (name, later, earlier)) in parts.into_iter().zip(expected) {
            let (messages, longest_us) = longest(&folder, range.clone(), later, earlier);
            assert_eq!((part.as_str(), count), (name, messages));
            assert!(
                is_near(max_us, longest_us),
                "{name}: {max_us} of {longest_us} us"
            );
        }
        assert_eq!((found.origins, found.pruned, found.backwards), (0, 0, 0));
    }
}

#[test]
fn the_times_of_a_call_are_those_of_its_records() {
    for limits in [false, true] {
        let folder = Folder::new();
        run(&folder, limits);
        let replies = folder.journal("replies");
        let calls = call_times(&folder.path("replies"), 0, None, &[]).unwrap();
        // Every seventh of 90 orders has no reply.
        assert_eq!(calls.len(), 90 - 12, "{calls:?}");
        for call in &calls {
            assert!(call.input.ends_with("orders"));
            let hops = history(&folder.path("replies"), call.output, &[]).unwrap();
            assert_eq!(hops[1].sequence, call.sequence);
            let times = (hops[0].time_ns, hops[1].time_ns);
            assert_eq!(times, (call.output_ns, call.published_ns));
            // It is the last reply to this order.
            if call.output + 1 < replies.next().unwrap() {
                let after = history(&folder.path("replies"), call.output + 1, &[]).unwrap();
                assert!(
                    after
                        .get(1)
                        .is_none_or(|cause| cause.sequence != call.sequence)
                );
            }
        }
        let taken = calls.iter().filter_map(|call| call.taken_ns);
        // A schedule has the time of each call; without one some are measured.
        assert!(taken.clone().count() == 78 || !limits && taken.clone().count() >= 2);
        let mut in_order = calls.iter().filter(|call| call.taken_ns.is_some());
        assert!(in_order.all(|call| call.taken_ns.unwrap() <= call.output_ns));
        let some = call_times(
            &folder.path("replies"),
            calls[3].output,
            Some(calls[5].output),
            &[],
        );
        let some: Vec<u64> = some.unwrap().iter().map(|call| call.sequence).collect();
        assert_eq!(
            some,
            [calls[3].sequence, calls[4].sequence, calls[5].sequence]
        );
    }
}

#[test]
fn a_service_with_a_schedule_records_when_it_took_an_input() {
    let folder = Folder::new();
    run(&folder, true);
    let found = latency(&folder.path("replies"), 0, None, &[]).unwrap();
    let parts = shown(&found);
    let names: Vec<&str> = parts.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "orders replies publish to take",
            "orders replies take to output"
        ]
    );
    assert_eq!(parts[0].1, found.calls);
    // The two parts are the whole.
    let whole = latency(&folder.path("seen"), 0, None, &[]).unwrap();
    assert_eq!(shown(&whole).len(), 6);
    let schedule = Journal::open(folder.path("replies.schedule"), Options::read_only()).unwrap();
    std::fs::remove_dir_all(schedule.path()).unwrap();
    let without = latency(&folder.path("replies"), 0, None, &[]).unwrap();
    let [(name, count, max_us)] = &shown(&without)[..] else {
        panic!("one hop");
    };
    assert_eq!(
        (name.as_str(), *count),
        ("orders replies publish to output", parts[0].1)
    );
    assert!(*max_us <= (parts[0].2 + parts[1].2) * 1.01 + 1.0);
}

/// Takes a while for each order.
struct Slow<R>(R);

impl<R: Replies> Orders for Slow<R> {
    #[expect(clippy::disallowed_methods, reason = "work that takes its time")]
    fn place(&mut self, order: &Order<'_>) -> Result<(), Cause> {
        std::thread::sleep(Duration::from_millis(2));
        self.0.accepted(order.id, 0);
        Ok(())
    }
}

#[test]
fn a_service_with_one_input_distinguishes_waiting_from_working() {
    let folder = Folder::new();
    let service = Service::new(&folder.journal("replies")).unwrap();
    let slow = Slow(service.publisher::<dyn Replies>().unwrap());
    let orders = folder.journal("orders");
    let setup = service
        .component(slow)
        .input::<dyn Orders>(&orders)
        .unwrap();
    let mut runner = setup.start(Settings::default()).unwrap();
    // One by one: each is taken at once.
    for id in 0..10 {
        folder.orders(id..id + 1);
        while runner.turn().unwrap() != Outcome::Nothing {}
    }
    let one_by_one = latency(&folder.path("replies"), 0, None, &[]).unwrap();
    let [whole, wait, work] = &one_by_one.hops[..] else {
        panic!("{one_by_one:?}")
    };
    assert_eq!([whole.measured, wait.measured, work.measured], [10; 3]);
    assert_eq!([whole.count, wait.count, work.count], [10; 3]);
    assert!(work.p50_us >= 2_000.0 && work.max_us <= whole.max_us * 1.01);
    // Many at once: they wait for each other.
    folder.orders(10..330);
    let from = folder.journal("replies").next().unwrap();
    while runner.turn().unwrap() != Outcome::Nothing {}
    let at_once = latency(&folder.path("replies"), from, None, &[]).unwrap();
    let [whole, wait, work] = &at_once.hops[..] else {
        panic!("{at_once:?}")
    };
    assert_eq!((whole.count, whole.measured), (320, 320));
    assert!(
        (300..=320).contains(&wait.count) && wait.measured <= 21,
        "{wait:?}"
    );
    assert_eq!(wait.count, work.count);
    assert!(
        wait.p50_us >= 100.0 * 2_000.0 && work.p50_us >= 2_000.0,
        "{wait:?} {work:?}"
    );
}

#[test]
fn the_tick_of_a_timer_is_a_beginning() {
    let folder = Folder::new();
    let service = Service::new(&folder.journal("replies")).unwrap();
    let desk = Desk::new(service.publisher::<dyn Replies>().unwrap(), service.clock());
    let setup = service
        .component(desk)
        .every("tick", Duration::from_millis(1), |desk, now_ns| {
            desk.replies.summary(desk.accepted, now_ns);
            Ok::<(), Cause>(())
        });
    let setup = setup
        .input::<dyn Orders>(&folder.journal("orders"))
        .unwrap();
    let mut runner = setup.start(Settings::default()).unwrap();
    while runner.report().ticks < 5 {
        runner.turn().unwrap();
    }
    let found = latency(&folder.path("replies"), 0, None, &[]).unwrap();
    let [(name, count, _)] = &shown(&found)[..] else {
        panic!("one hop: {found:?}");
    };
    assert_eq!(
        (name.as_str(), *count),
        ("replies.schedule replies take to output", 5)
    );
    assert_eq!((found.calls, found.origins), (5, 0));
}

#[test]
fn causes_that_are_pruned_are_counted() {
    let folder = Folder::new();
    for ids in [0..2_000, 2_000..4_000] {
        folder.orders(ids);
        folder
            .start("replies", Settings::default())
            .unwrap()
            .drain()
            .unwrap();
    }
    let orders = folder.journal("orders");
    let retention = millstream_journal::Retention {
        bytes: Some(1 << 16),
        ..Default::default()
    };
    orders.prune(&retention).unwrap();
    assert!(orders.first().unwrap() > 0);
    let found = latency(&folder.path("replies"), 0, None, &[]).unwrap();
    assert!(found.pruned > 0);
    let counted = found.hops[0].count;
    assert!(
        counted > 0 && counted + found.pruned <= found.calls,
        "{found:?}"
    );
}
