//! Work that is done in rounds: what others see between two of them, and that each round is bounded.

use millstream_queue::broker::EndedBy;
use millstream_queue::session::{Session, SessionOptions};

use crate::script::World;

/// The limit of a round, without what a queue itself costs.
const ROUND: usize = 1_000;

fn world(config: &str) -> World {
    let mut world = World::new(config);
    world.set_round(ROUND);
    world
}

/// Requests of a client that leave the rounds to the test.
struct Client(Session);

impl Client {
    fn new(world: &mut World) -> Self {
        Client(Session::new(&mut world.queues, SessionOptions::default()))
    }

    /// Sends a request. Returns whether it is answered.
    fn send(&mut self, world: &mut World, request: &str) -> bool {
        let request = request.replace('|', "\r\n");
        self.0
            .receive(&mut world.queues, request.as_bytes(), world.now);
        !self.0.is_between_rounds()
    }

    /// Does the next round. Returns whether that was the last.
    fn round(&mut self, world: &mut World) -> bool {
        assert!(self.0.has_work() && self.0.is_between_rounds());
        self.0.resume(&mut world.queues, world.now);
        !self.0.is_between_rounds()
    }

    fn answer(&mut self) -> String {
        let answer = String::from_utf8_lossy(self.0.output()).replace("\r\n", "|");
        self.0.sent(usize::MAX);
        answer
    }

    fn ask(&mut self, world: &mut World, request: &str) -> String {
        if !self.send(world, request) {
            while !self.round(world) {}
        }
        self.answer()
    }
}

fn number(world: &mut World, queue: &str, key: &str) -> u64 {
    let numbers = world.queues.numbers_of(queue, world.now).unwrap();
    numbers.iter().find(|(name, _)| *name == key).unwrap().1
}

/// Puts items with the numbers from 0 on.
fn put(world: &mut World, items: usize, key: &str, expiry: u64) {
    for item in 0..items {
        let request = format!("set {key} 0 {expiry} 5 noreply\r\n{item:05}\r\n");
        world.send('p', request.as_bytes());
    }
}

#[test]
fn delays_that_end_at_once_end_in_rounds_and_an_item_set_between_them_keeps_its_place() {
    for crashes in [false, true] {
        let mut world = world("");
        put(&mut world, 3_500, "q/delay=5000", 0);
        world.begin(5_000);
        let ready = number(&mut world, "q", "mem_items");
        assert!(
            (1..=ROUND as u64).contains(&ready),
            "{ready} after one round"
        );
        world.play("a> set q 0 0 4|last|set other 0 0 1|1|get other|\na< STORED|STORED|VALUE other 0 1|1|END|");
        if crashes {
            world.restart();
            assert_eq!(world.queues.items("q"), Some(3_501));
            world.begin(1);
        }
        assert!((3..=6).contains(&world.end_rounds()));
        for item in 0..3_500 {
            world.play(&format!("a> get q|\na< VALUE q 0 5|{item:05}|END|"));
        }
        world.play("a> get q|get q|\na< VALUE q 0 4|last|END|END|");
    }
}

#[test]
fn items_that_become_due_obey_the_limits_of_memory() {
    let body = "x".repeat(1_000);
    for (config, of_all) in [("[queue.q]\nmemory_bytes = 10_000", u64::MAX), ("", 10_000)] {
        let mut world = world(config);
        world.set_memory(of_all);
        for item in 0..200 {
            // Half of them expire later.
            let expiry = if item % 2 == 0 { 0 } else { 60 };
            world.play(&format!(
                "a> set q/delay=1000 {item} {expiry} 1000|{body}|\na< STORED|"
            ));
        }
        world.pass(2_000);
        assert_eq!(world.queues.items("q"), Some(200));
        let held = world.queues.memory_bytes();
        assert!((1_000..12_000).contains(&held), "{held} bytes");
        for item in 0..50 {
            world.play(&format!("a> get q|\na< VALUE q {item} 1000|{body}|END|"));
            assert!(world.queues.memory_bytes() < 12_000);
        }
        world.pass(60_000);
        assert_eq!(world.queues.items("q"), Some(75));
        for item in (50..200).step_by(2) {
            world.play(&format!("a> get q|\na< VALUE q {item} 1000|{body}|END|"));
        }
        world.play("a> get q|\na< END|");
        assert_eq!(world.queues.memory_bytes(), 0);
    }
}

#[test]
fn a_get_after_expired_items_searches_in_rounds_and_only_its_client_waits() {
    let mut world = world("");
    put(&mut world, 3_500, "q", 1);
    world.play("a> set q 0 0 4|live|\na< STORED|");
    // The timer has not come yet.
    world.now.wall_ms += 1_000;
    let mut one = Client::new(&mut world);
    let mut other = Client::new(&mut world);
    assert!(!one.send(&mut world, "get q/open|get none|"));
    assert_eq!(world.queues.items("q"), Some(2_501));
    assert_eq!(
        other.ask(&mut world, "set r 0 0 1|1|get r|"),
        "STORED|VALUE r 0 1|1|END|"
    );
    assert_eq!(one.answer(), "");
    let rounds = std::iter::from_fn(|| (!one.round(&mut world)).then_some(())).count();
    assert_eq!(rounds, 2);
    assert_eq!(one.answer(), "VALUE q/open 0 4|live|END|END|");
    assert_eq!(number(&mut world, "q", "expired_items"), 3_500);

    // The end of a client that searches takes nothing.
    put(&mut world, 3_500, "s", 1);
    world.play("a> set s 0 0 4|live|\na< STORED|");
    world.now.wall_ms += 1_000;
    assert!(!other.send(&mut world, "get s/t=1000|"));
    other.0.end(&mut world.queues, EndedBy::Client, world.now);
    assert_eq!(one.ask(&mut world, "get s|"), "VALUE s 0 4|live|END|");
}

#[test]
fn a_waiter_gets_the_item_after_the_expired_ones() {
    let mut world = world("[queue.q]\nmemory_bytes = 1");
    world.play("a> get q/t=9000|\na<");
    // The waiter takes the first.
    put(&mut world, 3_501, "q", 1);
    world.play("a< VALUE q/t=9000 0 5|00000|END|");
    world.now.wall_ms += 1_000;
    world.play("a> get q/t=9000|\na< ");
    world.play("b> set q 0 0 4|live|\nb< STORED|\n+0\na< VALUE q/t=9000 0 4|live|END|");
}

#[test]
fn expired_items_are_flushed_in_rounds_those_that_had_expired_when_it_was_asked() {
    let mut world = world("");
    put(&mut world, 3_500, "q", 1);
    put(&mut world, 10, "q", 2);
    world.now.wall_ms += 1_000;
    let mut client = Client::new(&mut world);
    assert!(!client.send(&mut world, "flush_expired q|"));
    world.now.wall_ms += 1_000;
    while !client.round(&mut world) {}
    assert_eq!(client.answer(), "3500|");
    assert_eq!(world.queues.items("q"), Some(10));
    assert_eq!(client.ask(&mut world, "flush_all_expired|"), "10|");
}

#[test]
fn flush_all_removes_what_its_turn_finds_in_the_queues_that_were_there() {
    let mut world = world("");
    world.set_round(1);
    for queue in ["a", "b", "c"] {
        world.play(&format!("a> set {queue} 0 0 1|1|\na< STORED|"));
    }
    let mut one = Client::new(&mut world);
    let mut other = Client::new(&mut world);
    assert!(!one.send(&mut world, "flush_all|get b|get c|"));
    assert_eq!(
        other.ask(
            &mut world,
            "get a|set a 0 0 1|2|set c 0 0 1|2|set d 0 0 1|2|"
        ),
        "END|STORED|STORED|STORED|"
    );
    assert_eq!(other.ask(&mut world, "delete b|"), "DELETED|");
    while !one.round(&mut world) {}
    assert_eq!(one.answer(), "OK|END|END|");
    assert_eq!(
        other.ask(&mut world, "get a|get d|"),
        "VALUE a 0 1|2|END|VALUE d 0 1|2|END|"
    );
}

#[test]
fn stats_are_sent_in_rounds_each_queue_once() {
    let mut world = world("");
    for queue in 0..300 {
        world.play(&format!("a> set q{queue:03} 0 0 1|1|\na< STORED|"));
    }
    for request in ["stats|", "dump_stats|"] {
        let mut one = Client::new(&mut world);
        let mut other = Client::new(&mut world);
        assert!(!one.send(&mut world, request));
        other.ask(&mut world, "delete q250|set a 0 0 1|1|");
        let mut rounds = 1;
        let mut is_done = false;
        let mut answer = String::new();
        while !is_done {
            // With less than 128 KiB it is not closed when memory is short.
            assert!((1..=128 << 10).contains(&one.0.buffer_bytes()));
            answer += &one.answer();
            is_done = one.round(&mut world);
            rounds += 1;
        }
        answer += &one.answer();
        assert!((3..=30).contains(&rounds), "{rounds}");
        assert!(answer.ends_with("|END|"));
        for queue in 0..300 {
            let lines = [
                format!("|STAT queue_q{queue:03}_items 1|"),
                format!("queue 'q{queue:03}' {{|"),
            ];
            let found: usize = lines
                .iter()
                .map(|line| answer.matches(line.as_str()).count())
                .sum();
            assert_eq!(found, usize::from(queue != 250), "{queue}");
        }
        other.ask(&mut world, "set q250 0 0 1|1|delete a|");
    }
}

#[test]
fn a_smaller_limit_drops_the_oldest_items_in_rounds() {
    let mut world = world("");
    put(&mut world, 3_500, "q", 0);
    let config = "[queue.q]\nmax_items = 10\non_full = 'drop-oldest'"
        .parse()
        .unwrap();
    world.queues.configure(config, world.now);
    world.play("a> set q 0 0 4|last|\na< STORED|");
    assert_eq!(world.queues.items("q"), Some(2_501));
    world.end_rounds();
    assert_eq!(world.queues.items("q"), Some(10));
}

#[test]
fn a_redrive_works_in_rounds_also_after_expired_items_and_moves_no_item_twice() {
    let mut world = world("[queue.dead]\nexpire_to = 'gone'\n[queue.work]\nmax_items = 400");
    world.set_round(100);
    put(&mut world, 350, "dead", 1);
    put(&mut world, 300, "dead", 0);
    world.now.wall_ms += 1_000;
    let mut one = Client::new(&mut world);
    let mut other = Client::new(&mut world);
    assert!(!one.send(&mut world, "redrive dead work|get work|"));
    let mut rounds = 1;
    while !one.round(&mut world) {
        rounds += 1;
        // What fails again meanwhile stays in the queue of dead letters.
        let taken = other.ask(&mut world, "get work|");
        if let Some(body) = taken.split('|').nth(1).filter(|body| body.len() == 5) {
            assert_eq!(
                other.ask(&mut world, &format!("set dead 0 0 5|{body}|")),
                "STORED|"
            );
        }
    }
    assert!(rounds >= 6, "{rounds}");
    let answer = one.answer();
    let moved: u64 = answer.split('|').next().unwrap().parse().unwrap();
    assert!((300..=300 + rounds).contains(&moved), "{answer}");
    let sum = ["work", "dead"].map(|queue| world.queues.items(queue).unwrap());
    assert_eq!(sum.iter().sum::<u64>(), 299);
    assert_eq!(world.queues.items("gone"), Some(350));
}

#[test]
fn a_redrive_of_large_items_is_done_in_rounds_too() {
    let mut world = world("[defaults]\nmemory_bytes = 100_000");
    world.set_round(50);
    let body = "x".repeat(200_000);
    for _ in 0..20 {
        world.play(&format!("a> set dead 0 0 200000|{body}|\na< STORED|"));
    }
    let mut one = Client::new(&mut world);
    assert!(!one.send(&mut world, "redrive dead work|"));
    assert!((1..=3).contains(&world.queues.items("work").unwrap()));
    while !one.round(&mut world) {}
    assert_eq!(
        (one.answer(), world.queues.items("work")),
        ("20|".into(), Some(20))
    );
}
