//! Limits of queues and of clients.

use millstream_queue::protocol::Limits;
use millstream_queue::session::SessionOptions;

use crate::script::{World, play};

#[test]
fn a_full_queue_refuses() {
    play(
        "[defaults]\nmax_items = 2\nmax_bytes = 5\nmax_item_bytes = 4",
        "a> set q 0 0 5|12345|set q 0 0 2|ab|set q 0 0 4|1234|set q 0 0 3|cde|set q 0 0 0||get q|set q 0 0 0||
         a< NOT_STORED|STORED|NOT_STORED|STORED|NOT_STORED|VALUE q 0 2|ab|END|STORED|",
    );
}

#[test]
fn refusals_are_counted_by_reason() {
    let config = "[queue.small]\nmax_item_bytes = 1\n[queue.full]\nmax_items = 1\n[queue.ids]\ndedupe = '10s'\ndedupe_ids = 1\n[queue.only]\nfanout_only = true\n[queue.'p+slow']\nmax_items = 1\non_full = 'skip'";
    let mut world = World::new(config);
    let sets = ["small", "full", "ids/id=1", "ids/id=2", "only", "disk", "p"];
    for name in sets {
        world.send('a', format!("set {name} 0 0 1\r\n1\r\n").as_bytes());
    }
    world.storage.set_failing("disk", true);
    world.send('a', b"set small 0 0 2\r\n12\r\nset full 0 0 1\r\n1\r\n");
    world.send('a', b"set disk 0 0 1\r\n1\r\nset p 0 0 1\r\n1\r\n");
    let answers = world.received('a');
    assert_eq!(answers.matches("NOT_STORED").count(), 2, "{answers}");
    assert_eq!(answers.matches("SERVER_ERROR").count(), 3, "{answers}");
    for (name, reason) in [
        ("small", "refused_too_large"),
        ("full", "refused_full"),
        ("ids", "refused_too_many_ids"),
        ("only", "refused_no_fanout"),
        ("disk", "refused_disk"),
    ] {
        let numbers = world.queues.numbers_of(name, world.now).unwrap();
        let refused = numbers.iter().filter(|(key, _)| key.starts_with("refused"));
        let counted: Vec<_> = refused.filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [&("refused_items", 1), &(reason, 1)]);
    }
    let numbers = world.queues.numbers_of("p+slow", world.now).unwrap();
    assert!(numbers.contains(&("skipped_items", 1)));
}

#[test]
fn or_drops_its_oldest() {
    play(
        "[defaults]\nmax_items = 2\nmax_bytes = 5\ndiscard_old = true",
        "a> set q 0 0 1|1|set q 0 0 1|2|set q 0 0 1|3|set q 0 0 4|long|set q 0 0 6|longer|
         a< STORED|STORED|STORED|STORED|NOT_STORED|
         a> get q|get q|get q|
         a< VALUE q 0 1|3|END|VALUE q 0 4|long|END|END|
         crash
         a> get q|
         a< END|",
    );
}

#[test]
fn an_item_over_the_servers_limit_is_swallowed() {
    let limits = Limits {
        item_bytes: 10,
        ..Limits::default()
    };
    let mut world = World::with_options(
        "",
        SessionOptions {
            limits,
            ..SessionOptions::default()
        },
    );
    world.play(
        "a> set q 0 0 11|12345678901|set q 0 0 10|1234567890|get q|
         a< SERVER_ERROR object too large for cache|STORED|VALUE q 0 10|1234567890|END|",
    );
}

#[test]
fn names_are_checked_wherever_they_come() {
    let fault = "CLIENT_ERROR queue name has a character that is not allowed: '/', ',', '~', blank, control, or not UTF-8|";
    let shape =
        "CLIENT_ERROR queue name must not begin with '.' nor have an empty part beside '+'|";
    play(
        "",
        &format!(
            "a> set ../evil 0 0 1|1|get .|delete ..|flush a~b|monitor + 1|confirm .x 1|get q|
             a< {shape}{shape}{shape}{fault}{shape}{shape}END|"
        ),
    );
    let long = "n".repeat(251);
    play(
        "",
        &format!(
            "a> set {long} 0 0 1|1|get q|\na< CLIENT_ERROR queue name is longer than 250 bytes|END|"
        ),
    );
}

#[test]
fn a_reader_that_does_not_read_costs_a_bounded_amount() {
    use millstream_queue::session::Session;
    let mut world = World::new("");
    let body = "x".repeat(1000);
    for _ in 0..300 {
        world.send('a', format!("set q 0 0 1000\r\n{body}\r\n").as_bytes());
    }
    let options = SessionOptions {
        output_bytes: 10_000,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&mut world.queues, options);
    session.receive(
        &mut world.queues,
        "get q q q q q q q q q q q q q q q q q q q q\r\n"
            .repeat(10)
            .as_bytes(),
        world.now,
    );
    assert!(
        session.output().len() < 12_000,
        "{}",
        session.output().len()
    );
    assert!(world.queues.items("q").unwrap() > 280);
    let mut got = 0;
    while !session.output().is_empty() {
        got += session
            .output()
            .windows(5)
            .filter(|five| five == b"VALUE")
            .count();
        let bytes = session.output().len();
        session.sent(bytes);
        session.resume(&mut world.queues, world.now);
        assert!(session.output().len() < 12_000);
    }
    assert_eq!(got, 200);
    // What such a client pipelines is no longer read at some point.
    session.receive(
        &mut world.queues,
        b"get q q q q q q q q q q q q q q\r\n",
        world.now,
    );
    assert!(session.wants_input());
    session.receive(&mut world.queues, &vec![b'x'; 70_000], world.now);
    assert!(!session.wants_input());
}

#[test]
fn a_client_that_must_log_in_gets_nothing_before() {
    let credentials = Some("ann:secret\nbob:word\n".parse().unwrap());
    let mut world = World::with_options(
        "",
        SessionOptions {
            credentials,
            ..SessionOptions::default()
        },
    );
    world.play(
        "a> get q|set k 0 0 9|ann wrong|set k 0 0 99|
         a< CLIENT_ERROR unauthenticated|CLIENT_ERROR authentication failure|
         b> set k 0 0 8|bob word|get q|
         b< STORED|END|",
    );
}

#[test]
fn another_password_can_be_tried_only_after_the_first_was_paid_for() {
    use millstream_queue::session::Session;
    let mut world = World::new("");
    let options = SessionOptions {
        credentials: Some("ann:secret\n".parse().unwrap()),
        ..SessionOptions::default()
    };
    let mut session = Session::new(&mut world.queues, options);
    let tries = "set auth 0 0 9\r\nann wrong\r\nset auth 0 0 10\r\nann secret\r\nmn\r\n";
    session.receive(&mut world.queues, tries.as_bytes(), world.now);
    let failure = b"CLIENT_ERROR authentication failure\r\n";
    assert_eq!(session.output(), failure);
    assert_eq!(session.take_refused().as_deref(), Some("ann"));
    session.resume(&mut world.queues, world.now);
    session.receive(&mut world.queues, b"mn\r\n", world.now);
    assert_eq!(session.output(), failure);
    assert!(!session.has_work());
    session.sent(failure.len());
    session.release();
    session.resume(&mut world.queues, world.now);
    assert_eq!(session.output(), b"STORED\r\nMN\r\nMN\r\n");
    assert_eq!(session.take_refused(), None);
}

#[test]
fn a_read_only_server_gives_and_a_quiescent_one_does_not() {
    play(
        "",
        "a> set q 0 0 1|1|set q 0 0 1|2|status READONLY|status|set q 0 0 1|3|get q|
         a< STORED|STORED|END|READONLY|NOT_STORED|VALUE q 0 1|1|END|
         a> status quiescent|get q|set q 0 0 1|3|status up|get q|status|status sideways|
         a< END|ERROR|NOT_STORED|END|VALUE q 0 1|2|END|UP|CLIENT_ERROR status is UP, READONLY or QUIESCENT|",
    );
}

#[test]
fn a_quiescent_server_begins_no_fan_out_queue() {
    play(
        "",
        "a> status quiescent|get q+x|status up|set q 0 0 1|1|get q+x|
         a< END|ERROR|END|STORED|END|",
    );
}

#[test]
fn what_is_open_can_be_confirmed_and_aborted_on_a_quiescent_server() {
    play(
        "[defaults]\nmax_opens = 3",
        "a> set q 0 0 1|1|set q 0 0 1|2|set q 0 0 1|3|get q/open|get q/open|get q/open|
         a< STORED|STORED|STORED|VALUE q/open 0 1|1|END|VALUE q/open 0 1|2|END|VALUE q/open 0 1|3|END|
         b> status QUIESCENT|
         b< END|
         a> get q/close|get q/close/open|get q/close/t=10|
         a< END|ERROR|END|
         a> get q/close|get q/peek|get q/abort|
         a< END|ERROR|END|
         b> status UP|get q|
         b< END|END|
         crash
         a> get q|
         a< END|",
    );
    play(
        "",
        "a> set q 0 0 1|1|get q/open|
         a< STORED|VALUE q/open 0 1|1|END|
         b> status QUIESCENT|
         b< END|
         a> get q/abort|get never/close|get never/abort|
         a< END|END|END|
         b> status UP|get q|
         b< END|VALUE q 0 1|1|END|",
    );
}

#[test]
fn a_quiescent_server_ends_the_waits_for_items() {
    play(
        "",
        "a> set q 0 0 1|1|get q/open|
         a< STORED|VALUE q/open 0 1|1|END|
         b> get q/t=60000|
         b<
         c> monitor q 60|
         c<
         a> status QUIESCENT|
         a< END|
         b< END|
         c< END|
         a> get q/abort|status UP|get q|
         a< END|END|VALUE q 0 1|1|END|",
    );
}

#[test]
fn settings_change_while_the_server_runs() {
    let mut world = World::new("");
    world.play("a> set q 0 0 1|1|\na< STORED|");
    world
        .queues
        .configure("[defaults]\nmax_items = 1".parse().unwrap(), world.now);
    world.play("a> set q 0 0 1|2|\na< NOT_STORED|");
}
