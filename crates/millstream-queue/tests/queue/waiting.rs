//! Blocking reads: fair, exact to the millisecond, and no item is taken for a client that has disconnected.

use crate::script::{World, play};

#[test]
fn a_wait_ends_with_an_item_or_with_its_time() {
    play(
        "",
        "a> get q/t=500|
         a<
         +499
         a<
         +1
         a< END|
         a> get q/t=500/open|version|
         a<
         +100
         b> set q 0 0 1|1|
         b< STORED|
         a< VALUE q/t=500/open 0 1|1|END|VERSION 1.5.0|
         +1000
         a<
         a!
         b> get q|
         b< VALUE q 0 1|1|END|",
    );
}

#[test]
fn waiters_are_served_in_order() {
    play(
        "",
        "a> get q/t=1000|
         b> get q/t=1000|
         c> get q/t=1000|
         b!
         d> set q 0 0 1|1|get q|
         d< STORED|END|
         a< VALUE q/t=1000 0 1|1|END|
         c<
         d> set q 0 0 1|2|
         d< STORED|
         c< VALUE q/t=1000 0 1|2|END|",
    );
}

#[test]
fn a_disconnected_client_takes_nothing() {
    let mut world = World::new("");
    world.play("a> get q/t=1000|\na<");
    world.hang_up('a');
    world.play("b> set q 0 0 1|1|get q|\nb< STORED|VALUE q 0 1|1|END|");
}

#[test]
fn a_returned_item_goes_to_a_waiter() {
    play(
        "",
        "a> set q 0 0 1|1|get q/open|
         a< STORED|VALUE q/open 0 1|1|END|
         b> get q/t=1000|
         b<
         a!
         b< VALUE q/t=1000 0 1|1|END|",
    );
}

#[test]
fn several_keys_wait_in_turn() {
    play(
        "",
        "a> set b 0 0 1|2|get a/t=100 b/t=100 c|
         a< STORED|
         +50
         b> set a 0 0 1|1|
         b< STORED|
         a< VALUE a/t=100 0 1|1|VALUE b/t=100 0 1|2|END|
         a> get a/t=100 b/t=100 c|
         +150
         a<
         b> set c 0 0 1|3|
         b< STORED|
         +50
         a< VALUE c 0 1|3|END|",
    );
}

#[test]
fn a_close_takes_effect_before_the_wait() {
    play(
        "",
        "a> set q 0 0 1|1|get q/open|get q/close/open/t=1000|
         a< STORED|VALUE q/open 0 1|1|END|
         b> get q|
         b< END|
         a!
         b> get q|
         b< END|",
    );
}

#[test]
fn a_peek_may_wait_too() {
    play(
        "",
        "a> get q/peek/t=1000|
         b> set q 0 0 1|1|
         b< STORED|
         a< VALUE q/peek/t=1000 0 1|1|END|
         b> get q|
         b< VALUE q 0 1|1|END|",
    );
}

#[test]
fn a_wait_ends_when_the_queue_is_deleted() {
    play(
        "",
        "a> get q/t=1000|
         b> delete q|
         b< DELETED|
         a< END|",
    );
}

#[test]
fn a_delayed_item_is_served_on_time() {
    play(
        "",
        "a> set q/delay=200 0 0 1|1|set q 0 0 1|2|get q|get q/t=1000|
         a< STORED|STORED|VALUE q 0 1|2|END|
         +199
         a<
         +1
         a< VALUE q/t=1000 0 1|1|END|",
    );
}
