//! Expiry, age, and queues that are deleted when they are unused.

use crate::script::{World, play};

#[test]
fn an_item_expires_also_after_a_live_one() {
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

/// Items that expire after 3 s and go elsewhere: "with an expiry this is a delay".
const DELAY: &str = "[queue.wait]\nexpire_to = \"ready\"\n";

#[test]
fn items_expire_after_a_restart_without_a_reader() {
    for end in ["crash", ""] {
        let mut world = World::new(DELAY);
        for item in 10..40 {
            world.play(&format!("a> set wait 0 3 2|{item}|\na< STORED|"));
        }
        world.play(&format!("{end}\n+4000"));
        assert_eq!(world.queues.items("wait"), Some(0));
        assert_eq!(world.queues.items("ready"), Some(30));
        world.play("b> get ready|get ready|\nb< VALUE ready 0 2|10|END|VALUE ready 0 2|11|END|");
    }
}

#[test]
fn items_beyond_the_memory_of_a_queue_expire_too() {
    let mut world = World::new(&format!("{DELAY}memory_bytes = 1000"));
    for item in 1000..2000 {
        world.play(&format!("a> set wait 0 3 4|{item}|\na< STORED|"));
        if item % 100 == 0 {
            world.play("+10");
        }
    }
    world.play("a> set wait 0 0 5|never|set wait 0 60 4|late|\na< STORED|STORED|\n+5000");
    assert_eq!(world.queues.items("wait"), Some(2));
    assert_eq!(world.queues.items("ready"), Some(1000));
    for item in 1000..2000 {
        world.play(&format!("b> get ready|\nb< VALUE ready 0 4|{item}|END|"));
    }
    world.play("+60000");
    assert_eq!(world.queues.items("ready"), Some(1));
    world.play("b> get wait|get wait|get ready|\nb< VALUE wait 0 5|never|END|END|VALUE ready 0 4|late|END|");
}

#[test]
fn flush_expired_reads_the_backlog_at_once() {
    let mut world = World::new("[queue.q]\nmemory_bytes = 200");
    world.play("a> set q 0 1 1|1|set q 0 2 1|2|set q 0 2 1|3|set q 0 2 1|4|\na< STORED|STORED|STORED|STORED|");
    world.play("b> set q 0 1 1|5|\nb< STORED|\n+1000");
    // A round of the backlog has just ended.
    assert_eq!(world.queues.items("q"), Some(3));
    world.now.wall_ms += 1_000;
    world.play("a> flush_expired q|\na< 3|");
    assert_eq!(world.queues.items("q"), Some(0));
}

#[test]
fn the_items_of_a_subscriber_that_is_away_expire_and_let_its_parent_take_others() {
    play(
        "[queue.'orders+audit']\nmax_items = 2\nmax_age = '2s'",
        "a> get orders+audit|set orders 0 0 1|1|set orders 0 0 1|2|set orders 0 0 1|3|
         a< END|STORED|STORED|NOT_STORED|
         crash
         +3500
         a> set orders 0 0 1|4|get orders+audit|get orders+audit|
         a< STORED|VALUE orders+audit 0 1|4|END|END|",
    );
}

/// Numbers below a limit, always the same for a seed.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |limit| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    }
}

#[test]
fn expiry_in_the_log_agrees_with_a_plain_model() {
    for seed in 1..=12u64 {
        let mut random = random(seed);
        let mut world = World::new("[queue.q]\nmemory_bytes = 300");
        // Expiry (0 never) and body, the oldest first.
        let mut model: Vec<(u64, u64)> = Vec::new();
        for item in 0..1_500 {
            match random(100) {
                0 => world.restart(),
                1..=3 => world.pass(random(4) * 700),
                4..=9 => {
                    let now = world.now.wall_ms;
                    model.retain(|&(expiry, _)| expiry == 0 || expiry > now);
                    let got = if model.is_empty() {
                        "END|".to_owned()
                    } else {
                        let body = model.remove(0).1.to_string();
                        format!("VALUE q 0 {}|{body}|END|", body.len())
                    };
                    world.play(&format!("a> get q|\na< {got}"));
                }
                _ => {
                    let seconds = random(5);
                    let expiry = match seconds {
                        0 => 0,
                        _ => world.now.wall_ms + seconds * 1_000,
                    };
                    model.push((expiry, item));
                    let body = item.to_string();
                    let length = body.len();
                    world.play(&format!(
                        "a> set q 0 {seconds} {length}|{body}|\na< STORED|"
                    ));
                }
            }
        }
        // Two seconds later all that had expired by now are gone, although nothing reads the queue.
        let now = world.now.wall_ms;
        world.pass(2_000);
        let left = |at: u64| {
            let live = model
                .iter()
                .filter(|&&(expiry, _)| expiry == 0 || expiry > at);
            live.count() as u64
        };
        let items = world.queues.items("q").unwrap_or(0);
        assert!(
            (left(world.now.wall_ms)..=left(now)).contains(&items),
            "seed {seed}: {items} items, {} to {} expected",
            left(world.now.wall_ms),
            left(now)
        );
        world.pass(10_000);
        assert_eq!(
            world.queues.items("q").unwrap_or(0),
            left(u64::MAX),
            "seed {seed}"
        );
        world.restart();
        for (_, item) in model.iter().filter(|&&(expiry, _)| expiry == 0) {
            let body = item.to_string();
            let length = body.len();
            world.play(&format!("a> get q|\na< VALUE q 0 {length}|{body}|END|"));
        }
        world.play("a> get q|\na< END|");
    }
}
