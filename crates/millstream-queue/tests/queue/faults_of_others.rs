//! Known faults of other queue servers, which this one must not have.

use crate::script::{World, play};

#[test]
fn a_get_without_a_key_or_with_a_negative_length_is_harmless() {
    play(
        "",
        "a> get|gets|set q 0 0 -1|set|get q|
         a< ERROR|ERROR|CLIENT_ERROR bad command line format|ERROR|END|",
    );
}

#[test]
fn flush_all_leaves_a_server_that_works() {
    play(
        "",
        "a> flush_all|set q 0 0 1|1|flush_all|get q|set q 0 0 1|2|get q|
         a< OK|STORED|OK|END|STORED|VALUE q 0 1|2|END|",
    );
}

#[test]
fn a_zero_length_item_is_an_item() {
    play(
        "",
        "a> set q 5 0 0||
         a< STORED|
         crash
         a> get q|get q|
         a< VALUE q 5 0||END|END|",
    );
}

#[test]
fn an_item_open_when_the_process_dies_is_back() {
    play(
        "",
        "a> set q 0 0 1|1|set q 0 0 1|2|get q/open|
         a< STORED|STORED|VALUE q/open 0 1|1|END|
         crash
         a> get q|get q|get q|
         a< VALUE q 0 1|1|END|VALUE q 0 1|2|END|END|",
    );
}

#[test]
fn what_was_stored_is_durable_before_it_is_acknowledged() {
    play(
        "[queue.fast]\nsync = \"never\"",
        "a> set q 0 0 1|1|set fast 0 0 1|1|set fast/sync 0 0 1|2|set fast 0 0 1|3|
         a< STORED|STORED|STORED|STORED|
         power
         a> get q|get fast|get fast|get fast|
         a< VALUE q 0 1|1|END|VALUE fast 0 1|1|END|VALUE fast 0 1|2|END|VALUE fast 0 1|3|END|",
    );
    play(
        "[defaults]\nsync = \"never\"",
        "a> set fast 0 0 1|1|set fast/sync 0 0 1|2|
         a< STORED|STORED|
         a> set fast 0 0 1|3|
         a< STORED|
         power
         a> get fast|get fast|get fast|
         a< VALUE fast 0 1|1|END|VALUE fast 0 1|2|END|END|",
    );
}

#[test]
fn a_time_between_syncs_is_kept() {
    play(
        "[defaults]\nsync = \"100ms\"",
        "a> set q 0 0 1|1|
         a< STORED|
         +100
         a> set q 0 0 1|2|
         a< STORED|
         power
         a> get q|get q|
         a< VALUE q 0 1|1|END|END|",
    );
}

#[test]
fn nothing_is_acknowledged_on_a_full_disk() {
    let mut world = World::new("");
    world.play("a> set q 0 0 1|1|\na< STORED|");
    world.storage.set_failing("q", true);
    world.play("a> set q 0 0 1|2|\na< SERVER_ERROR queue \"q\": no space left on device|");
    // With a full disk items still go out, and come in again when there is space.
    world.play("a> get q|get q|\na< VALUE q 0 1|1|END|END|");
    world.storage.set_failing("q", false);
    world.play("a> set q 0 0 1|3|get q|\na< STORED|VALUE q 0 1|3|END|\ncrash\na> get q|\na< END|");
}

#[test]
fn a_full_disk_under_one_fanout_queue_keeps_the_item_out_of_all() {
    let mut world = World::new("[defaults]\nsync = \"never\"");
    world.play("a> get p+c|set p 0 0 1|1|\na< END|STORED|");
    world.storage.set_failing("p+c", true);
    world.play(
        "a> set p 0 0 1|2|
         a< SERVER_ERROR queue \"p+c\": no space left on device|
         a> get p|get p|
         a< VALUE p 0 1|1|END|END|",
    );
    world.storage.set_failing("p+c", false);
    world.play("crash\na> get p|get p+c|get p+c|\na< END|VALUE p+c 0 1|1|END|END|");
}
