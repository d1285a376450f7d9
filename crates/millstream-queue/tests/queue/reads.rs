//! Reads: get, open, close, abort, peek.

use crate::script::{World, play};

#[test]
fn items_leave_in_the_order_of_arrival() {
    play(
        "",
        "a> set q 0 0 1|1|set q 7 0 1|2|set q 0 0 0||get q|get q|get q|get q|
         a< STORED|STORED|STORED|VALUE q 0 1|1|END|VALUE q 7 1|2|END|VALUE q 0 0||END|END|",
    );
}

#[test]
fn a_request_may_be_cut_anywhere() {
    let sent = b"set q 0 0 5\r\nhello\r\nget q/open\r\nget q/abort\r\nget nothing q\r\n";
    let expected = "STORED|VALUE q/open 0 5|hello|END|END|VALUE q 0 5|hello|END|";
    for at in 0..=sent.len() {
        let mut world = World::new("");
        world.send('a', &sent[..at]);
        world.send('a', &sent[at..]);
        assert_eq!(world.received('a'), expected, "cut at {at}");
    }
    let mut world = World::new("");
    sent.chunks(1).for_each(|byte| world.send('a', byte));
    assert_eq!(world.received('a'), expected);
}

#[test]
fn an_open_item_comes_back_when_its_connection_ends() {
    play(
        "",
        "a> set q 0 0 1|1|set q 0 0 1|2|get q/open|
         a< STORED|STORED|VALUE q/open 0 1|1|END|
         b> get q/open|
         b< VALUE q/open 0 1|2|END|
         b!
         a!
         c> get q|get q|get q|
         c< VALUE q 0 1|1|END|VALUE q 0 1|2|END|END|",
    );
}

#[test]
fn close_confirms_and_abort_gives_back() {
    play(
        "",
        "a> set q 0 0 1|1|get q/open|get q/abort|get q/abort|get q/open|get q/close|get q/close|get q|
         a< STORED|VALUE q/open 0 1|1|END|END|END|VALUE q/open 0 1|1|END|END|END|END|
         a!
         b> get q|
         b< END|",
    );
}

#[test]
fn close_and_open_is_one_request() {
    play(
        "",
        "a> set q 0 0 1|1|set q 0 0 1|2|get q/open|get q/close/open|get q/close/open|get q/close|
         a< STORED|STORED|VALUE q/open 0 1|1|END|VALUE q/close/open 0 1|2|END|END|END|",
    );
}

#[test]
fn one_item_of_a_queue_may_be_open_unless_more_are_allowed() {
    let script =
        "a> set q 0 0 1|1|set q 0 0 1|2|get q/open|get q/open|get q|get q/peek|get q/close|get q|";
    play(
        "",
        &format!(
            "{script}\na< STORED|STORED|VALUE q/open 0 1|1|END|ERROR|ERROR|VALUE q/peek 0 1|2|END|END|VALUE q 0 1|2|END|"
        ),
    );
    play(
        "[queue.q]\nmax_opens = 2",
        "a> set q 0 0 1|1|set q 0 0 1|2|set q 0 0 1|3|get q/open|get q/open|get q/open|
         a< STORED|STORED|STORED|VALUE q/open 0 1|1|END|VALUE q/open 0 1|2|END|ERROR|
         a> get q/close|get q/abort|get q|
         a< END|END|VALUE q 0 1|2|END|",
    );
}

#[test]
fn a_peek_takes_nothing() {
    play(
        "",
        "a> get q/peek|set q 3 0 1|1|get q/peek|get q/peek|get q|get q/peek|
         a< END|STORED|VALUE q/peek 3 1|1|END|VALUE q/peek 3 1|1|END|VALUE q 3 1|1|END|END|",
    );
}

#[test]
fn several_keys_are_served_in_turn() {
    play(
        "",
        "a> set a 0 0 1|1|set b 0 0 1|2|get a nothing b a|
         a< STORED|STORED|VALUE a 0 1|1|VALUE b 0 1|2|END|",
    );
}

#[test]
fn gets_returns_the_id() {
    play(
        "",
        "a> set q 0 0 1|1|gets q|\na< STORED|VALUE q 0 1 0|1|END|",
    );
}

#[test]
fn illegal_mixes_are_refused_and_the_connection_stays() {
    play(
        "",
        "a> set q 0 0 1|1|get q/peek/open|
         a< STORED|CLIENT_ERROR peek and abort go with no other option but t=, and delay= with abort|
         a> get q/abort/close|get /open|get q/opne|get q q/x|
         a< CLIENT_ERROR peek and abort go with no other option but t=, and delay= with abort|CLIENT_ERROR queue name is empty|CLIENT_ERROR unknown option|CLIENT_ERROR unknown option|
         a> get q|
         a< VALUE q 0 1|1|END|",
    );
}

#[test]
fn monitor_and_confirm() {
    play(
        "",
        "a> set q 0 0 1|1|set q 0 0 1|2|set q 0 0 1|3|
         a< STORED|STORED|STORED|
         b> monitor q 10 2|
         b< VALUE q 0 1|1|END|VALUE q 0 1|2|END|END|
         b> confirm q 3|confirm q 2|confirm q 1|confirm q 0|
         b< ERROR|END|ERROR|END|
         b> monitor q 1|
         b< VALUE q 0 1|3|END|
         +500
         a> set q 0 0 1|4|
         a< STORED|
         b< VALUE q 0 1|4|END|
         +499
         b<
         +1
         b< END|
         b!
         a> get q|get q|get q|
         a< VALUE q 0 1|3|END|VALUE q 0 1|4|END|END|",
    );
}

#[test]
fn monitor_opens_no_more_than_the_queue_allows() {
    play(
        "[queue.q]\nmax_opens = 2",
        "a> set q 0 0 1|1|set q 0 0 1|2|set q 0 0 1|3|
         a< STORED|STORED|STORED|
         b> monitor q 10 3|
         b< VALUE q 0 1|1|END|VALUE q 0 1|2|END|END|
         b> get q/open|monitor q 10|confirm q 3|confirm q 1|monitor q 10|
         b< ERROR|END|ERROR|END|VALUE q 0 1|3|END|END|
         b> confirm q 2|monitor q 1|
         b< END|
         +1000
         b< END|",
    );
}

#[test]
fn an_item_that_fails_too_often_goes_to_the_error_queue() {
    play(
        "[queue.q]\nmax_deliveries = 2\nerror_queue = \"bad\"",
        "a> set q 5 0 6|poison|set q 0 0 4|good|get q/open|get q/abort|
         a< STORED|STORED|VALUE q/open 5 6|poison|END|END|
         crash
         a> get q/open|
         a< VALUE q/open 5 6|poison|END|
         a!
         b> get q/open|get bad|
         b< VALUE q/open 0 4|good|END|VALUE bad 5 6|poison|END|",
    );
}

#[test]
fn an_open_read_may_have_a_time_limit() {
    play(
        "[queue.q]\nopen_timeout = \"2s\"",
        "a> set q 0 0 1|1|get q/open|
         a< STORED|VALUE q/open 0 1|1|END|
         +1999
         b> get q|
         b< END|
         +1
         b> get q|
         b< VALUE q 0 1|1|END|
         a> get q/close|get q/open|
         a< NOT_FOUND|END|",
    );
}

#[test]
fn a_late_close_confirms_no_other_item() {
    play(
        "[defaults]\nmax_opens = 2\nopen_timeout = \"1s\"",
        "a> set q 0 0 1|A|set q 0 0 1|B|
         a< STORED|STORED|
         w> get q/open|
         w< VALUE q/open 0 1|A|END|
         +600
         w> get q/open|
         w< VALUE q/open 0 1|B|END|
         +600
         w> get q/close|
         w< NOT_FOUND|
         w!
         a> get q|get q|get q|
         a< VALUE q 0 1|A|END|VALUE q 0 1|B|END|END|",
    );
}

#[test]
fn late_is_late_for_an_abort_a_confirm_and_the_next_open() {
    play(
        "[defaults]\nmax_opens = 3\nopen_timeout = \"1s\"",
        "w> set q 0 0 1|A|set q 0 0 1|B|set q 0 0 1|C|get q/open|
         w< STORED|STORED|STORED|VALUE q/open 0 1|A|END|
         +500
         w> get q/open|get q/open|
         w< VALUE q/open 0 1|B|END|VALUE q/open 0 1|C|END|
         +600
         v> get q/open|
         v< VALUE q/open 0 1|A|END|
         w> confirm q 4|confirm q 2|get q/close|
         w< ERROR|NOT_FOUND|END|
         v> get q/close|get q|
         v< END|END|
         w> set q 0 0 1|D|get q/open|
         w< STORED|VALUE q/open 0 1|D|END|
         +1100
         v> get q/open|
         v< VALUE q/open 0 1|D|END|
         w> get q/close/open|get q/close/open|get q/abort|
         w< NOT_FOUND|END|END|
         v> get q/abort|get q|
         v< END|VALUE q 0 1|D|END|",
    );
}

#[test]
fn opening_another_item_abandons_the_late_one() {
    play(
        "[defaults]\nopen_timeout = \"1s\"",
        "w> set q 0 0 1|A|set q 0 0 1|B|get q/open|
         w< STORED|STORED|VALUE q/open 0 1|A|END|
         +1000
         v> get q|
         v< VALUE q 0 1|A|END|
         w> get q/open|get q/close|get q/open|
         w< VALUE q/open 0 1|B|END|END|END|",
    );
}

#[test]
fn an_item_that_comes_back_to_the_same_connection_may_take_the_place_that_it_had() {
    play(
        "[defaults]\nmax_opens = 2\nopen_timeout = \"1s\"",
        "w> set q 0 0 1|A|set q 0 0 1|B|get q/open|
         w< STORED|STORED|VALUE q/open 0 1|A|END|
         +1000
         w> get q/open|get q/open|get q/open|
         w< VALUE q/open 0 1|A|END|VALUE q/open 0 1|B|END|ERROR|
         w> get q/close|
         w< END|
         +1000
         w> get q/close|get q|get q|
         w< NOT_FOUND|VALUE q 0 1|B|END|END|",
    );
}

#[test]
fn what_another_connection_ends_by_its_id_keeps_its_place() {
    play(
        "[defaults]\nmax_opens = 3",
        "a> set p 0 0 1|0|set p 0 0 1|1|set p 0 0 1|2|get p/open p/open p/open|
         a< STORED|STORED|STORED|VALUE p/open 0 1|0|VALUE p/open 0 1|1|VALUE p/open 0 1|2|END|
         b> get p/abort=0|get p/close=2|
         b< END|END|
         a> get p/close|
         a< NOT_FOUND|
         a!
         b> get p|get p|get p|
         b< VALUE p 0 1|0|END|VALUE p 0 1|1|END|END|
         a> set m 0 0 1|0|set m 0 0 1|1|set m 0 0 1|2|monitor m 1 3|
         a< STORED|STORED|STORED|VALUE m 0 1|0|END|VALUE m 0 1|1|END|VALUE m 0 1|2|END|END|
         b> confirm m id=1|
         b< END|
         a> confirm m 2|
         a< NOT_FOUND|
         a!
         b> get m|get m|
         b< VALUE m 0 1|2|END|END|",
    );
}

#[test]
fn two_deliveries_of_an_item_to_one_connection_have_two_places() {
    play(
        "[defaults]\nmax_opens = 3\nopen_timeout = \"1s\"",
        "w> set q 0 0 1|A|set q 0 0 1|B|get q/open|
         w< STORED|STORED|VALUE q/open 0 1|A|END|
         +1000
         w> get q/open|get q/open|get q/close|get q/close|
         w< VALUE q/open 0 1|A|END|VALUE q/open 0 1|B|END|NOT_FOUND|END|
         w!
         v> get q|get q|
         v< VALUE q 0 1|B|END|END|",
    );
}

#[test]
fn items_are_confirmed_and_aborted_by_their_ids_in_any_order_from_any_connection() {
    play(
        "[defaults]\nmax_opens = 5",
        "w> set q 0 0 1|A|set q 0 0 1|B|set q 0 0 1|C|set q 0 0 1|D|
         w< STORED|STORED|STORED|STORED|
         w> gets q/open q/open q/open q/open|
         w< VALUE q/open 0 1 0|A|VALUE q/open 0 1 1|B|VALUE q/open 0 1 2|C|VALUE q/open 0 1 3|D|END|
         w> get q/close=1|get q/close=1|get q/abort=1|
         w< END|NOT_FOUND|NOT_FOUND|
         v> get q/abort=2|get q|get q/close=2|get other/close=2|
         v< END|VALUE q 0 1|C|END|NOT_FOUND|NOT_FOUND|
         v> confirm q id=3 id=9|confirm q id=3|confirm q id=0|confirm none id=0|
         v< NOT_FOUND|NOT_FOUND|END|NOT_FOUND|
         w> get q/close|get q/close|get q/close|get q/close|get q/open|
         w< NOT_FOUND|NOT_FOUND|NOT_FOUND|END|END|
         crash
         a> get q|
         a< END|",
    );
}

#[test]
fn an_item_that_is_not_open_is_not_confirmed_by_its_id() {
    play(
        "",
        "a> set q 0 0 1|A|get q/close=0|get q/abort=0|confirm q id=0|get q/close=0/open|
         a< STORED|NOT_FOUND|NOT_FOUND|NOT_FOUND|NOT_FOUND|
         a> gets q/open|get q/close=0/open|get q|
         a< VALUE q/open 0 1 0|A|END|END|END|",
    );
}

#[test]
fn what_the_server_ends_is_no_failed_delivery() {
    play(
        "[queue.q]\nmax_deliveries = 1",
        "a> set q 0 0 1|A|get q/open|
         a< STORED|VALUE q/open 0 1|A|END|
         a.
         b> get q/open|
         b< VALUE q/open 0 1|A|END|
         b!
         c> get q|
         c< END|",
    );
}

#[test]
fn a_lost_consumer_has_failed_with_the_item_that_it_opened_first() {
    let script = |queue: &str, left: &str| {
        format!(
            "a> set {queue} 0 0 1|A|set {queue} 0 0 1|B|set {queue} 0 0 1|C|
             a< STORED|STORED|STORED|
             w> get {queue}/open {queue}/open {queue}/open|
             w< VALUE {queue}/open 0 1|A|VALUE {queue}/open 0 1|B|VALUE {queue}/open 0 1|C|END|
             w!
             a> get {queue}|get {queue}|get {queue}|
             a< {left}"
        )
    };
    let config =
        "[defaults]\nmax_opens = 5\nmax_deliveries = 1\n[queue.all]\ncount_failures = \"all\"";
    play(
        config,
        &script("q", "VALUE q 0 1|B|END|VALUE q 0 1|C|END|END|"),
    );
    play(config, &script("all", "END|END|END|"));
}
