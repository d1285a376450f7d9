//! Restart, memory that stays bounded, and logs that follow the backlog.

use millstream_queue::storage::{Log, Storage};

use crate::script::{World, play};

#[test]
fn flush_spares_what_is_open() {
    play(
        "",
        "a> set q 0 0 1|1|set q 0 0 1|2|set q/delay=10 0 0 1|3|get q/open|flush q|get q/peek|
         a< STORED|STORED|STORED|VALUE q/open 0 1|1|END|END|END|
         crash
         a> get q|get q/t=50|
         a< VALUE q 0 1|1|END|
         +50
         a< END|",
    );
}

#[test]
fn a_delay_outlives_a_crash() {
    play(
        "",
        "a> set q/delay=100 0 0 1|1|set q 0 0 1|2|
         a< STORED|STORED|
         crash
         +50
         a> get q|get q|
         a< VALUE q 0 1|2|END|END|
         +50
         a> get q|
         a< VALUE q 0 1|1|END|",
    );
}

#[test]
fn with_little_memory_items_are_read_back_in_order() {
    let mut world = World::new("[defaults]\nmemory_bytes = 1000");
    for n in 0..2_000 {
        let body = n.to_string();
        world.send(
            'a',
            format!("set q {n} 0 {}\r\n{body}\r\n", body.len()).as_bytes(),
        );
        world.received('a');
    }
    world.send('a', b"stats q\r\n");
    let stats = world.received('a');
    let mem_items: u64 = stats
        .split_once("STAT mem_items ")
        .unwrap()
        .1
        .split('|')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        stats.contains("STAT items 2000|") && mem_items < 20,
        "{stats}"
    );
    for n in 0..2_000 {
        if n == 1_000 {
            world.restart();
        }
        let expected = format!("VALUE q {n} {}|{n}|END|", n.to_string().len());
        world.send('a', b"get q\r\n");
        assert_eq!(world.received('a'), expected);
    }
    world.play("a> get q|\na< END|");
}

/// The size of a queue's log as its storage sees it.
fn log_bytes(world: &mut World) -> u64 {
    world.storage.open("q").unwrap().bytes()
}

#[test]
fn a_log_follows_its_backlog_also_with_one_old_item_left() {
    let mut world = World::new("");
    let body = "x".repeat(100);
    world.play("a> set q 0 0 3|old|get q/open|\na< STORED|VALUE q/open 0 3|old|END|");
    world.play("c> set q/delay=100000000 0 0 4|late|\nc< STORED|");
    world.send('b', b"set q 0 0 4\r\nhead\r\nget q/open\r\n");
    world.received('b');
    let mut most = 0;
    for n in 0..20_000 {
        world.send(
            'c',
            format!("set q 0 0 100\r\n{body}\r\nget q\r\n").as_bytes(),
        );
        assert_eq!(
            world.received('c'),
            format!("STORED|VALUE q 0 100|{body}|END|"),
            "{n}"
        );
        most = most.max(log_bytes(&mut world));
    }
    assert!(most < 1 << 20, "a log of {most} bytes for three items");
    world.restart();
    world.play(
        "a> get q|get q|get q|
         a< VALUE q 0 3|old|END|VALUE q 0 4|head|END|END|
         +100000000
         a> get q|get q|
         a< VALUE q 0 4|late|END|END|",
    );
}

#[test]
fn a_log_follows_its_backlog_when_items_expire_after_a_live_one() {
    let mut world = World::new("");
    world.play("a> set q 0 0 4|live|\na< STORED|");
    let body = "x".repeat(100);
    for _ in 0..200 {
        for _ in 0..100 {
            world.send(
                'a',
                format!("set q 0 1 100 noreply\r\n{body}\r\n").as_bytes(),
            );
        }
        world.pass(1_001);
    }
    let bytes = log_bytes(&mut world);
    assert!(bytes < 1 << 20, "a log of {bytes} bytes for one item");
    world.play("a> get q|get q|\na< VALUE q 0 4|live|END|END|");
}

#[test]
fn damage_closes_one_queue_and_says_where() {
    let mut world = World::new("");
    world.play("a> set good 0 0 1|1|set bad 0 0 1|2|\na< STORED|STORED|");
    world
        .storage
        .open("bad")
        .unwrap()
        .append(b"nonsense")
        .unwrap();
    world.restart();
    let closed: Vec<_> = world
        .queues
        .closed()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    assert_eq!(
        closed,
        ["bad: queue \"bad\": record 1: this is not the record of a queue"]
    );
    world.play(
        "a> get good|set bad 0 0 1|3|get bad|
         a< VALUE good 0 1|1|END|SERVER_ERROR queue \"bad\" is closed: queue \"bad\": record 1: this is not the record of a queue|SERVER_ERROR queue \"bad\" is closed: queue \"bad\": record 1: this is not the record of a queue|",
    );
}

#[test]
fn a_set_waits_for_a_sync_when_the_one_that_its_policy_demands_is_late() {
    let mut world = World::new("[defaults]\nsync = '10ms'");
    // The timer does not come at first, and then does: the next span begins with the next set.
    for _ in 0..2 {
        let waits = [0, 9, 1, 5].map(|ms| waits_after(&mut world, ms));
        assert_eq!(waits, [false, false, true, false]);
        world.pass(100);
    }
}

fn waits_after(world: &mut World, ms: u64) -> bool {
    world.now.steady_us += ms * 1_000;
    world.play("a> set q 0 0 1|1|\na< STORED|");
    world.queues.take_commit_wanted()
}

#[test]
fn what_a_policy_has_promised_survives_a_loss_of_power_without_another_set() {
    let mut world = World::new("[defaults]\nsync = '10ms'");
    world.play(
        "a> set q 0 0 1|1|\na< STORED|
         +30
         power
         a> get q|\na< VALUE q 0 1|1|END|",
    );
}
