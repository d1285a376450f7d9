//! Clients that send too much, too slowly, or garbage.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use millstream_flow::{Flow, codec, testing};
use millstream_http::listen;

use crate::support::{Client, LONG, options, start};

const HERE: &str = "127.0.0.1:0";

#[test]
fn a_body_over_the_limit_is_refused() {
    let flow = start(listen(HERE).max_body(10), None);
    let answer = flow.client().post("\"123456789\"");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (413, "the body is larger than 10 bytes\n")
    );
    // The client reads the answer though it writes much more than the server reads at once.
    assert_eq!(flow.client().post(&"1".repeat(3 << 20)).status, 413);
    let mut client = flow.client();
    client.write("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.write(format!("b\r\n{}\r\n0\r\n\r\n", "1".repeat(11)));
    assert_eq!(client.read().unwrap().status, 413);
    let mut client = flow.client();
    client
        .write("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n");
    assert_eq!(client.read().unwrap().status, 413);
    assert_eq!(flow.client().post("1234567890").status, 200);
    assert_eq!(flow.stop(), ["1234567890"]);
}

#[test]
fn headers_without_end_are_refused() {
    let flow = start(listen(HERE), None);
    let mut client = flow.client();
    client.write("POST / HTTP/1.1\r\nHost: x\r\nX: ");
    client.write("x".repeat(65 << 10));
    // The connection is closed while there is more to read, and the answer may be lost with it.
    assert!(client.read().is_none_or(|answer| answer.status == 431));
    let mut client = flow.client();
    client.write("POST / HTTP/1.1\r\n");
    client.write(
        (0..200)
            .map(|n| format!("X-{n}: 1\r\n"))
            .collect::<String>(),
    );
    client.write("\r\n");
    assert!(client.read().is_none_or(|answer| answer.status == 431));
    assert_eq!(flow.client().post("1").status, 200);
    assert_eq!(flow.stop(), ["1"]);
}

#[test]
fn slow_clients_are_disconnected_and_others_served() {
    let flow = start(
        listen(HERE)
            .timeout(Duration::from_millis(200))
            .max_connections(3),
        None,
    );
    // As many as there may be connections, then three more.
    let begin = |text: &str| {
        let mut client = flow.client();
        client.write(text);
        client
    };
    let mut slow: Vec<Client> = Vec::new();
    for text in [
        "",
        "POST / HT",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12",
    ] {
        slow.push(begin(text));
        slow.push(begin(text));
    }
    assert_eq!(flow.client().post("1").status, 200);
    let answers = slow
        .iter_mut()
        .filter_map(Client::read)
        .map(|answer| answer.status);
    assert!(
        answers
            .collect::<Vec<_>>()
            .iter()
            .all(|status| *status == 408)
    );
    assert_eq!(flow.stop(), ["1"]);
}

#[test]
fn garbage_is_refused_and_others_are_served() {
    let flow = start(listen(HERE), None);
    let garbage: [&[u8]; 6] = [
        b"\0\0\0\0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n1",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ];
    for text in garbage {
        let mut client = flow.client();
        client.write(text);
        let answer = client.read();
        assert!(
            answer.as_ref().is_none_or(|answer| answer.status >= 400),
            "{answer:?}"
        );
        assert!(client.read().is_none());
    }
    // A length and chunks: what is smuggled after the first request is no request.
    let mut client = flow.client();
    client.write("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n7");
    while let Some(answer) = client.read() {
        if answer.status >= 400 {
            break;
        }
    }
    assert_eq!(flow.client().post("1").status, 200);
    assert!(flow.stop().ends_with(&["1".to_owned()]));
}

#[test]
fn a_flow_that_does_not_keep_up_refuses_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let (bound, address) = channel();
    let (go, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let source = listen(HERE)
        .max_pending(4000)
        .on_bound(move |address| bound.send(address.to_owned()).unwrap());
    let flow = Flow::new("slow");
    let items = testing::Collected::new();
    let processed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&processed);
    flow.source("in", codec::decode(source, codec::text))
        .map(move |item: String| {
            // Held until the sender is gone.
            let _ = wait.lock().unwrap().recv();
            count.fetch_add(1, Ordering::SeqCst);
            item
        })
        .sink("out", items.sink());
    let running = flow.start(options(Some(folder.path()))).unwrap();
    let mut client = Client::new(&address.recv_timeout(LONG).unwrap());
    let body = format!("\"{}\"", "x".repeat(998));
    let mut accepted = 0;
    let refused = loop {
        let answer = client.post(&body);
        match answer.status {
            200 => accepted += 1,
            _ => break answer,
        }
        assert!(accepted < 100);
    };
    assert_eq!(refused.status, 429);
    assert!(
        refused.header.contains("retry-after: 1"),
        "{}",
        refused.header
    );
    drop(go);
    while client.post(&body).status != 200 {
        std::thread::yield_now();
    }
    // What a stopped flow has accepted and not read is left for its next run.
    while processed.load(Ordering::SeqCst) <= accepted {
        std::thread::yield_now();
    }
    running.stop();
    running.wait().unwrap();
    assert_eq!(items.take().len(), accepted + 1);
}
