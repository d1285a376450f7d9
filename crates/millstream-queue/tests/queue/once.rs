//! `set QUEUE/id=ID`: a second set with the id adds nothing within the queue's `dedupe`.

use crate::script::{World, play};

const TEN_SECONDS: &str = "[defaults]\ndedupe = '10s'\n";

fn no_dedupe(queue: &str) -> String {
    format!(
        "CLIENT_ERROR queue \"{queue}\" remembers no ids: its setting dedupe says how long it does, such as dedupe = \"10min\"|"
    )
}

#[test]
fn a_queue_without_dedupe_takes_no_ids() {
    let config = "[queue.'q+c']\ndedupe = '0s'\n[queue.only]\nfanout_only = true\n[queue.q]\ndedupe = '1s'\n[alias]\nall = ['p', 'q']";
    let p = no_dedupe("p");
    let c = no_dedupe("q+c");
    let only = no_dedupe("only");
    play(
        config,
        &format!(
            "a> set p/id=1 0 0 1|1|get p|get only+c|
             a< {p}END|END|
             a> set only/id=1 0 0 1|1|set all/id=1 0 0 1|1|
             a< {only}{p}
             a> get q+c|set q/id=1 0 0 1|1|set q/id= 0 0 1|1|set q/id=1 0 0 1 noreply|1|get q q+c|
             a< END|{c}CLIENT_ERROR the id of a set has 1 to 250 bytes|END|"
        ),
    );
}

#[test]
fn an_id_is_taken_once_wherever_its_item_is() {
    for gone in [
        "",
        "a> get q|\n a< VALUE q 0 1|1|END|",
        "a> get q/open|get q/close|\n a< VALUE q/open 0 1|1|END|END|",
        "a> flush q|\n a< END|",
        "a> redrive q p|\n a< 1|",
        "crash",
        "power",
        "a> get q|\n a< VALUE q 0 1|1|END|\n crash",
        "a> get q|\n a< VALUE q 0 1|1|END|\n crash\n crash",
        "a> flush q|\n a< END|\n power",
        "+9999",
    ] {
        play(
            TEN_SECONDS,
            &format!(
                "a> set q/id=A-1 0 0 1|1|
                 a< STORED|
                 {gone}
                 a> flush q|set q/id=A-1 0 0 1|2|get q|set q/id=A-2 0 0 1|3|get q|
                 a< END|STORED|END|STORED|VALUE q 0 1|3|END|"
            ),
        );
    }
}

#[test]
fn an_id_is_over_after_the_time_of_its_first_set() {
    for restart in ["", "crash"] {
        play(
            TEN_SECONDS,
            &format!(
                "a> set q/id=1 0 0 1|1|
                 a< STORED|
                 +6000
                 a> set q/id=1 0 0 1|2|
                 a< STORED|
                 {restart}
                 +4000
                 a> set q/id=1 0 0 1|3|set q/id=1 0 0 1|4|get q/max=9|
                 a< STORED|STORED|VALUE q/max=9 0 1|1|VALUE q/max=9 0 1|3|END|"
            ),
        );
    }
}

#[test]
fn a_change_of_the_clock_ends_no_id() {
    let mut world = World::new(TEN_SECONDS);
    world.play("a> set q/id=1 0 0 1|1|\n a< STORED|");
    world.now.wall_ms += 3_600_000;
    let again = "a> set q/id=1 0 0 1|2|get q/max=9|\n";
    world.play(&format!("{again} a< STORED|VALUE q/max=9 0 1|1|END|"));
    world.now.wall_ms -= 7_200_000;
    // The time of the set is ahead after this restart: the id counts for its whole time again.
    world.play(&format!(
        "crash\n +9999\n {again} a< STORED|END|\n +1\n {again} a< STORED|VALUE q/max=9 0 1|2|END|"
    ));
}

#[test]
fn a_shorter_time_holds_at_once_and_none_forgets_all() {
    let mut world = World::new(TEN_SECONDS);
    world.play("a> set q/id=1 0 0 1|1|\n a< STORED|\n +2000");
    let shorter = "[defaults]\ndedupe = '2s'".parse().unwrap();
    world.queues.configure(shorter, world.now);
    world.play("a> set q/id=1 0 0 1|2|get q/max=9|\n a< STORED|VALUE q/max=9 0 1|1|VALUE q/max=9 0 1|2|END|");
    world.queues.configure("".parse().unwrap(), world.now);
    let refused = no_dedupe("q");
    world.play(&format!("a> set q/id=1 0 0 1|3|get q|\n a< {refused}END|"));
}

#[test]
fn a_refused_set_leaves_no_id() {
    let config = "[defaults]\ndedupe = '10s'\nmax_items = 1\nmax_item_bytes = 3\n";
    play(
        config,
        "a> set q/id=1 0 0 1|1|set q/id=2 0 0 1|2|set q/id=3 0 0 4|long|status READONLY|set q/id=4 0 0 1|4|status UP|
         a< STORED|NOT_STORED|NOT_STORED|END|NOT_STORED|END|
         crash
         a> set q/id=1 0 0 1|1|get q|set q/id=1 0 0 1|1|set q/id=2 0 0 1|2|get q|set q/id=3 0 0 1|3|get q|set q/id=4 0 0 1|4|get q|
         a< STORED|VALUE q 0 1|1|END|STORED|STORED|VALUE q 0 1|2|END|STORED|VALUE q 0 1|3|END|STORED|VALUE q 0 1|4|END|",
    );
}

#[test]
fn a_queue_that_knows_as_many_ids_as_it_may_refuses_others() {
    let full = "SERVER_ERROR queue \"q\" remembers 2 ids, its dedupe_ids: it takes no other before one of them is over|";
    play(
        "[defaults]\ndedupe = '10s'\ndedupe_ids = 2",
        &format!(
            "a> set q/id=1 0 0 1|1|
             a< STORED|
             +4000
             a> set q/id=2 0 0 1|2|set q/id=3 0 0 1|3|set q/id=1 0 0 1|4|set q 0 0 1|5|
             a< STORED|{full}STORED|STORED|
             crash
             a> set q/id=3 0 0 1|3|
             a< {full}
             +6000
             a> set q/id=3 0 0 1|6|set q/id=4 0 0 1|7|get q/max=9|
             a< STORED|{full}VALUE q/max=9 0 1|1|VALUE q/max=9 0 1|2|VALUE q/max=9 0 1|5|VALUE q/max=9 0 1|6|END|"
        ),
    );
}

#[test]
fn delayed_expired_and_failed_items_count() {
    let config =
        "[defaults]\ndedupe = '10s'\nmax_deliveries = 1\nerror_queue = 'bad'\nexpire_to = 'late'";
    play(
        config,
        "a> set q/id=1/delay=500 0 0 1|1|set q/delay=500/id=1 0 0 1|2|set q/id=2 0 1 1|3|set q/id=3 0 0 1|4|
         a< STORED|STORED|STORED|STORED|
         crash
         +1500
         a> get q/open|get q/close/open|get q/abort|get bad|get late|
         a< VALUE q/open 0 1|1|END|VALUE q/close/open 0 1|4|END|END|VALUE bad 0 1|4|END|VALUE late 0 1|3|END|
         a> set q/id=1 0 0 1|5|set q/id=2 0 0 1|6|set q/id=3 0 0 1|7|get q|
         a< STORED|STORED|STORED|END|
         a> set bad/id=1 0 0 1|8|get bad|
         a< STORED|VALUE bad 0 1|8|END|",
    );
}

#[test]
fn each_queue_that_gets_the_item_remembers_the_id() {
    let config =
        "[defaults]\ndedupe = '10s'\n[alias]\nboth = ['a', 'b']\n[queue.only]\nfanout_only = true";
    play(
        config,
        "x> get q+c|get only+c|set q/id=1 0 0 1|1|set q/id=1 0 0 1|2|set only/id=1 0 0 1|1|set only/id=1 0 0 1|2|
         x< END|END|STORED|STORED|STORED|STORED|
         x> get q/max=9 q+c/max=9 only+c/max=9|
         x< VALUE q/max=9 0 1|1|VALUE q+c/max=9 0 1|1|VALUE only+c/max=9 0 1|1|END|
         x> set a/id=7 0 0 1|1|set both/id=7 0 0 1|2|set both/id=7 0 0 1|3|get a/max=9 b/max=9|
         x< STORED|STORED|STORED|VALUE a/max=9 0 1|1|VALUE b/max=9 0 1|2|END|
         crash
         x> set both/id=7 0 0 1|4|set q/id=1 0 0 1|5|get a b q q+c|
         x< STORED|STORED|END|",
    );
}

#[test]
fn a_full_fan_out_queue_leaves_no_id_anywhere() {
    let config = "[defaults]\ndedupe = '10s'\n[queue.'q+c']\nmax_items = 1\n[queue.'p+c']\nmax_items = 1\non_full = 'skip'";
    play(
        config,
        "x> get q+c|set q/id=1 0 0 1|1|set q/id=2 0 0 1|2|set q/id=1 0 0 1|3|get q+c|set q/id=2 0 0 1|4|get q+c|get q/max=9|
         x< END|STORED|NOT_STORED|STORED|VALUE q+c 0 1|1|END|STORED|VALUE q+c 0 1|4|END|VALUE q/max=9 0 1|1|VALUE q/max=9 0 1|4|END|
         x> get p+c|set p/id=1 0 0 1|1|set p/id=2 0 0 1|2|get p+c|set p/id=2 0 0 1|3|get p+c|get p/max=9|
         x< END|STORED|STORED|VALUE p+c 0 1|1|END|STORED|VALUE p+c 0 1|3|END|VALUE p/max=9 0 1|1|VALUE p/max=9 0 1|2|END|",
    );
}

#[test]
fn a_set_that_failed_in_some_of_its_queues_is_completed_by_a_second_one() {
    let mut world = World::new(TEN_SECONDS);
    world.play("a> get q+c|\n a< END|\n b> get q/t=5000|");
    world.storage.set_failing("q+c", true);
    world.send('a', b"set q/id=1 0 0 1\r\n1\r\n");
    let answer = world.received('a');
    assert!(answer.starts_with("SERVER_ERROR queue \"q+c\""), "{answer}");
    world.storage.set_failing("q+c", false);
    world.play(
        "b< VALUE q/t=5000 0 1|1|END|
         a> set q/id=1 0 0 1|2|set q/id=1 0 0 1|3|get q/max=9 q+c/max=9|
         a< STORED|STORED|VALUE q+c/max=9 0 1|2|END|",
    );
}

#[test]
fn an_answer_to_a_second_set_is_as_durable_as_one_to_a_first() {
    let config = "[defaults]\ndedupe = '10s'\nsync = 'never'";
    let lost = "a> set q/id=1 0 0 1|1|\n a< STORED|\n power\n a> set q/id=1 0 0 1|2|get q|\n";
    play(config, &format!("{lost} a< STORED|VALUE q 0 1|2|END|"));
    play(
        config,
        "a> set q/id=1 0 0 1|1|set q/id=1/sync 0 0 1|2|
         a< STORED|STORED|
         power
         a> set q/id=1 0 0 1|3|get q/max=2|
         a< STORED|VALUE q/max=2 0 1|1|END|",
    );
}

#[test]
fn a_deleted_queue_forgets_its_ids_and_an_empty_one_is_not_deleted_before_they_are_over() {
    play(
        "[defaults]\ndedupe = '10s'\ndelete_empty_after = '2s'",
        "a> set q/id=1 0 0 1|1|get q|
         a< STORED|VALUE q 0 1|1|END|
         +9000
         a> set q/id=1 0 0 1|2|get q|delete q|set q/id=1 0 0 1|3|get q|
         a< STORED|END|DELETED|STORED|VALUE q 0 1|3|END|
         +9000
         a> delete q|
         a< DELETED|
         a> set q/id=1 0 0 1|3|get q|
         a< STORED|VALUE q 0 1|3|END|
         +10001
         a> delete q|
         a< NOT_FOUND|",
    );
}

/// Ids outlive the records of their items, whose space is freed, and which are written again as long as they must be.
#[test]
fn the_log_is_compacted_and_keeps_the_ids() {
    let mut world = World::new("[defaults]\ndedupe = '2s'");
    let logsize = |world: &mut World| -> u64 {
        world.send('s', b"stats q\r\n");
        let stats = world.received('s');
        let size = stats.split("STAT logsize ").nth(1).unwrap();
        size.split('|').next().unwrap().parse().unwrap()
    };
    let body = "x".repeat(500);
    for number in 0..20_000 {
        let set = format!("set q/id={number} 0 0 500\r\n{body}\r\nget q\r\n");
        world.send('a', set.as_bytes());
        assert!(world.received('a').starts_with("STORED|VALUE"), "{number}");
        world.pass(1);
        if number % 5_000 == 4_999 {
            // 2,000 ids count: all items were 10 MB.
            let size = logsize(&mut world);
            assert!(size < 3_000_000, "{size} bytes after {number}");
            world.restart();
        }
    }
    for number in (18_010..20_000).rev() {
        world.send('a', format!("set q/id={number} 0 0 1\r\nx\r\n").as_bytes());
    }
    assert_eq!(world.received('a'), "STORED|".repeat(1_990));
    world.play(
        "a> get q|set q/id=17990 0 0 1|x|get q|
         a< END|STORED|VALUE q 0 1|x|END|",
    );
}

/// A record that is pruned leaves its id in one that is as durable.
#[test]
fn an_id_that_is_durable_stays_durable_when_it_is_written_again() {
    let mut world = World::new("[defaults]\ndedupe = '1h'\nsync = 'never'");
    world.play("a> set q/id=1/sync 0 0 1|1|get q|\n a< STORED|VALUE q 0 1|1|END|");
    let body = "x".repeat(500);
    for number in 0..20_000 {
        let set = format!("set q 0 0 500\r\n{body}\r\nget q\r\n");
        world.send('a', set.as_bytes());
        assert!(world.received('a').starts_with("STORED|VALUE"), "{number}");
    }
    world.play("power\n a> flush q|set q/id=1 0 0 1|2|get q|\n a< END|STORED|END|");
}
