//! Queues in process: threads share a folder, waits are fair, an open item is requeued, and no acknowledged item is
//! lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use millstream_queue::QueueError;
use millstream_queue::config::Sync;
use millstream_queue::embedded::{Options, PutOptions, Queue, Queues, Waiting};
use tempfile::TempDir;

/// Longer than any wait that ends as it should.
const LONG: Duration = Duration::from_secs(120);
const NOW: Duration = Duration::ZERO;

fn options(sync: Sync) -> Options {
    Options {
        sync,
        ..Options::default()
    }
}

fn open(folder: &TempDir) -> Queues {
    Queues::open(folder.path(), &options(Sync::Never)).unwrap()
}

fn configured(text: &str) -> (TempDir, Queues) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join(".config");
    std::fs::write(&config, text).unwrap();
    let options = Options {
        sync: Sync::Never,
        config: Some(config),
    };
    let queues = Queues::open(folder.path(), &options).unwrap();
    (folder, queues)
}

#[test]
fn a_folder_is_shared_by_the_threads_of_a_process_and_closed_with_its_last_handle() {
    let folder = tempfile::tempdir().unwrap();
    let one = open(&folder);
    let two = open(&folder);
    one.queue("q").unwrap().put(b"x").unwrap();
    assert_eq!(two.queue("q").unwrap().len().unwrap(), 1);
    assert!(matches!(
        Queues::open(folder.path(), &options(Sync::Always)),
        Err(QueueError::Differs { .. })
    ));
    let same = Queues::attach(folder.path()).unwrap();
    assert_eq!(same.names(), [Arc::from("q")]);
    let item = one.queue("q").unwrap().open(NOW).unwrap().unwrap();
    drop((one, two, same));
    // An open item keeps the folder open.
    assert!(Queues::open(folder.path(), &options(Sync::Always)).is_err());
    drop(item);
    let queues = Queues::open(folder.path(), &options(Sync::Always)).unwrap();
    assert_eq!(
        queues.queue("q").unwrap().get(NOW).unwrap().as_deref(),
        Some(&b"x"[..])
    );
}

#[test]
fn a_folder_is_opened_and_closed_by_many_threads_at_once() {
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    open(&folder).queue("q").unwrap().put(b"x").unwrap();
                }
            });
        }
    });
    assert_eq!(open(&folder).queue("q").unwrap().len().unwrap(), 200);
}

#[test]
fn an_open_item_returns_to_its_place_unless_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let queues = open(&folder);
    let queue = queues.queue("q").unwrap();
    queue
        .put_many(["a", "b", "c"], &PutOptions::default())
        .unwrap();
    let a = queue.open(NOW).unwrap();
    let b = queue.open(NOW).unwrap();
    assert_eq!(queue.stats().unwrap()["open_transactions"], 2);
    drop(a);
    assert!(b.unwrap().close().unwrap());
    let again = queue.open(NOW).unwrap().unwrap();
    assert_eq!((again.body(), again.item().deliveries), (&b"a"[..], 1));
    again.abort();
    assert_eq!(queue.peek().unwrap().unwrap().body[..], b"a"[..]);
    assert_eq!(queue.len().unwrap(), 2);
    assert!(queue.flush().unwrap() && queue.is_empty().unwrap());
    assert!(queue.delete().unwrap() && !queue.delete().unwrap());
}

#[test]
fn waiters_are_served_in_fifo_order_and_may_leave_early() {
    let folder = tempfile::tempdir().unwrap();
    let queue = open(&folder).queue("q").unwrap();
    let mut line: VecDeque<Waiting> = (0..5).map(|_| queue.wait(LONG, false).unwrap()).collect();
    assert!(!line[0].has_ended(Duration::from_millis(1)).unwrap());
    drop(line.remove(1));
    queue
        .put_many(["1", "2", "3", "4"], &PutOptions::default())
        .unwrap();
    for expected in ["1", "2", "3", "4"] {
        let item = line.pop_front().unwrap().wait().unwrap().unwrap();
        assert_eq!(item.body(), expected.as_bytes());
    }
    assert_eq!(queue.get(Duration::from_millis(2)).unwrap(), None);
    // What was held for a wait that is given up goes to the next.
    let first = queue.wait(LONG, true).unwrap();
    let second = queue.wait(LONG, true).unwrap();
    queue.put(b"5").unwrap();
    drop(first);
    assert_eq!(second.wait().unwrap().unwrap().body(), b"5");
}

#[test]
fn delays_end_and_items_expire_without_a_call() {
    let (_folder, queues) = configured("[queue.q]\nexpire_to = \"late\"\n");
    let queue = queues.queue("q").unwrap();
    let soon = Duration::from_millis(20);
    let expires = PutOptions {
        expires: Some(soon),
        ..PutOptions::default()
    };
    queue.put_with(b"old", &expires).unwrap();
    let late = queues.queue("late").unwrap().get(LONG).unwrap();
    assert_eq!(late.as_deref(), Some(&b"old"[..]));
    let delayed = PutOptions {
        delay: soon,
        flags: 7,
        ..PutOptions::default()
    };
    queue.put_with(b"slow", &delayed).unwrap();
    assert_eq!(queue.get(NOW).unwrap(), None);
    let item = queue.get_item(LONG).unwrap().unwrap();
    assert_eq!((&item.body[..], item.flags), (&b"slow"[..], 7));
}

#[test]
fn limits_are_errors_that_name_the_number_of_items() {
    let (_folder, queues) = configured(
        "[queue.q]\nmax_items = 3\nmax_item_bytes = 4\n[limits]\nitem_bytes = 100\n[alias]\nall = [\"a\", \"b\"]\n",
    );
    let queue = queues.queue("q").unwrap();
    let error = queue
        .put_many(["a", "b", "c", "d"], &PutOptions::default())
        .unwrap_err();
    assert!(
        matches!(&error, QueueError::Partly { stored: 3, cause } if matches!(**cause, QueueError::Full { .. }))
    );
    assert_eq!(
        format!("{error:?}"),
        "the first 3 items are stored, and the next one is not: queue \"q\" is full"
    );
    assert!(matches!(
        queue.put(b"12345"),
        Err(QueueError::TooLarge { bytes: 5, .. })
    ));
    assert!(matches!(
        queues.queue("other").unwrap().put(&[0; 101]),
        Err(QueueError::TooLarge { .. })
    ));
    assert!(matches!(queues.queue("a/b"), Err(QueueError::Name { .. })));
    queues.queue("all").unwrap().put(b"x").unwrap();
    assert_eq!(queues.queue("b").unwrap().len().unwrap(), 1);
}

#[test]
fn a_damaged_queue_stays_closed_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let queues = Queues::open(folder.path(), &options(Sync::Always)).unwrap();
    let items = ["aaaaa", "bbbbb"];
    queues
        .queue("bad")
        .unwrap()
        .put_many(items, &PutOptions::default())
        .unwrap();
    drop(queues);
    let segment = folder.path().join("bad/segment-0000000000.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(5).position(|five| five == b"aaaaa").unwrap();
    bytes[at] = b'b';
    std::fs::write(&segment, bytes).unwrap();
    let queues = open(&folder);
    let closed = queues.closed();
    assert!(
        closed.len() == 1 && closed[0].1.contains("damaged at offset"),
        "{closed:?}"
    );
    let bad = queues.queue("bad").unwrap();
    assert!(matches!(bad.put(b"x"), Err(QueueError::Closed { .. })));
    assert!(matches!(bad.get(NOW), Err(QueueError::Closed { .. })));
    assert!(matches!(bad.len(), Err(QueueError::Closed { .. })));
}

/// Threads put and take with every policy: each item is taken once, and the items of one producer in their order.
fn threads_put_and_take(sync: Sync) {
    const EACH: u64 = 400;
    let folder = tempfile::tempdir().unwrap();
    let queues = Queues::open(folder.path(), &options(sync)).unwrap();
    let queue = queues.queue("q").unwrap();
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        for producer in 0..3u64 {
            let queue = queue.clone();
            scope.spawn(move || {
                for n in 0..EACH {
                    queue.put(format!("{producer} {n}").as_bytes()).unwrap();
                }
            });
        }
        for _ in 0..3 {
            let queue = queue.clone();
            let taken = &taken;
            scope.spawn(move || {
                let mut last = [None::<u64>; 3];
                while taken.fetch_add(1, Ordering::SeqCst) < 3 * EACH {
                    let item = queue.open(LONG).unwrap().unwrap();
                    let text = String::from_utf8(item.body().to_vec()).unwrap();
                    let (producer, n) = text.split_once(' ').unwrap();
                    let n: u64 = n.parse().unwrap();
                    let last = &mut last[producer.parse::<usize>().unwrap()];
                    assert!(last.is_none_or(|last| last < n), "{text} after {last:?}");
                    *last = Some(n);
                    assert!(item.close().unwrap());
                }
            });
        }
    });
    let stats = queue.stats().unwrap();
    assert_eq!((stats["items"], stats["open_transactions"]), (0, 0));
    assert_eq!(stats["total_items"], 3 * EACH);
}

#[test]
fn threads_put_and_take_at_the_same_time() {
    threads_put_and_take(Sync::Never);
    threads_put_and_take(Sync::Every(Duration::from_millis(2)));
}

#[test]
fn threads_share_the_syncs_of_what_they_put() {
    threads_put_and_take(Sync::Always);
}

/// Bodies and ids.
fn lend(queue: &Queue, items: usize) -> (Vec<String>, Vec<u64>) {
    let mut out = Vec::new();
    queue.lend(items, usize::MAX, &mut out).unwrap();
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
    out.iter().map(|item| (text(&item.body), item.id)).unzip()
}

fn confirm(queue: &Queue, ids: impl IntoIterator<Item = u64>) {
    queue.confirm_lent(ids, u64::MAX).unwrap();
}

#[test]
fn what_is_lent_comes_back_or_is_confirmed_also_after_a_restart() {
    // Little memory, so that most items are in the log only.
    let (folder, queues) = configured("[defaults]\nmemory_bytes = 1000\nopen_timeout = \"1ms\"\n");
    let options = Options {
        sync: Sync::Never,
        config: Some(folder.path().join(".config")),
    };
    let queue = queues.queue("q").unwrap();
    let items: Vec<String> = (0..100).map(|n| format!("item {n}")).collect();
    queue.put_many(&items, &PutOptions::default()).unwrap();
    let (bodies, ids) = lend(&queue, 60);
    assert_eq!(bodies, items[..60]);
    queue.return_lent(ids[50..].iter().copied());
    confirm(&queue, ids[..10].iter().copied());
    assert_eq!(queue.len().unwrap(), 50);
    drop((queue, queues));

    let queues = Queues::open(folder.path(), &options).unwrap();
    let queue = queues.queue("q").unwrap();
    assert_eq!(queue.len().unwrap(), 90);
    // Confirmed twice, or confirmed from where the restart has put them: in memory or not.
    confirm(&queue, ids[..20].iter().copied());
    confirm(&queue, ids[55..].iter().copied());
    confirm(&queue, [u64::MAX, ids[0]]);
    // Of a queue that began anew: not the items that were lent.
    queue.confirm_lent([ids[30], ids[54]], 1).unwrap();
    assert_eq!(queue.len().unwrap(), 75);
    drop((queue, queues));

    let queues = Queues::open(folder.path(), &options).unwrap();
    let queue = queues.queue("q").unwrap();
    let expected: Vec<&String> = items[20..55].iter().chain(&items[60..]).collect();
    assert_eq!(lend(&queue, 1000).0.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn numbered_items_come_in_once_into_each_queue_and_the_number_outlives_them() {
    let (folder, queues) =
        configured("[queue.only]\nfanout_only = true\n[queue.q]\nmax_items = 1\n");
    for name in ["q", "only"] {
        let queue = queues.queue(name).unwrap();
        let child = queues.queue(&format!("{name}+child")).unwrap();
        assert_eq!(child.get(NOW).unwrap(), None);
        queue.put_always(["a", "b", "c"], Some((7, 0))).unwrap();
        queue.put_always(["b", "c", "d"], Some((7, 1))).unwrap();
        queue.put_always(["other"], Some((8, 0))).unwrap();
        assert_eq!(queue.next_index(7).unwrap(), 4);
        assert_eq!(lend(&child, 9).0, ["a", "b", "c", "d", "other"]);
        let own = if name == "q" { 5 } else { 0 };
        assert_eq!(lend(&queue, 9).0.len(), own);
    }
    let queue = queues.queue("many").unwrap();
    queue.put_always(["x"], Some((7, 41))).unwrap();
    // So much comes and goes that the record of the number has long been given up.
    let body = vec![0; 100_000];
    for _ in 0..500 {
        queue.put(&body).unwrap();
        queue.get(NOW).unwrap().unwrap();
    }
    queue.get(NOW).unwrap().unwrap();
    let first = folder.path().join("many/segment-0000000000.log");
    assert!(!first.exists(), "nothing was given up");
    drop((queue, queues));
    let queues = Queues::open(
        folder.path(),
        &Options {
            sync: Sync::Never,
            config: Some(folder.path().join(".config")),
        },
    )
    .unwrap();
    assert_eq!(queues.queue("many").unwrap().next_index(7).unwrap(), 42);
    assert_eq!(queues.queue("only").unwrap().next_index(8).unwrap(), 1);
}
