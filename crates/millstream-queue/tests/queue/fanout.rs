//! Fan-out queues and aliases.

use crate::script::{World, play};

#[test]
fn a_child_gets_a_copy_of_all_that_comes_after_its_first_mention() {
    play(
        "",
        "a> set orders 0 0 1|0|get orders+audit|set orders 3 0 1|1|get orders+audit|get orders+audit|
         a< STORED|END|STORED|VALUE orders+audit 3 1|1|END|END|
         a> get orders|get orders|get orders|
         a< VALUE orders 0 1|0|END|VALUE orders 3 1|1|END|END|
         crash
         a> set orders 0 0 1|2|get orders+audit|delete orders+audit|set orders 0 0 1|3|get orders|get orders|
         a< STORED|VALUE orders+audit 0 1|2|END|DELETED|STORED|VALUE orders 0 1|2|END|VALUE orders 0 1|3|END|
         a> get orders+audit|
         a< END|",
    );
}

#[test]
fn a_child_may_come_before_its_parent_and_be_addressed_itself() {
    play(
        "",
        "a> get p+c|set p+c 0 0 1|1|set p 0 0 1|2|get p+c|get p+c|get p|
         a< END|STORED|STORED|VALUE p+c 0 1|1|END|VALUE p+c 0 1|2|END|VALUE p 0 1|2|END|",
    );
}

#[test]
fn a_waiter_at_a_child_is_served() {
    play(
        "",
        "a> get p+c/t=1000|
         b> set p 0 0 1|1|
         b< STORED|
         a< VALUE p+c/t=1000 0 1|1|END|",
    );
}

#[test]
fn a_fanout_only_parent_keeps_nothing() {
    play(
        "[queue.p]\nfanout_only = true\n[queue.\"p+b\"]\nfanout_only = false",
        "a> get p+b|set p 0 0 1|1|get p|get p+b|
         a< END|STORED|END|VALUE p+b 0 1|1|END|",
    );
}

#[test]
fn a_fanout_only_parent_without_fan_out_queues_takes_nothing() {
    let none = "SERVER_ERROR queue \"p\" keeps no items, since it is fanout_only, and has no fan-out queue: the first get of one, such as \"p+audit\", makes it|";
    play(
        "[queue.p]\nfanout_only = true\n[queue.\"p+audit\"]\nfanout_only = false\n[alias]\nall = ['q', 'p']\n[queue.x]\nmax_deliveries = 1\nerror_queue = 'p'",
        &format!(
            "a> delete p+audit|set p 0 0 1|1|set all 0 0 1|1|get q|set x 0 0 1|2|get x/open|get x/abort|get x|
             a< DELETED|{none}{none}END|STORED|VALUE x/open 0 1|2|END|END|VALUE x 0 1|2|END|
             a> get p+audit|set p 0 0 1|3|get p+audit|
             a< END|STORED|VALUE p+audit 0 1|3|END|"
        ),
    );
}

#[test]
fn all_get_an_item_or_none() {
    play(
        "[queue.\"p+full\"]\nmax_items = 1",
        "a> get p+full|get p+b|set p 0 0 1|1|set p 0 0 1|2|get p+b|get p+b|get p|get p|
         a< END|END|STORED|NOT_STORED|VALUE p+b 0 1|1|END|END|VALUE p 0 1|1|END|END|",
    );
}

#[test]
fn an_alias_stands_for_several_queues() {
    play(
        "[alias]\nboth = [\"x\", \"y\"]",
        "a> set both 0 0 1|1|get both|get x y|get both/t=5|delete both|
         a< STORED|END|VALUE x 0 1|1|VALUE y 0 1|1|END|END|NOT_FOUND|",
    );
}

#[test]
fn a_full_fan_out_queue_refuses_for_all_drops_its_oldest_or_is_skipped() {
    let script = "a> get p+c|set p 0 0 1|1|set p 0 0 1|2|
         a< END|STORED|";
    for (on_full, answer, parent, child) in [
        (
            "refuse",
            "NOT_STORED|",
            "VALUE p 0 1|1|END|END|",
            "VALUE p+c 0 1|1|END|END|",
        ),
        (
            "drop-oldest",
            "STORED|",
            "VALUE p 0 1|1|END|VALUE p 0 1|2|END|",
            "VALUE p+c 0 1|2|END|END|",
        ),
        (
            "skip",
            "STORED|",
            "VALUE p 0 1|1|END|VALUE p 0 1|2|END|",
            "VALUE p+c 0 1|1|END|END|",
        ),
    ] {
        let config = format!("[queue.'p+c']\nmax_items = 1\non_full = '{on_full}'");
        let mut world = World::new(&config);
        world.play(&format!("{script}{answer}"));
        let numbers = world.queues.numbers_of("p+c", world.now).unwrap();
        let number = |name| numbers.iter().find(|(key, _)| *key == name).unwrap().1;
        assert_eq!(number("refused_items"), u64::from(on_full == "refuse"));
        assert_eq!(number("discarded"), u64::from(on_full == "drop-oldest"));
        assert_eq!(number("skipped_items"), u64::from(on_full == "skip"));
        world.play(&format!(
            "a> get p|get p|get p+c|get p+c|\na< {parent}{child}"
        ));
    }
}

#[test]
fn a_full_queue_is_not_skipped_where_it_is_set_itself() {
    play(
        "[defaults]\nmax_items = 1\non_full = 'skip'",
        "a> set p 0 0 1|1|set p 0 0 1|2|set p+c 0 0 1|1|set p+c 0 0 1|2|get p|set p 0 0 1|3|
         a< STORED|NOT_STORED|STORED|NOT_STORED|VALUE p 0 1|1|END|STORED|
         a> get p|get p+c|get p+c|
         a< VALUE p 0 1|3|END|VALUE p+c 0 1|1|END|END|",
    );
}

#[test]
fn moved_items_reach_the_fan_out_queues_of_where_they_go() {
    play(
        "[queue.q]\nmax_age = '1s'\nexpire_to = 'late'\nmax_deliveries = 1\nerror_queue = 'bad'\n[queue.'bad+full']\nmax_items = 1\non_full = 'skip'",
        "a> get late+audit|get bad+audit|get bad+full|set q 0 0 1|1|get q/open|get q/abort|set q 0 0 1|2|get q/open|get q/abort|
         a< END|END|END|STORED|VALUE q/open 0 1|1|END|END|STORED|VALUE q/open 0 1|2|END|END|
         a> set q 0 0 1|3|
         a< STORED|
         +1000
         a> get late|get late+audit|get bad|get bad+audit|get bad|get bad+audit|get bad+full|get bad+full|
         a< VALUE late 0 1|3|END|VALUE late+audit 0 1|3|END|VALUE bad 0 1|1|END|VALUE bad+audit 0 1|1|END|VALUE bad 0 1|2|END|VALUE bad+audit 0 1|2|END|VALUE bad+full 0 1|1|END|END|",
    );
}

#[test]
fn an_error_queue_that_drops_its_oldest_items_is_bounded() {
    let mut world = World::new(
        "[queue.q]\nmax_deliveries = 1\nerror_queue = 'bad'\n[queue.bad]\nmax_items = 3\non_full = 'drop-oldest'",
    );
    for item in 0..9 {
        world.play(&format!(
            "a> set q 0 0 1|{item}|get q/open|get q/abort|
             a< STORED|VALUE q/open 0 1|{item}|END|END|"
        ));
    }
    assert_eq!(world.queues.items("bad"), Some(3));
    world.play("a> get bad|\na< VALUE bad 0 1|6|END|");
}

#[test]
fn a_subscription_ends_only_where_its_own_settings_say_so() {
    let config = "[defaults]\ndelete_empty_after = '5s'\n[queue.p]\ndelete_empty_after = '1s'\n[queue.'p+short']\ndelete_empty_after = '1s'";
    let mut world = World::new(config);
    world.play("a> get p+c|get d+c|\na< END|END|\n+20000");
    assert_eq!(
        world
            .queues
            .names()
            .iter()
            .map(|name| &**name)
            .collect::<Vec<_>>(),
        ["d+c", "p+c"]
    );
    world.play("a> set p 0 0 1|1|get p+c|get p+short|\na< STORED|VALUE p+c 0 1|1|END|END|");
}

#[test]
fn a_fan_out_queue_with_settings_is_there_from_the_start() {
    play(
        "[queue.'p+c']\nmax_items = 10",
        "a> set p 0 0 1|1|get p+c|get p|
         a< STORED|VALUE p+c 0 1|1|END|VALUE p 0 1|1|END|
         crash
         a> set p 0 0 1|2|get p+c|
         a< STORED|VALUE p+c 0 1|2|END|",
    );
}
