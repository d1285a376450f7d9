//! Starling's and Kestrel's files, written here byte by byte.

use millstream_queue::import::{Kestrel, OldQueue, Starling};

fn item(code: u8, head: &[u8], body: &str) -> Vec<u8> {
    let mut bytes = vec![code];
    bytes.extend_from_slice(&(head.len() as u32 + body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

fn timed(body: &str, expiry_ms: i64) -> Vec<u8> {
    let head = [1_000i64.to_le_bytes(), expiry_ms.to_le_bytes()].concat();
    item(2, &head, body)
}

/// An operation that begins with an xid.
fn with_xid(code: u8, xid: i32, rest: &[u8]) -> Vec<u8> {
    [&[code][..], &xid.to_le_bytes(), rest].concat()
}

fn bodies(queue: OldQueue) -> Vec<String> {
    queue
        .into_items()
        .map(|item| String::from_utf8(item.body).unwrap())
        .collect()
}

#[test]
fn starling_pushes_and_pops() {
    let mut queue = OldQueue::default();
    let file = [
        item(0, &[0; 4], "one"),
        item(0, &7u32.to_le_bytes(), ""),
        vec![1],
        item(0, &[0; 4], "three"),
    ]
    .concat();
    Starling.replay(&file[..], &mut queue).unwrap();
    let items: Vec<_> = queue
        .into_items()
        .map(|item| (item.expiry_ms, item.body))
        .collect();
    assert_eq!(items, [(7_000, b"".to_vec()), (0, b"three".to_vec())]);
}

#[test]
fn the_bytes_are_starlings_own() {
    let mut queue = OldQueue::default();
    Starling
        .replay(&b"\x00\x09\0\0\0\0\0\0\0hello\x01"[..], &mut queue)
        .unwrap();
    assert!(queue.is_empty());
}

#[test]
fn kestrel_opens_confirms_and_gives_back() {
    let mut queue = OldQueue::default();
    let file = [
        timed("a", 0),
        timed("b", 5),
        timed("c", 0),
        timed("d", 0),
        item(0, &[0; 4], "e"),
        vec![3],              // a is open as 1
        vec![3],              // b as 2
        vec![3],              // c as 3
        with_xid(6, 1, b""),  // a is confirmed
        with_xid(5, 3, b""),  // c returns to the head
        vec![1],              // c is removed
        with_xid(9, 77, b""), // d is open as 77
    ]
    .concat();
    Kestrel.replay(&file[..], &mut queue).unwrap();
    assert_eq!(bodies(queue), ["b", "d", "e"]);
}

#[test]
fn a_packed_kestrel_file_has_its_open_items_in_front() {
    let mut queue = OldQueue::default();
    let open = with_xid(7, 12, &timed("open", 0)[1..]);
    let file = [
        open,
        vec![3],
        with_xid(4, 40, b""),
        timed("x", 0),
        with_xid(8, 12, &timed("y", 0)[1..]),
    ]
    .concat();
    Kestrel.replay(&file[..], &mut queue).unwrap();
    assert_eq!(bodies(queue), ["x", "y"]);
}

#[test]
fn damage_is_named_and_all_before_it_is_kept() {
    let good = timed("a", 0);
    let cases: [(Vec<u8>, &str); 5] = [
        (vec![99], "there is no operation 99"),
        (
            timed("long", 0)[..23].to_vec(),
            "an item of 4 bytes, of which 2 are there",
        ),
        (
            timed("long", 0)[..9].to_vec(),
            "the file ends inside an operation",
        ),
        (
            vec![
                2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            "a size of 3, at least 16",
        ),
        (
            vec![0, 255, 255, 255, 255, 0, 0, 0, 0, b'x'],
            "an item of 4294967291 bytes, of which 1 are there",
        ),
    ];
    for (bad, what) in cases {
        let mut queue = OldQueue::default();
        let damage = Kestrel
            .replay(&[&good[..], &bad].concat()[..], &mut queue)
            .unwrap_err();
        assert_eq!(
            damage.to_string(),
            format!("damaged at offset {}: {what}", good.len())
        );
        assert_eq!(bodies(queue), ["a"]);
    }
}
