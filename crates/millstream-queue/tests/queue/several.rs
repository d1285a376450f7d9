//! One `get` of several queues: the first that has an item.

use crate::script::play;

#[test]
fn the_first_queue_with_an_item_is_read() {
    play(
        "",
        "a> get a,b|set b 0 0 1|1|set a 0 0 1|2|set b 0 0 1|3|get a,b|get a,b/peek|get b,a|gets a,b|
         a< END|STORED|STORED|STORED|VALUE a,b 0 1|2|END|VALUE a,b/peek 0 1|1|END|VALUE b,a 0 1|1|END|VALUE a,b 0 1 1|3|END|
         a> get x a,b y,a|
         a< END|",
    );
}

#[test]
fn a_waiter_for_several_is_served_by_one_of_them_once() {
    play(
        "",
        "a> get a,b,a,c/t=1000|
         b> get b/t=1000|
         c> set b 0 0 1|1|set a 0 0 1|2|set b 0 0 1|3|
         c< STORED|STORED|STORED|
         a< VALUE a,b,a,c/t=1000 0 1|1|END|
         b< VALUE b/t=1000 0 1|3|END|
         +1000
         a<
         a> get a/t=10|
         a< VALUE a/t=10 0 1|2|END|
         a> get a,b/t=20|
         +20
         a< END|
         c> set a 0 0 1|4|get a,b|
         c< STORED|VALUE a,b 0 1|4|END|
         +100
         a<",
    );
}

#[test]
fn details_name_the_queue_and_close_ends_what_was_opened_first() {
    play(
        "[defaults]\nmax_opens = 2",
        "a> set b 0 0 1|1|set a 0 0 1|2|set b 0 0 1|3|get a,b/open/details|get b,a/open/details|
         a< STORED|STORED|STORED|VALUE a 0 1 0 1700000000000 0 0 0|2|END|VALUE b 0 1 0 1700000000000 0 0 0|1|END|
         a> get b,a/close/open|get a,b/abort|get a,b/close|get a,b/close|get a/peek|get b,a|
         a< VALUE b,a/close/open 0 1|3|END|END|END|END|END|VALUE b,a 0 1|1|END|",
    );
}

#[test]
fn an_item_that_is_open_keeps_all_of_them_closed_to_its_connection() {
    play(
        "",
        "a> set b 0 0 1|1|set a 0 0 1|2|get b/open|get a,b/open|get a,b|get a/open|
         a< STORED|STORED|VALUE b/open 0 1|1|END|ERROR|ERROR|VALUE a/open 0 1|2|END|",
    );
}

#[test]
fn a_waiter_that_ends_leaves_all_queues_and_a_deleted_queue_ends_the_wait() {
    play(
        "",
        "a> get a,b/t=5000/open|
         a!
         b> set b 0 0 1|1|get b|
         b< STORED|VALUE b 0 1|1|END|
         c> get a,b/t=5000|
         b> delete b|
         c< END|
         b> set a 0 0 1|2|get a|
         b< DELETED|STORED|VALUE a 0 1|2|END|
         c> get a,b+c/t=5000/open/details|
         b> set b 0 0 1|3|
         b< STORED|
         c< VALUE b+c 0 1 0 1700000000000 0 0 0|3|END|
         c!
         b> get a,b+c,b|get b,b+c|
         b< VALUE a,b+c,b 0 1|3|END|VALUE b,b+c 0 1|3|END|",
    );
}

#[test]
fn mistakes_in_one_of_the_names_are_refused() {
    play(
        "",
        "a> get a,|get a,b/close=1|get a,../x|set a,b 0 0 1|x|delete a,b|touch a,b 5|
         a< CLIENT_ERROR queue name is empty|CLIENT_ERROR an id belongs to one queue|CLIENT_ERROR queue name must not begin with '.' nor have an empty part beside '+'|CLIENT_ERROR queue name has a character that is not allowed: '/', ',', '~', blank, control, or not UTF-8|CLIENT_ERROR queue name has a character that is not allowed: '/', ',', '~', blank, control, or not UTF-8|CLIENT_ERROR queue name has a character that is not allowed: '/', ',', '~', blank, control, or not UTF-8|",
    );
}
