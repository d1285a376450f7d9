//! The memory of all queues together.

use millstream_queue::broker::BrokerLimits;

use crate::script::World;

/// Bytes of an item of 1,000 in memory, about.
const ITEM: u64 = 1_000 + 96;

fn world(items: u64) -> World {
    let mut world = World::new("[defaults]\nmax_opens = 100");
    world.queues.set_limits(BrokerLimits {
        memory_bytes: items * ITEM,
        ..BrokerLimits::default()
    });
    world
}

fn fill(world: &mut World, queues: u64, items: u64) {
    for number in 0..items {
        for queue in 0..queues {
            let body = format!("{number:01000}");
            world.send(
                'a',
                format!("set q{queue} 0 0 1000\r\n{body}\r\n").as_bytes(),
            );
            assert_eq!(world.received('a'), "STORED|");
            assert!(world.queues.memory_bytes() <= 10 * ITEM);
        }
    }
}

fn take(world: &mut World, key: &str) -> String {
    world.send('a', format!("get {key}\r\n").as_bytes());
    world.received('a')
}

#[test]
fn many_queues_hold_no_more_than_the_server_may() {
    let mut world = world(10);
    fill(&mut world, 7, 30);
    assert_eq!(world.queues.memory_bytes(), 10 * ITEM);
    for number in 0..30 {
        for queue in 0..7 {
            let got = take(&mut world, &format!("q{queue}"));
            assert_eq!(got, format!("VALUE q{queue} 0 1000|{number:01000}|END|"));
            // The queue that is being read holds one item more.
            assert!(world.queues.memory_bytes() <= (10 + 7) * ITEM);
        }
    }
    assert_eq!(world.queues.memory_bytes(), 0);
}

#[test]
fn items_that_are_deleted_flushed_or_expired_are_no_longer_held() {
    let mut world = world(10);
    fill(&mut world, 3, 3);
    assert_eq!(world.queues.memory_bytes(), 9 * ITEM);
    world.play("b> delete q0|flush q1|\nb< DELETED|END|");
    assert_eq!(world.queues.memory_bytes(), 3 * ITEM);
    assert!(take(&mut world, "q2/open").contains("END|"));
    assert_eq!(world.queues.memory_bytes(), 3 * ITEM);
    // What is open of a queue that is deleted goes with it.
    world.play("b> delete q2|set q3 0 5 1|x|\nb< DELETED|STORED|");
    assert_eq!(world.queues.memory_bytes(), 97);
    world.pass(6_000);
    assert_eq!(world.queues.memory_bytes(), 0);
}

#[test]
fn open_items_count_and_a_connection_with_some_opens_no_more() {
    let mut world = world(10);
    fill(&mut world, 1, 30);
    let mut opened = 0;
    while take(&mut world, "q0/open").starts_with("VALUE") {
        opened += 1;
        assert!(opened <= 12, "memory has no limit");
    }
    assert!(opened >= 9, "{opened}");
    world.play("a> get q0/open|\na< ERROR|");
    // Another connection gets on, and so does this one when it confirms.
    world.send('b', b"get q0/open\r\n");
    assert!(world.received('b').starts_with("VALUE"));
    world.hang_up('b');
    for _ in 0..opened {
        world.play("a> get q0/close|\na< END|");
    }
    let mut left = 0;
    while take(&mut world, "q0").starts_with("VALUE") {
        left += 1;
    }
    assert_eq!(opened + left, 30);
    assert_eq!(world.queues.memory_bytes(), 0);
}
