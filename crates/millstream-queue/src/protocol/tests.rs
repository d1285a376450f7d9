//! Tables of input and its meaning; each input is also cut at every byte.

use super::*;
use crate::protocol::reply::{self};

/// Requests and replies as text. `[..]` is a request, `<..>` a reply.
fn meaning(pieces: &[&[u8]], limits: Limits) -> String {
    let mut parser = Parser::new(limits);
    let mut buffer = Vec::new();
    let mut told = String::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let used = match parser.parse(&buffer) {
                Parsed::More { need } => {
                    assert!(
                        need > buffer.len(),
                        "asked for {need} bytes, has {}",
                        buffer.len()
                    );
                    break;
                }
                Parsed::Request { request, used } => {
                    told += &format!("[{}]", show(request));
                    used
                }
                Parsed::Answer { reply, used } => {
                    told += &format!("<{}>", reply.escape_ascii());
                    used
                }
                Parsed::Dropped { used } => used,
                Parsed::Foreign => return told + "!",
            };
            assert!(used > 0 && used <= buffer.len());
            buffer.drain(..used);
        }
    }
    told
}

fn show(request: Request<'_>) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let all = |words: Tokens<'_>| words.map(text).collect::<Vec<_>>().join(" ");
    match request {
        Request::Set(s) => {
            let quiet = if s.noreply { " quiet" } else { "" };
            format!(
                "set {} {} {} {}{quiet}",
                text(s.key),
                s.flags,
                s.expiry,
                text(s.data)
            )
        }
        Request::Get(g) => format!("get{} {}", if g.with_id { "s" } else { "" }, all(g.keys)),
        Request::DumpStats { queues } => format!("dump {}", all(queues)),
        Request::Delete { queue, noreply } => format!("delete {} {noreply}", text(queue)),
        Request::Monitor {
            queue,
            seconds,
            items_max,
        } => format!("monitor {} {seconds} {items_max:?}", text(queue)),
        Request::Touch(t) => format!(
            "touch {} {:?} {} {}",
            text(t.key),
            t.id,
            t.seconds,
            t.noreply
        ),
        Request::Confirm { queue, count } => format!("confirm {} {count}", text(queue)),
        Request::ConfirmIds { queue, ids } => format!("confirm {} {}", text(queue), all(ids)),
        Request::Stats { queue } => format!("stats {}", text(queue.unwrap_or(b"-"))),
        Request::Status { to } => format!("status {}", text(to.unwrap_or(b"-"))),
        other => format!("{other:?}"),
    }
}

const SMALL: Limits = Limits {
    line_bytes: 60,
    item_bytes: 10,
};

/// Input, and its meaning. `|` is CR LF.
const TABLE: &[(&str, &str)] = &[
    ("set q 0 0 5|hello|", "[set q 0 0 hello]"),
    ("set q 0 0 5\nhello\n", "[set q 0 0 hello]"),
    ("set q 0 0 5\nhello|", "[set q 0 0 hello]"),
    (
        "SET  q  7 -1 5 noreply  |hello|",
        "[set q 7 -1 hello quiet]",
    ),
    ("set q 4294967295 99 0||", "[set q 4294967295 99 ]"),
    ("set q 0 0 2|\r\n|get a|", "[set q 0 0 \\r\\n][get a]"),
    ("set q 0 0 10|0123456789|", "[set q 0 0 0123456789]"),
    (
        "set q 0 0 11|01234567890|get a|",
        "<SERVER_ERROR object too large for cache\\r\\n>[get a]",
    ),
    ("set q 0 0 11 noreply|01234567890|get a|", "<>[get a]"),
    (
        "set q 0 0 3|hello|get a|",
        "<CLIENT_ERROR bad data chunk\\r\\n>[get a]",
    ),
    (
        "set q 0 0 6|hello|get a|get b|",
        "<CLIENT_ERROR bad data chunk\\r\\n>[get a][get b]",
    ),
    (
        "set q 0 0 5|hello\nget a|",
        "<CLIENT_ERROR bad data chunk\\r\\n>[get a]",
    ),
    (
        "set q 0 0 -1|get a|",
        "<CLIENT_ERROR bad command line format\\r\\n>[get a]",
    ),
    (
        "set q 0 0 x|get a|",
        "<CLIENT_ERROR bad command line format\\r\\n>[get a]",
    ),
    (
        "set q x 0 5|hello|get a|",
        "<CLIENT_ERROR bad command line format\\r\\n>[get a]",
    ),
    (
        "set q 4294967296 0 0||get a|",
        "<CLIENT_ERROR bad command line format\\r\\n>[get a]",
    ),
    (
        "set q 0 0 5 6|hello|get a|",
        "<CLIENT_ERROR bad command line format\\r\\n>[get a]",
    ),
    (
        "set q 0 0 99999999999|get a|",
        "<CLIENT_ERROR bad command line format\\r\\n>[get a]",
    ),
    ("set q 0 0|", "<ERROR\\r\\n>"),
    ("set|get|gets|", "<ERROR\\r\\n><ERROR\\r\\n><ERROR\\r\\n>"),
    ("get a b/open  c/t=5 |", "[get a b/open c/t=5]"),
    ("gets a|", "[gets a]"),
    (
        "add q 0 0 2|hi|replace q 0 0 0||cas q 0 0 2 9|hi|",
        "<NOT_STORED\\r\\n><NOT_STORED\\r\\n><NOT_FOUND\\r\\n>",
    ),
    (
        "append q 0 0 2 noreply|hi|cas q 0 0 2 9 noreply|hi|",
        "<><>",
    ),
    (
        "incr q 1|decr q 1 noreply|incr q|",
        "<NOT_FOUND\\r\\n><><ERROR\\r\\n>",
    ),
    (
        "touch q 5|touch q/id=3 0 noreply|touch q 3 5|touch q 3 5 noreply|touch q|touch q -1|touch q 1 2 3|",
        "[touch q None 5 false][touch q/id=3 None 0 true][touch q Some(3) 5 false][touch q Some(3) 5 true]<ERROR\\r\\n><CLIENT_ERROR bad command line format\\r\\n><CLIENT_ERROR bad command line format\\r\\n>",
    ),
    (
        "delete q|delete q 0|delete q noreply|",
        "[delete q false][delete q false][delete q true]",
    ),
    ("delete q 0 noreply|delete|", "[delete q true]<ERROR\\r\\n>"),
    (
        "delete q 5|",
        "<CLIENT_ERROR bad command line format\\r\\n>",
    ),
    (
        "flush_all noreply|flush_all 0|",
        "[FlushAll { noreply: true }][FlushAll { noreply: false }]",
    ),
    (
        "flush_all_expired|version|quit|",
        "[FlushAllExpired][Version][Quit]",
    ),
    (
        "version now|",
        "<CLIENT_ERROR bad command line format\\r\\n>",
    ),
    (
        "stats|stats q|dump_stats a b|dump_stats|",
        "[stats -][stats q][dump a b][dump ]",
    ),
    (
        "verbosity|verbosity 1|",
        "<ERROR\\r\\n>[Verbosity { noreply: false }]",
    ),
    ("verbosity 1 noreply|", "[Verbosity { noreply: true }]"),
    (
        "status|status READONLY|reload|shutdown|",
        "[status -][status READONLY][Reload][Shutdown]",
    ),
    (
        "monitor q 5|monitor q 5 9|confirm q 2|",
        "[monitor q 5 None][monitor q 5 Some(9)][confirm q 2]",
    ),
    (
        "confirm q id=7|confirm q id=7 id=9|",
        "[confirm q id=7][confirm q id=7 id=9]",
    ),
    (
        "confirm q id=7 9|confirm q id=|",
        "<CLIENT_ERROR bad command line format\\r\\n><CLIENT_ERROR bad command line format\\r\\n>",
    ),
    (
        "monitor q|confirm q -1|",
        "<CLIENT_ERROR bad command line format\\r\\n><CLIENT_ERROR bad command line format\\r\\n>",
    ),
    ("mn|", "[MetaNoop]"),
    (
        "ms q 5 T0|hello|mg q v|",
        "<CLIENT_ERROR meta commands are not supported, use the classic ones\\r\\n>\
         <CLIENT_ERROR meta commands are not supported, use the classic ones\\r\\n>",
    ),
    ("bogus|||", "<ERROR\\r\\n><ERROR\\r\\n><ERROR\\r\\n>"),
    ("averyveryverylongverb|", "<ERROR\\r\\n>"),
    (
        "get 0123456789012345678901234567890123456789012345678901234567890123456789|get a|",
        "<CLIENT_ERROR line too long\\r\\n>[get a]",
    ),
    (
        "get aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffff|get a|",
        "[get aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffff][get a]",
    ),
    (
        "get aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffffff|get a|",
        "<CLIENT_ERROR line too long\\r\\n>[get a]",
    ),
    (
        "get aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffffff\nget a|",
        "<CLIENT_ERROR line too long\\r\\n>[get a]",
    ),
    ("version|POST / HTTP/1.1|set q 0 0 1|x|", "[Version]!"),
    ("Host: localhost|", "!"),
];

fn bytes(line: &str) -> Vec<u8> {
    line.replace('|', "\r\n").into_bytes()
}

#[test]
fn each_line_means_what_the_table_says() {
    for (sent, expected) in TABLE {
        assert_eq!(meaning(&[&bytes(sent)], SMALL), *expected, "{sent:?}");
    }
}

#[test]
fn cut_at_every_byte_the_meaning_is_the_same() {
    for (sent, expected) in TABLE {
        let sent = bytes(sent);
        for at in 0..=sent.len() {
            let (front, back) = sent.split_at(at);
            assert_eq!(
                meaning(&[front, back], SMALL),
                *expected,
                "{:?} cut at {at}",
                sent.escape_ascii().to_string()
            );
        }
        let single: Vec<&[u8]> = sent.chunks(1).collect();
        assert_eq!(
            meaning(&single, SMALL),
            *expected,
            "{:?} in single bytes",
            sent.escape_ascii().to_string()
        );
    }
}

#[test]
fn binary_memcache_is_turned_away() {
    assert_eq!(meaning(&[b"\x80"], SMALL), "!");
    assert_eq!(meaning(&[b"\x80\x00\x00\x01\n"], SMALL), "!");
}

#[test]
fn a_large_item_costs_no_memory() {
    let mut parser = Parser::new(Limits::default());
    let line = b"set q 0 0 2000000000\r\n";
    assert_eq!(
        parser.parse(line),
        Parsed::Answer {
            reply: reply::TOO_LARGE,
            used: line.len()
        }
    );
    let block = [b'x'; 4096];
    for _ in 0..10 {
        assert_eq!(parser.parse(&block), Parsed::Dropped { used: block.len() });
    }
}

#[test]
fn an_item_says_how_much_is_missing() {
    let mut parser = Parser::new(Limits::default());
    assert_eq!(
        parser.parse(b"set q 0 0 1000\r\nabc"),
        Parsed::More {
            need: 16 + 1000 + 1
        }
    );
}
