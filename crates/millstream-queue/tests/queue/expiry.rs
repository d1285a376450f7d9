//! Expiry, age, and queues that are deleted when they are unused.

use crate::script::{World, play};

#[test]
fn an_item_expires_also_behind_a_live_one() {
    let mut world = World::new("");
    world.play(
        "a> set q 0 0 4|live|set q 0 1 4|dead|set q 0 2 5|later|
         a< STORED|STORED|STORED|
         +1000",
    );
    assert_eq!(world.queues.items("q"), Some(2));
    world.play(
        "a> get q|get q|get q|
         a< VALUE q 0 4|live|END|VALUE q 0 5|later|END|END|",
    );
}

#[test]
fn a_negative_expiry_is_at_once() {
    play("", "a> set q 0 -1 1|1|get q|\na< STORED|END|");
}

#[test]
fn a_large_expiry_is_a_date() {
    play(
        "",
        "a> set q 0 1700000001 1|1|\na< STORED|\n+1000\na> get q|\na< END|",
    );
}

#[test]
fn the_age_of_a_queue_bounds_every_expiry() {
    play(
        "[queue.q]\nmax_age = \"1s\"",
        "a> set q 0 0 1|1|set q 0 3600 1|2|
         a< STORED|STORED|
         +1000
         a> get q|
         a< END|",
    );
}

#[test]
fn expired_items_go_elsewhere() {
    play(
        "[queue.q]\nexpire_to = \"late\"\n[queue.late]\nmax_items = 1",
        "a> get late/t=5000|
         b> set q 9 1 1|1|set q 0 1 1|2|
         b< STORED|STORED|
         +999
         a<
         +1
         a< VALUE late/t=5000 9 1|1|END|
         b> get q|get late|
         b< END|VALUE late 0 1|2|END|
         crash
         b> get q|get late|
         b< END|END|",
    );
}

#[test]
fn queues_may_expire_into_each_other() {
    let mut world = World::new(
        "[queue.a]\nexpire_to = \"b\"\nmax_age = \"1ms\"\n[queue.b]\nexpire_to = \"a\"\nmax_age = \"1ms\"",
    );
    world.play("a> set a 0 0 1|1|\na< STORED|\n+100");
    assert_eq!(
        world.queues.items("a").unwrap() + world.queues.items("b").unwrap(),
        1
    );
}

#[test]
fn flush_expired_counts() {
    play(
        "",
        "a> set q 0 0 1|1|set q 0 1 1|2|set r 0 1 1|3|flush_expired q|flush_all_expired|
         a< STORED|STORED|STORED|0|0|",
    );
    let mut world = World::new("");
    world.play("a> set q 0 1 1|1|set q 0 1 1|2|set r 0 1 1|3|\na< STORED|STORED|STORED|");
    world.now.wall_ms += 1_000;
    world.play("a> flush_expired q|flush_all_expired|flush_expired q|\na< 2|1|0|");
}

#[test]
fn an_empty_queue_is_deleted_after_its_time() {
    let mut world = World::new("[defaults]\ndelete_empty_after = \"10s\"");
    world.play("a> set q 0 0 1|1|\na< STORED|\n+60000\na> get q/open|\na< VALUE q/open 0 1|1|END|\n+60000\na> get q/close|\na< END|");
    world.play("+9000\na> get q|\na< END|");
    assert_eq!(world.queues.items("q"), Some(0));
    world.play("+2000");
    assert_eq!(world.queues.items("q"), None);
    world.play("a> set q 0 0 1|2|get q|\na< STORED|VALUE q 0 1|2|END|");
}

#[test]
fn a_clock_that_jumps_ends_no_wait() {
    let mut world = World::new("");
    world.play("a> get q/t=1000|\na<");
    world.now.wall_ms -= 3_600_000;
    world.play("+999\na<");
    world.now.wall_ms += 86_400_000;
    world.play("b> get q/t=5|\n+1\na< END|\nb<\n+4\nb< END|");
    // An item that was to live an hour is dead after a jump of a day, within a second.
    world.play("a> set q 0 3600 1|1|\na< STORED|");
    world.now.wall_ms += 86_400_000;
    world.play("+1000");
    assert_eq!(world.queues.items("q"), Some(0));
}
