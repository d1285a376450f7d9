//! Replies as memcached's clients and Kestrel's clients expect them, and commands that mean nothing to a queue.

use millstream_queue::session::{Compat, SessionOptions};

use crate::script::{World, play};

#[test]
fn kestrel_clients_get_kestrels_replies() {
    let options = SessionOptions {
        compat: Compat::Kestrel,
        ..SessionOptions::default()
    };
    let mut world = World::with_options("", options);
    world.play(
        "a> set q 0 0 1|1|get q/open|get q/close|delete q|delete q|flush_all|flush q|
         a< STORED|VALUE q 0 1|1|END|END|DELETED|DELETED|Flushed all queues.|END|",
    );
}

#[test]
fn memcached_clients_get_memcacheds() {
    play(
        "",
        "a> set q 0 0 1|1|get q/open|get q/close|delete q|delete q|flush_all|
         a< STORED|VALUE q/open 0 1|1|END|END|DELETED|NOT_FOUND|OK|",
    );
}

#[test]
fn commands_of_a_cache_do_no_harm() {
    play(
        "",
        "a> add q 0 0 1|1|replace q 0 0 1|1|cas q 0 0 1 7|1|incr q 1|touch q 0|mn|bogus|version|verbosity 1|get q|
         a< NOT_STORED|NOT_STORED|NOT_FOUND|NOT_FOUND|NOT_FOUND|MN|ERROR|VERSION 1.5.0|OK|END|",
    );
}

#[test]
fn noreply_is_honoured() {
    play(
        "",
        "a> set q 0 0 1 noreply|1|set .q 0 0 1 noreply|1|delete x noreply|flush_all noreply|set q 0 0 1 noreply|2|get q|
         a< VALUE q 0 1|2|END|",
    );
}

#[test]
fn quit_ends_the_connection_and_nothing_after_it_counts() {
    let mut world = World::new("");
    world.play("a> set q 0 0 1|1|quit|get q|\na< STORED|");
    assert!(world.is_closed('a'));
    assert_eq!(world.queues.items("q"), Some(1));
}

#[test]
fn shutdown_is_obeyed_only_if_enabled() {
    play("", "a> shutdown|\na< ERROR|");
    let mut world = World::with_options(
        "",
        SessionOptions {
            shutdown: true,
            ..SessionOptions::default()
        },
    );
    world.play("a> shutdown|\na< OK|");
    assert!(world.is_closed('a'));
}

#[test]
fn stats_count() {
    let mut world = World::new("[defaults]\nsync = \"never\"");
    world.play(
        "a> set q 0 0 3|abc|set q 0 0 2|de|get q/open|get p+q|
         a< STORED|STORED|VALUE q/open 0 3|abc|END|END|",
    );
    world.send('a', b"stats\r\n");
    let stats = world.received('a');
    for line in [
        "STAT uptime 0|",
        "STAT time 1700000000|",
        "STAT curr_items 1|",
        "STAT total_items 2|",
        "STAT bytes 2|",
        "STAT cmd_get 2|",
        "STAT cmd_set 2|",
        "STAT get_hits 1|",
        "STAT get_misses 1|",
        "STAT curr_connections 1|",
        "STAT queue_creates 2|",
        "STAT queue_q_items 1|",
        "STAT queue_q_open_transactions 1|",
        "STAT queue_q_mem_bytes 2|",
        "STAT queue_q_sync never|",
        "STAT queue_q_promise survives-process-death|",
        "STAT queue_p+q_items 0|",
    ] {
        assert!(stats.contains(line), "{line} is not in {stats}");
    }
    assert!(stats.ends_with("|END|"));
    world.send('a', b"stats q\r\n");
    assert!(
        world
            .received('a')
            .starts_with("STAT items 1|STAT bytes 2|")
    );
    world.send('a', b"dump_stats q nothing\r\n");
    let dump = world.received('a');
    assert!(
        dump.starts_with("queue 'q' {|  items=1|  bytes=2|") && dump.ends_with("|}|END|"),
        "{dump}"
    );
    world.play("a> stats slabs|\na< END|");
    world.play("a> stats noreply|\na< ERROR|");
}
