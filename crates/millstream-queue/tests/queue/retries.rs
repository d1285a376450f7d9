//! Leases that are renewed, and items that come back later: `touch`, `abort/delay=`, `retry`.

use crate::script::{World, play};

#[test]
fn a_touch_begins_the_time_of_open_items_anew() {
    play(
        "[queue.q]\nmax_opens = 2\nopen_timeout = \"2s\"",
        "a> set q 0 0 1|1|set q 0 0 1|2|get q/open|get q/open|
         a< STORED|STORED|VALUE q/open 0 1|1|END|VALUE q/open 0 1|2|END|
         +1500
         a> touch q 0|
         a< TOUCHED|
         +1999
         b> get q|
         b< END|
         a> touch q 60|
         a< TOUCHED|
         +59999
         b> get q|
         b< END|
         +1
         b> get q|get q|
         b< VALUE q 0 1|1|END|VALUE q 0 1|2|END|
         a> touch q 60|get q/close|
         a< NOT_FOUND|NOT_FOUND|",
    );
}

#[test]
fn a_lease_by_id_is_renewed_from_another_connection() {
    play(
        "[queue.q]\nmax_opens = 2\nopen_timeout = \"2s\"",
        "a> set q 0 0 1|1|set q 0 0 1|2|get q/open/details|get q/open/details|
         a< STORED|STORED|VALUE q/open/details 0 1 0 1700000000000 0 0 0|1|END|VALUE q/open/details 0 1 1 1700000000000 0 0 0|2|END|
         +1000
         b> touch q/id=1 10|touch q 0 3|touch q/id=7 10|touch q 9 10|touch other 10|touch q 10 noreply|
         b< TOUCHED|TOUCHED|NOT_FOUND|NOT_FOUND|NOT_FOUND|
         +3000
         b> get q|get q|
         b< VALUE q 0 1|1|END|END|
         +7000
         b> get q|
         b< VALUE q 0 1|2|END|",
    );
}

#[test]
fn a_touch_may_set_a_time_where_the_queue_has_none_and_take_it_back() {
    play(
        "",
        "a> set q 0 0 1|1|get q/open|touch q 5|touch q 0|
         a< STORED|VALUE q/open 0 1|1|END|TOUCHED|TOUCHED|
         +9000
         b> get q|
         b< END|
         a> touch q 5|
         a< TOUCHED|
         +5000
         b> get q|
         b< VALUE q 0 1|1|END|",
    );
}

#[test]
fn a_malformed_touch_is_answered_once_and_changes_nothing() {
    play(
        "",
        "a> touch|touch q|touch q x|touch q -1|touch q x 5|touch q 1 5 6|touch q/open 5|touch q 2592001|touch /id=1 5|
         a< ERROR|ERROR|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|CLIENT_ERROR unknown option|CLIENT_ERROR touch takes 0 to 2592000 seconds|CLIENT_ERROR queue name is empty|",
    );
}

#[test]
fn an_item_comes_back_later_with_its_failures_also_after_a_loss_of_power() {
    let mut world = World::new("");
    world.play(
        "a> set q 7 0 1|1|set q 0 0 1|2|get q/open|
         a< STORED|STORED|VALUE q/open 7 1|1|END|
         +1000
         a> get q/abort/delay=5000|get q|
         a< END|VALUE q 0 1|2|END|
         +4999
         a> get q|
         a< END|
         crash
         a> get q|
         a< END|
         +1
         a> get q/open/details|
         a< VALUE q/open/details 7 1 0 1700000000000 0 1 1700000001000|1|END|
         b> get q/abort=0/delay=2000|get q/abort=0/delay=2000|
         b< END|NOT_FOUND|
         c> set q 0 0 1|3|
         c< STORED|
         power
         b> get q|get q|
         b< VALUE q 0 1|3|END|END|
         +2000
         b> get q/details|
         b< VALUE q/details 7 1 0 1700000000000 0 2 1700000001000|1|END|",
    );
}

#[test]
fn the_retries_of_a_queue_grow_and_end_in_its_error_queue() {
    play(
        "[queue.q]\nretry = { first = '1s', factor = 3, most = '5s', tries = 4 }\nerror_queue = 'bad'\nopen_timeout = '10s'",
        "a> set q 0 0 1|1|set q 0 0 1|2|get q/open|
         a< STORED|STORED|VALUE q/open 0 1|1|END|
         a!
         b> get q|get q|
         b< VALUE q 0 1|2|END|END|
         +999
         b> get q|
         b< END|
         +1
         b> get q/open|get q/abort|
         b< VALUE q/open 0 1|1|END|END|
         +2999
         crash
         b> get q|
         b< END|
         +1
         b> get q/open|
         b< VALUE q/open 0 1|1|END|
         +10000
         b> get q/close|
         b< NOT_FOUND|
         +4999
         b> get q|
         b< END|
         +1
         b> get q/open|get q/abort|get bad/details|
         b< VALUE q/open 0 1|1|END|END|VALUE bad/details 0 1 0 1700000019000 0 0 1700000000000 q failed 1700000019000 4 0|1|END|",
    );
}

#[test]
fn what_the_server_ends_and_what_is_asked_for_are_no_retries() {
    play(
        "[defaults]\nretry = { first = '1m' }\n[queue.off]\nretry = { first = '0s' }",
        "a> set q 0 0 1|1|get q/open|
         a< STORED|VALUE q/open 0 1|1|END|
         a.
         b> get q/open|get q/abort/delay=0|get q/open|
         b< VALUE q/open 0 1|1|END|END|VALUE q/open 0 1|1|END|
         b> set off 0 0 1|x|get off/open|get off/abort|get off|
         b< STORED|VALUE off/open 0 1|x|END|END|VALUE off 0 1|x|END|",
    );
}

#[test]
fn an_item_that_comes_back_later_on_a_full_disk_comes_back_at_once() {
    let mut world = World::new("");
    world.play("a> set q 0 0 1|1|get q/open|\na< STORED|VALUE q/open 0 1|1|END|");
    world.storage.set_failing("q", true);
    world.play("a> get q/abort/delay=5000|get q/details|\na< END|VALUE q/details 0 1 0 1700000000000 0 1 1700000000000|1|END|");
}

#[test]
fn a_close_that_was_meant_for_an_item_of_a_deleted_queue_confirms_none_of_the_new_one() {
    play(
        "[defaults]\nmax_opens = 2",
        "a> set q 0 0 3|old|get q/open|
         a< STORED|VALUE q/open 0 3|old|END|
         b> delete q|set q 0 0 3|new|
         b< DELETED|STORED|
         a> get q/open|get q/close|
         a< VALUE q/open 0 3|new|END|NOT_FOUND|
         a!
         b> get q|delete q|
         b< VALUE q 0 3|new|END|DELETED|
         c> set q 0 0 1|x|get q/open|
         c< STORED|VALUE q/open 0 1|x|END|
         b> delete q|
         b< DELETED|
         c> confirm q 2|confirm q 1|get q/close|
         c< ERROR|NOT_FOUND|END|",
    );
}

#[test]
fn how_often_an_item_failed_is_known_over_restarts_whatever_delayed_it() {
    for first in ["", "/delay=100"] {
        let mut world = World::new("[queue.q]\nmax_deliveries = 3\nerror_queue = 'bad'");
        world.play(&format!("a> set q{first} 0 0 1|x|\na< STORED|\n+100"));
        for count in 1..3 {
            let delay = if count == 1 { "/delay=100" } else { "" };
            world.play(&format!(
                "a> get q/open|get q/abort{delay}|
                 a< VALUE q/open 0 1|x|END|END|
                 +100
                 crash"
            ));
            let stats = world.queues.numbers_of("q", world.now).unwrap();
            let of = |name| stats.iter().find(|(known, _)| *known == name).unwrap().1;
            assert_eq!(
                (of("items"), of("failing_items"), of("deliveries_max")),
                (1, 1, count)
            );
        }
        world.play("a> get q/open|get q/abort|get q|\na< VALUE q/open 0 1|x|END|END|END|");
        let stats = world.queues.numbers_of("q", world.now).unwrap();
        assert!(stats.contains(&("failing_items", 0)));
        world.play("a> get bad|\na< VALUE bad 0 1|x|END|");
    }
}

#[test]
fn an_open_that_finds_nothing_gives_up_no_place() {
    for open in [
        "get q/open",
        "get q/open/t=10",
        "get q,p/open",
        "get q/peek",
    ] {
        play(
            "[queue.q]\nmax_opens = 2\nopen_timeout = '1s'",
            &format!(
                "a> set q 0 0 1|1|set q 0 0 1|2|get q/open|
                 a< STORED|STORED|VALUE q/open 0 1|1|END|
                 +1000
                 b> get q/open|touch q 60|
                 b< VALUE q/open 0 1|1|END|TOUCHED|
                 a> get q/open|touch q 60|
                 a< VALUE q/open 0 1|2|END|TOUCHED|
                 a> {open}|
                 +20
                 a< END|
                 a> get q/close|
                 a< NOT_FOUND|
                 a!
                 b> get q|get q/close|get q|
                 b< ERROR|END|VALUE q 0 1|2|END|"
            ),
        );
    }
}

#[test]
fn a_delayed_item_expires_in_time() {
    for restart in ["", "crash"] {
        play(
            "[queue.q]\nexpire_to = 'late'",
            &format!(
                "a> set q/delay=5000 0 2 1|x|set q 0 2 1|y|get q/open|get q/abort/delay=9000|
                 a< STORED|STORED|VALUE q/open 0 1|y|END|END|
                 {restart}
                 +1999
                 a> get late|
                 a< END|
                 +1
                 a> get late|get late|get q|
                 a< VALUE late 0 1|x|END|VALUE late 0 1|y|END|END|"
            ),
        );
    }
}

#[test]
fn a_full_queue_drops_its_oldest_items_also_those_that_are_delayed() {
    play(
        "[queue.q]\nmax_items = 2\non_full = 'drop-oldest'\nmax_opens = 2",
        "a> set q 0 0 1|1|set q 0 0 1|2|get q/open|get q/open|get q/abort/delay=1000|get q/abort/delay=2000|
         a< STORED|STORED|VALUE q/open 0 1|1|END|VALUE q/open 0 1|2|END|END|END|
         b> set q 0 0 1|3|get q/peek|set q/delay=500 0 0 1|4|get q|
         b< STORED|VALUE q/peek 0 1|3|END|STORED|VALUE q 0 1|3|END|
         +3000
         b> get q|get q|
         b< VALUE q 0 1|4|END|END|",
    );
}

#[test]
fn items_that_wait_for_their_retry_are_failing_items() {
    let mut world = World::new("[queue.q]\nretry = { first = '1m' }");
    for restart in [false, true] {
        if !restart {
            world.play(
                "a> set q 0 0 1|x|get q/open|get q/abort|\na< STORED|VALUE q/open 0 1|x|END|END|",
            );
        } else {
            world.restart();
        }
        let stats = world.queues.numbers_of("q", world.now).unwrap();
        for (name, expected) in [("items", 1), ("failing_items", 1), ("deliveries_max", 1)] {
            assert!(stats.contains(&(name, expected)), "{name}: {stats:?}");
        }
    }
    world.pass(60_000);
    world.play("a> get q|\na< VALUE q 0 1|x|END|");
    let stats = world.queues.numbers_of("q", world.now).unwrap();
    assert!(stats.contains(&("failing_items", 0)));
}

#[test]
fn an_item_that_cannot_leave_is_counted_once_it_has_left() {
    let mut world = World::new("[queue.q]\nexpire_to = 'late'");
    world.play("a> set late 0 0 1|l|set q 0 1 1|x|\na< STORED|STORED|");
    world.storage.set_failing("late", true);
    let expired = |world: &mut World| {
        let stats = world.queues.numbers_of("q", world.now).unwrap();
        let of = |name| stats.iter().find(|(known, _)| *known == name).unwrap().1;
        (of("items"), of("expired_items"))
    };
    world.pass(9_000);
    assert_eq!(expired(&mut world), (1, 0));
    world.storage.set_failing("late", false);
    world.pass(2_000);
    assert_eq!(expired(&mut world), (0, 1));
    world.play("a> get late|get late|\na< VALUE late 0 1|l|END|VALUE late 0 1|x|END|");
}
