//! Arbitrary bytes as the input of a memcache client: the answer is the same however they are cut, and never a panic.
//!
//! The first byte of an input chooses where it is cut in two; it is also given byte by byte.

use millstream_queue::session::converse;

/// Feeds one input. It panics when it finds something.
pub fn run(input: &[u8]) {
    let [at, sent @ ..] = input else { return };
    let (one, other) = sent.split_at(usize::from(*at).min(sent.len()));
    let answers = [
        converse([sent]),
        converse([one, other]),
        converse(sent.chunks(1)),
    ];
    let [whole, in_two, by_byte] =
        answers.map(|answer| answer.expect("queues in memory do not fail"));
    assert_eq!(
        whole.escape_ascii().to_string(),
        in_two.escape_ascii().to_string(),
        "cut at {at}"
    );
    assert_eq!(
        whole.escape_ascii().to_string(),
        by_byte.escape_ascii().to_string(),
        "byte by byte"
    );
}
