//! `get QUEUE/max=N`: several items in one answer.

use millstream_queue::session::{Compat, SessionOptions};

use crate::script::{World, play};

const THREE: &str = "a> set q 0 0 1|1|set q 0 0 1|2|set q 0 0 1|3|\n a< STORED|STORED|STORED|\n";

/// Plays a script where `q` has the items 1, 2 and 3.
fn with_three(config: &str, script: &str) {
    play(config, &format!("{THREE}{script}"));
}

#[test]
fn an_answer_has_as_many_items_as_there_are() {
    with_three(
        "",
        "b> get q/max=2|
         b< VALUE q/max=2 0 1|1|VALUE q/max=2 0 1|2|END|
         b> get q/max=50|get q/max=50|get new/max=2|
         b< VALUE q/max=50 0 1|3|END|END|END|",
    );
}

#[test]
fn opened_items_are_confirmed_by_their_ids_in_any_order() {
    with_three(
        "",
        "b> gets q/open/max=3|
         b< VALUE q/open/max=3 0 1 0|1|VALUE q/open/max=3 0 1 1|2|VALUE q/open/max=3 0 1 2|3|END|
         a> get q|
         a< END|
         b> confirm q id=2 id=0|get q/abort=1|get q/details/max=9|
         b< END|END|VALUE q/details/max=9 0 1 1 1700000000000 0 1 1700000000000|2|END|
         crash
         b> get q|
         b< END|",
    );
}

#[test]
fn a_lost_connection_returns_all_that_it_had_open() {
    with_three(
        "",
        "b> get q/open/max=2|
         b< VALUE q/open/max=2 0 1|1|VALUE q/open/max=2 0 1|2|END|
         b!
         a> get q/max=9|
         a< VALUE q/max=9 0 1|1|VALUE q/max=9 0 1|2|VALUE q/max=9 0 1|3|END|",
    );
    with_three(
        "",
        "b> get q/open/max=2|
         b< VALUE q/open/max=2 0 1|1|VALUE q/open/max=2 0 1|2|END|
         crash
         a> get q/max=9|
         a< VALUE q/max=9 0 1|1|VALUE q/max=9 0 1|2|VALUE q/max=9 0 1|3|END|",
    );
}

#[test]
fn close_confirms_all_that_the_connection_has_open() {
    with_three(
        "",
        "b> get q/open/max=2|get q/close/open/max=2|get q/close/open/max=2|
         b< VALUE q/open/max=2 0 1|1|VALUE q/open/max=2 0 1|2|END|VALUE q/close/open/max=2 0 1|3|END|END|
         b!
         a> get q|
         a< END|",
    );
    // Without `max` it confirms one, as ever; by id it confirms that one.
    with_three(
        "",
        "b> get q/open/max=2|get q/close|get q/close=1/open/max=2|get q/close|
         b< VALUE q/open/max=2 0 1|1|VALUE q/open/max=2 0 1|2|END|END|VALUE q/close=1/open/max=2 0 1|3|END|END|
         crash
         a> get q|
         a< END|",
    );
}

#[test]
fn a_close_that_comes_too_late_confirms_the_others_and_opens_nothing() {
    with_three(
        "[queue.q]\nopen_timeout = '1s'",
        "b> get q/open/max=2|
         b< VALUE q/open/max=2 0 1|1|VALUE q/open/max=2 0 1|2|END|
         b> touch q/id=1 60|
         b< TOUCHED|
         +1000
         b> get q/close/open/max=2|get q/close/open/max=2|
         b< NOT_FOUND|VALUE q/close/open/max=2 0 1|1|VALUE q/close/open/max=2 0 1|3|END|",
    );
}

#[test]
fn what_a_connection_may_open_bounds_a_batch() {
    with_three(
        "[queue.q]\nmax_opens = 2",
        "b> get q/open/max=9|get q/open/max=9|get q/max=9|get q/close/open/max=9|
         b< VALUE q/open/max=9 0 1|1|VALUE q/open/max=9 0 1|2|END|ERROR|ERROR|VALUE q/close/open/max=9 0 1|3|END|",
    );
    let mut world = World::new("");
    world.set_opens(2);
    world.play(&format!(
        "{THREE}
         b> get q/open/max=9|get q/open/max=9|
         b< VALUE q/open/max=9 0 1|1|VALUE q/open/max=9 0 1|2|END|ERROR|"
    ));
}

#[test]
fn it_waits_for_the_first_item_only() {
    play(
        "",
        "b> get q/open/max=3/t=5000|
         a> set q 0 0 1|1|
         a< STORED|
         b< VALUE q/open/max=3/t=5000 0 1|1|END|
         b> get q/close/max=3/t=50/open|
         +50
         b< END|
         b> get q/max=3/t=5000|
         c> get q/t=5000|
         a> set q/delay=7 0 0 1|2|set q/delay=7 0 0 1|3|set q/delay=7 0 0 1|4|set q/delay=7 0 0 1|5|
         a< STORED|STORED|STORED|STORED|
         +7
         c< VALUE q/t=5000 0 1|3|END|
         b< VALUE q/max=3/t=5000 0 1|2|VALUE q/max=3/t=5000 0 1|4|VALUE q/max=3/t=5000 0 1|5|END|",
    );
}

#[test]
fn the_first_queue_with_an_item_has_all_of_an_answer() {
    with_three(
        "",
        "a> set p 0 0 1|9|
         a< STORED|
         b> get p,q/open/max=2|get p,q/close/open/max=2/details|
         b< VALUE p,q/open/max=2 0 1|9|END|VALUE q 0 1 0 1700000000000 0 0 0|1|VALUE q 0 1 1 1700000000000 0 0 0|2|END|
         a> set p 0 0 1|8|
         a< STORED|
         b> get p,q/close/open/max=2|get p,q/close/open/max=2|
         b< VALUE p,q/close/open/max=2 0 1|8|END|VALUE p,q/close/open/max=2 0 1|3|END|",
    );
}

#[test]
fn several_keys_have_a_batch_each() {
    with_three(
        "",
        "a> set p 0 0 1|9|
         a< STORED|
         b> get q/max=2 none/max=2 p/max=2 q|
         b< VALUE q/max=2 0 1|1|VALUE q/max=2 0 1|2|VALUE p/max=2 0 1|9|VALUE q 0 1|3|END|",
    );
}

#[test]
fn a_batch_of_nothing_is_refused() {
    let none = "CLIENT_ERROR max goes with a get that takes or opens items, not with peek, abort, or close without open|";
    with_three(
        "",
        &format!(
            "b> get q/peek/max=2|get q/max=2/abort|get q/close/max=2|get q/max=0|get q/max=x|
             b< {none}{none}{none}CLIENT_ERROR max must be a whole number from 1 on|CLIENT_ERROR max must be a whole number from 1 on|"
        ),
    );
}

#[test]
fn an_answer_is_as_long_as_the_limit_on_output() {
    let options = SessionOptions {
        output_bytes: 4_000,
        ..SessionOptions::default()
    };
    let mut world = World::with_options("", options);
    let item = "x".repeat(900);
    for _ in 0..5 {
        world.send('a', format!("set q 0 0 900\r\n{item}\r\n").as_bytes());
    }
    let long = "y".repeat(9_000);
    world.send('a', format!("set q 0 0 9000\r\n{long}\r\n").as_bytes());
    assert_eq!(world.received('a'), "STORED|".repeat(6));
    let mut counts = Vec::new();
    loop {
        world.send('b', b"get q/max=50\r\n");
        let got = world.received('b');
        let count = got.matches("VALUE").count();
        // The first item is there whatever its length is.
        assert!(got.len() < 4_000 || count == 1, "{} bytes", got.len());
        if count == 0 {
            break;
        }
        counts.push(count);
    }
    assert_eq!(counts, [3, 2, 1]);
}

/// A round does 12 items here, and half of them have expired.
#[test]
fn a_batch_is_done_in_rounds() {
    let mut world = World::new("");
    world.set_round(12);
    for number in 0..100 {
        world.play(&format!(
            "a> set q {number} {} 1|x|
             a< STORED|",
            number % 2
        ));
    }
    world.begin(1_500);
    world.send('b', b"get q/open/max=30\r\nget q/close/open/max=90\r\n");
    let got = world.received('b');
    let flags: Vec<u32> = got
        .split("VALUE ")
        .skip(1)
        .map(|value| value.split(' ').nth(1).unwrap().parse().unwrap())
        .collect();
    let live: Vec<u32> = (0..100).filter(|number| number % 2 == 0).collect();
    assert_eq!(flags, live);
    assert_eq!(got.matches("END|").count(), 2);
}

#[test]
fn a_quiescent_server_opens_no_batch() {
    with_three(
        "",
        "b> get q/open/max=2|status QUIESCENT|get q/close/open/max=2|status UP|get q/max=2|
         b< VALUE q/open/max=2 0 1|1|VALUE q/open/max=2 0 1|2|END|END|ERROR|END|VALUE q/max=2 0 1|3|END|",
    );
}

#[test]
fn kestrels_replies_name_the_queue() {
    let options = SessionOptions {
        compat: Compat::Kestrel,
        ..SessionOptions::default()
    };
    let mut world = World::with_options("", options);
    world.play(&format!(
        "{THREE}
         b> get q/max=2|get p,q/max=2|
         b< VALUE q 0 1|1|VALUE q 0 1|2|END|VALUE q 0 1|3|END|"
    ));
}
