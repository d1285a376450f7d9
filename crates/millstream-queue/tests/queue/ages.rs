//! Ages of items: the values that operators alert on.

use crate::script::World;

fn ages(world: &mut World) -> [u64; 3] {
    let now = world.now;
    let numbers = world.queues.numbers_of("q", now).unwrap();
    ["age", "oldest_age", "oldest_open_age"].map(|name| {
        numbers
            .iter()
            .find(|(key, _)| *key == name)
            .unwrap_or_else(|| panic!("no number \"{name}\""))
            .1
    })
}

#[test]
fn the_age_of_the_oldest_item_grows_while_a_consumer_is_stuck() {
    let mut world = World::new("");
    world.play(
        "a> set q 0 0 1|1|set q 0 0 1|2|
         a< STORED|STORED|
         +1000
         b> get q/open|
         b< VALUE q/open 0 1|1|END|",
    );
    assert_eq!(ages(&mut world), [1_000, 1_000, 1_000]);
    world.pass(60_000);
    assert_eq!(ages(&mut world), [1_000, 61_000, 61_000]);
    world.play("a> get q|\na< VALUE q 0 1|2|END|");
    assert_eq!(ages(&mut world)[1..], [0, 61_000]);
    world.play("b> get q/close|\nb< END|");
    assert_eq!(ages(&mut world), [0, 0, 0]);
}

#[test]
fn an_item_that_comes_back_is_the_oldest_again() {
    let mut world = World::new("");
    world.play(
        "a> set q 0 0 1|1|get q/open|
         a< STORED|VALUE q/open 0 1|1|END|
         +500
         b> set q 0 0 1|2|
         b< STORED|
         +500",
    );
    assert_eq!(ages(&mut world)[1..], [500, 1_000]);
    world.hang_up('a');
    assert_eq!(ages(&mut world)[1..], [1_000, 0]);
}

#[test]
fn the_age_is_known_after_a_restart_and_beyond_what_memory_holds() {
    let mut world = World::new("[defaults]\nmemory_bytes = 1");
    world.play(
        "a> set q 0 0 1|1|set q 0 0 1|2|get q|
         a< STORED|STORED|VALUE q 0 1|1|END|
         +2000
         a> set q 0 0 1|3|
         a< STORED|
         +1000",
    );
    assert_eq!(ages(&mut world)[1], 3_000);
    world.restart();
    assert_eq!(ages(&mut world)[1], 3_000);
    world.play("a> get q|\na< VALUE q 0 1|2|END|");
    assert_eq!(ages(&mut world)[1], 1_000);
    world.play("a> get q|get q|\na< VALUE q 0 1|3|END|END|");
    assert_eq!(ages(&mut world)[1], 0);
}

#[test]
fn an_item_that_is_delayed_does_not_wait_yet() {
    let mut world = World::new("");
    world.play("a> set q/delay=500 0 0 1|1|\na< STORED|\n+400");
    assert_eq!(ages(&mut world)[1], 0);
    world.pass(200);
    assert_eq!(ages(&mut world)[1], 600);
}
