//! Dead letters return to their original queues.

use crate::script::{World, play};

const CONFIG: &str = "
    [queue.work]
    max_deliveries = 1
    error_queue = 'dead'
    max_items = 3";

#[test]
fn dead_letters_return_complete_and_in_order() {
    let mut world = World::new(CONFIG);
    world.play(
        "a> set work 1 0 3|one|set work 2 0 3|two|get work/open|get work/abort|get work/open|get work/abort|
         a< STORED|STORED|VALUE work/open 1 3|one|END|END|VALUE work/open 2 3|two|END|END|
         a> get work|redrive dead work|get dead|
         a< END|2|END|
         a> get work/details|get work/details|get work|
         a< VALUE work/details 1 3 4 1700000000000 0 0 1700000000000 work failed 1700000000000 1 0|one|END|VALUE work/details 2 3 5 1700000000000 0 0 1700000000000 work failed 1700000000000 1 0|two|END|END|
         crash
         a> get work|get dead|redrive dead work|
         a< END|END|0|",
    );
}

#[test]
fn flags_and_expiry_go_along() {
    let mut world = World::new("");
    world.play(
        "a> set dead 7 60 3|one|redrive dead work|
         a< STORED|1|
         a> get work/peek/details|
         a< VALUE work/peek/details 7 3 0 1700000000000 1700000060000 0 0|one|END|
         power
         a> get work/peek|get dead|
         a< VALUE work/peek 7 3|one|END|END|
         +60000
         a> get work|
         a< END|",
    );
}

#[test]
fn so_many_as_there_is_room_for() {
    let mut world = World::new(CONFIG);
    for _ in 0..5 {
        world.play("a> set dead 0 0 1|x|\na< STORED|");
    }
    world.play(
        "a> redrive dead work 2|redrive dead work|redrive dead work|
         a< 2|SERVER_ERROR the first 1 items are stored, and the next one is not: queue \"work\" is full|SERVER_ERROR queue \"work\" is full|
         a> get work|get work|get work|get work|redrive dead work 0|redrive dead work|
         a< VALUE work 0 1|x|END|VALUE work 0 1|x|END|VALUE work 0 1|x|END|END|0|2|",
    );
}

#[test]
fn a_waiter_gets_returned_items_and_a_fan_out_queue_no_second_copy() {
    play(
        "",
        "a> get work+copy|set dead 0 0 1|x|
         a< END|STORED|
         b> get work/t=1000|
         b<
         a> redrive dead work|get work+copy|
         a< 1|END|
         b< VALUE work/t=1000 0 1|x|END|",
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    play(
        "[alias]\nboth = ['a', 'b']\n[queue.parent]\nfanout_only = true",
        "a> set dead 0 0 1|x|redrive dead dead|redrive dead both|redrive dead parent|redrive dead .x|redrive dead|redrive none work|
         a< STORED|CLIENT_ERROR a queue cannot send items to itself|SERVER_ERROR \"both\" is an alias, not a queue|SERVER_ERROR queue \"parent\" keeps no items: it is fanout_only|CLIENT_ERROR queue name must not begin with '.' nor have an empty part beside '+'|ERROR|NOT_FOUND|
         a> redrive dead work x|redrive dead work 1 2|get dead|
         a< CLIENT_ERROR bad command line format|CLIENT_ERROR bad command line format|VALUE dead 0 1|x|END|",
    );
}

#[test]
fn delayed_items_move_too_and_keep_the_end_of_their_delay() {
    play(
        "[queue.work]\nmax_deliveries = 1\nerror_queue = 'dead'",
        "a> set work 3 0 1|1|get work/open|get work/abort|get dead/open|get dead/abort/delay=5000|set dead/delay=7000 0 0 1|2|set dead 0 0 1|3|
         a< STORED|VALUE work/open 3 1|1|END|END|VALUE dead/open 3 1|1|END|END|STORED|STORED|
         a> redrive dead again|get dead|get again|
         a< 3|END|VALUE again 0 1|3|END|
         crash
         +4999
         b> get again|
         b< END|
         +1
         b> get again/details|
         b< VALUE again/details 3 1 0 1700000000000 0 0 1700000000000 work failed 1700000000000 1 0|1|END|
         crash
         +2000
         b> get again|get again|get dead|
         b< VALUE again 0 1|2|END|END|END|",
    );
}
