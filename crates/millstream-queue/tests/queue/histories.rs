//! What is known of an item that failed: how often and since when, which queue it left and why, and what it brings back
//! when it is redriven.

use crate::script::{World, play};

const CONFIG: &str = "
    [queue.work]
    max_deliveries = 2
    error_queue = 'dead'
    expire_to = 'late'
";

#[test]
fn deliveries_and_the_first_failure_are_reported_and_survive_a_crash() {
    let mut world = World::new("");
    world.play(
        "a> set q 0 0 1|x|get q/peek/details|get q/open|
         a< STORED|VALUE q/peek/details 0 1 0 1700000000000 0 0 0|x|END|VALUE q/open 0 1|x|END|
         +1000
         a> get q/abort|get q/peek/details|get q/open|
         a< END|VALUE q/peek/details 0 1 0 1700000000000 0 1 1700000001000|x|END|VALUE q/open 0 1|x|END|
         +1000
         a!
         b> get q/peek/details|
         b< VALUE q/peek/details 0 1 0 1700000000000 0 2 1700000001000|x|END|
         crash
         b> get q/peek/details|
         b< VALUE q/peek/details 0 1 0 1700000000000 0 2 1700000001000|x|END|",
    );
    world.pass(500);
    let numbers: std::collections::BTreeMap<_, _> = world
        .queues
        .numbers_of("q", world.now)
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(
        ["failing_items", "deliveries_max", "first_failure_age"].map(|name| numbers[name]),
        [1, 2, 1_500]
    );
    world.play("b> get q|\nb< VALUE q 0 1|x|END|");
    let numbers: Vec<_> = world
        .queues
        .numbers_of("q", world.now)
        .into_iter()
        .flatten()
        .filter(|(name, _)| ["failing_items", "deliveries_max", "first_failure_age"].contains(name))
        .map(|(_, value)| value)
        .collect();
    assert_eq!(numbers, [0, 0, 0]);
}

#[test]
fn stats_count_failing_items_that_are_open_or_only_on_disk() {
    let mut world = World::new("[defaults]\nmax_opens = 3\ncount_failures = 'all'");
    world.play(
        "a> set q 0 0 1|1|set q 0 0 1|2|set q 0 0 1|3|get q/open|get q/open|
         a< STORED|STORED|STORED|VALUE q/open 0 1|1|END|VALUE q/open 0 1|2|END|
         a!
         crash",
    );
    let failing = |world: &mut World| {
        let numbers = world.queues.numbers_of("q", world.now).unwrap();
        numbers
            .iter()
            .find(|(name, _)| *name == "failing_items")
            .unwrap()
            .1
    };
    assert_eq!(failing(&mut world), 2);
    world.play("a> get q/open|\na< VALUE q/open 0 1|1|END|");
    assert_eq!(failing(&mut world), 2);
    world.play("a> get q/close|get q|get q|\na< END|VALUE q 0 1|2|END|VALUE q 0 1|3|END|");
    assert_eq!(failing(&mut world), 0);
}

#[test]
fn a_dead_letter_knows_where_it_comes_from_and_keeps_its_expiry_for_the_redrive() {
    play(
        CONFIG,
        "a> set work 7 60 3|one|get work/open|
         a< STORED|VALUE work/open 7 3|one|END|
         +1000
         a> get work/abort|get work/open|get work/abort|get dead/peek/details|
         a< END|VALUE work/open 7 3|one|END|END|VALUE dead/peek/details 7 3 0 1700000001000 0 0 1700000001000 work failed 1700000001000 2 1700000060000|one|END|
         crash
         a> get dead/peek/details|redrive dead work|get work/peek/details|
         a< VALUE dead/peek/details 7 3 0 1700000001000 0 0 1700000001000 work failed 1700000001000 2 1700000060000|one|END|1|VALUE work/peek/details 7 3 3 1700000001000 1700000060000 0 1700000001000 work failed 1700000001000 2 1700000060000|one|END|
         crash
         a> get work/peek|get dead|
         a< VALUE work/peek 7 3|one|END|END|
         +1000
         a> get work/open|get work/abort|get work/open|get work/abort|get dead/details|
         a< VALUE work/open 7 3|one|END|END|VALUE work/open 7 3|one|END|END|VALUE dead/details 7 3 2 1700000002000 0 0 1700000001000 work failed 1700000002000 4 1700000060000|one|END|",
    );
}

#[test]
fn a_redriven_item_expires_when_it_was_to_and_one_whose_time_is_over_no_more() {
    play(
        "[queue.work]\nmax_deliveries = 1\nerror_queue = 'dead'\n[queue.dead]\nmax_age = '1h'",
        "a> set work 0 60 5|early|set work 0 120 4|late|get work/open|get work/abort|get work/open|get work/abort|
         a< STORED|STORED|VALUE work/open 0 5|early|END|END|VALUE work/open 0 4|late|END|END|
         +90000
         a> redrive dead work|
         a< 2|
         +31000
         a> get work|get work|
         a< VALUE work 0 5|early|END|END|",
    );
}

#[test]
fn an_expired_item_says_so() {
    play(
        CONFIG,
        "a> set work 0 2 1|x|
         a< STORED|
         +2000
         a> get late/peek/details|redrive late work|get work/details|
         a< VALUE late/peek/details 0 1 0 1700000002000 0 0 0 work expired 1700000002000 0 1700000002000|x|END|1|VALUE work/details 0 1 2 1700000002000 0 0 0 work expired 1700000002000 0 1700000002000|x|END|",
    );
}

#[test]
fn a_history_is_kept_when_an_item_is_written_again() {
    let mut world = World::new(CONFIG);
    world.play(
        "a> set work 0 60 3|one|get work/open|get work/abort|get work/open|get work/abort|
         a< STORED|VALUE work/open 0 3|one|END|END|VALUE work/open 0 3|one|END|END|",
    );
    let body = "x".repeat(5_000);
    for _ in 0..9_000 {
        world.send(
            'b',
            format!("set dead 0 0 5000\r\n{body}\r\nget dead/open\r\n").as_bytes(),
        );
        world.received('b');
        // The old letter stays open while others come and go after it.
        world.send('c', b"get dead\r\n");
        world.received('c');
    }
    let numbers = world.queues.numbers_of("dead", world.now).unwrap();
    assert!(
        numbers
            .iter()
            .any(|&(name, value)| name == "journal_rotations" && value > 0)
    );
    world.play(
        "b!
         crash
         b> get dead/details|
         b< VALUE dead/details 0 3 0 1700000000000 0 1 1700000000000 work failed 1700000000000 2 1700000060000|one|END|",
    );
}
