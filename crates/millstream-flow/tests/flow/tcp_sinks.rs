//! Receivers that refuse, disconnect and return.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use millstream_flow::testing::Mark;
use millstream_flow::{Flow, FlowError, Framing, Options, codec, generator, tcp, testing};

use super::support::{WATCHDOG, cut, finish, receive_one, run, spawn};

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Numbers as lines to `sink`, at a rate at which the receiver can disconnect meanwhile.
fn numbers(count: u64, sink: tcp::TcpSink) -> Flow {
    let flow = Flow::new("numbers");
    let source = generator::from_fn(move |n| (n < count).then_some(n))
        .rate(20_000.0)
        .batch_size(10);
    flow.source("n", source).sink(
        "results",
        codec::encode(sink.framing(Framing::Lines), codec::display::<u64>),
    );
    flow
}

#[test]
fn a_receiver_that_refuses_is_named_with_its_sink() {
    let at = free_address();
    for workers in 1..=3 {
        let error = run(&numbers(10, tcp::send_to(&at.to_string())), workers).unwrap_err();
        assert!(matches!(error, FlowError::Open { .. }), "{error:?}");
        let text = format!("{error:?}");
        assert!(
            text.starts_with(&format!(
                "sink \"results\" (tcp connect {at}, lines): cannot connect to {at}: "
            )),
            "{text}"
        );
        assert!(text.contains("refused"), "{text}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_reported() {
    let flow = numbers(1, tcp::send_to("no port here"));
    let text = format!("{:?}", run(&flow, 1).unwrap_err());
    assert!(text.contains("no port here"), "{text}");
}

#[test]
fn a_receiver_that_closes_fails_the_flow() {
    for workers in [1, 2] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        let receiving = spawn(move || {
            for _ in 0..workers {
                let (mut stream, _) = server.accept().unwrap();
                if workers == 1 {
                    stream.read_exact(&mut [0; 100]).unwrap();
                }
            }
        });
        let flow = numbers(u64::MAX, tcp::send_to(&at.to_string()));
        let error = run(&flow, workers).unwrap_err();
        assert!(matches!(error, FlowError::Failed(_)), "{error:?}");
        let text = format!("{error:?}");
        assert!(
            text.starts_with(&format!("step \"results\": the receiver {at} is gone: ")),
            "{text}"
        );
        receiving.join().unwrap();
    }
}

#[test]
fn a_receiver_that_closes_before_the_last_write_fails_the_flow() {
    for reads in [0, 3] {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        let (close, closed) = channel();
        let receiving = spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            stream.read_exact(&mut vec![0; reads]).unwrap();
            drop(stream);
            close.send(()).unwrap();
        });
        let closed = Mutex::new(closed);
        let flow = Flow::new("last");
        let sink = tcp::send_to(&at.to_string()).framing(Framing::Lines);
        let sink = codec::encode(sink, codec::display::<&str>);
        let items = [
            Mark::Item("ab"),
            Mark::Pause(Duration::ZERO),
            Mark::Item("last"),
        ];
        flow.source("n", testing::script([items.to_vec()]).batch_size(1))
            .filter(move |item| *item == "last" || reads > 0)
            .inspect(move |item| {
                if *item == "last" {
                    closed.lock().unwrap().recv_timeout(WATCHDOG).unwrap();
                }
            })
            .sink("results", sink);
        let text = format!("{:?}", run(&flow, 1).unwrap_err());
        let due = format!("step \"results\": the receiver {at} is gone: ");
        assert!(text.starts_with(&due), "{text}");
        receiving.join().unwrap();
    }
}

#[test]
fn a_receiver_that_has_read_all_may_close_first() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let (close, closed) = channel();
    let receiving = spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        stream.read_exact(&mut [0; 3]).unwrap();
        drop(stream);
        close.send(()).unwrap();
    });
    let closed = Mutex::new(closed);
    let flow = Flow::new("all");
    let sink = tcp::send_to(&at.to_string()).framing(Framing::Lines);
    let items = [
        Mark::Item("ab"),
        Mark::Pause(Duration::ZERO),
        Mark::Item("end"),
    ];
    flow.source("n", testing::script([items.to_vec()]).batch_size(1))
        .filter(move |item| {
            if *item == "end" {
                closed.lock().unwrap().recv_timeout(WATCHDOG).unwrap();
            }
            *item != "end"
        })
        .sink("results", codec::encode(sink, codec::display::<&str>));
    run(&flow, 1).unwrap();
    receiving.join().unwrap();
}

#[test]
fn a_receiver_that_returns_receives_complete_frames_only() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let receiving = spawn(move || {
        for _ in 0..3 {
            let (mut stream, _) = server.accept().unwrap();
            // Closed with bytes unread: a reset, in the middle of some frame.
            stream.read_exact(&mut [0; 777]).unwrap();
        }
        receive_one(&server)
    });
    let sink = tcp::send_to(&at.to_string()).reconnect(WATCHDOG);
    run(&numbers(10_000, sink), 1).unwrap();
    let numbers: Vec<u64> = cut(Framing::Lines, &receiving.join().unwrap())
        .iter()
        .map(|line| std::str::from_utf8(line).unwrap().parse().unwrap())
        .collect();
    assert_eq!(numbers.last(), Some(&9_999));
    let in_order = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
    assert!(in_order, "from one connection on, nothing is missing");
}

#[test]
fn frames_truncated_by_a_reset_are_sent_again() {
    // Frames larger than the kernel's buffers, so that connections end inside one.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let receiving = spawn(move || {
        for _ in 0..3 {
            let (mut stream, _) = server.accept().unwrap();
            stream.read_exact(&mut vec![0; 1_500_000]).unwrap();
        }
        receive_one(&server)
    });
    let sink = codec::encode(
        tcp::send_to(&at.to_string()).reconnect(WATCHDOG),
        |frame: &Vec<u8>, out: &mut Vec<u8>| out.extend_from_slice(frame),
    );
    let frame = |n: u8| vec![n; 1_000_000];
    let flow = Flow::new("large");
    flow.source("n", testing::items(0..60u8))
        .map(frame)
        .sink("out", sink);
    run(&flow, 1).unwrap();
    let frames = cut(Framing::U32, &receiving.join().unwrap());
    let first = frames[0][0];
    let due: Vec<Vec<u8>> = (first..60).map(frame).collect();
    assert!(frames == due);
}

#[test]
fn a_receiver_that_starts_late_is_waited_for() {
    let at = free_address();
    let flow = numbers(100, tcp::send_to(&at.to_string()).reconnect(WATCHDOG));
    let running = flow.start(Options::default()).unwrap();
    assert!(!running.ended_within(Duration::from_millis(50)));
    let server = TcpListener::bind(at).unwrap();
    let bytes = receive_one(&server);
    finish(running).unwrap();
    assert_eq!(cut(Framing::Lines, &bytes).len(), 100);
}

#[test]
fn reconnecting_has_a_limit() {
    let at = free_address();
    let sink = tcp::send_to(&at.to_string()).reconnect(Duration::from_millis(50));
    let text = format!("{:?}", run(&numbers(1, sink), 1).unwrap_err());
    assert!(text.contains(&format!("cannot connect to {at}")), "{text}");
}

#[test]
fn a_stop_ends_the_wait_for_a_receiver() {
    let at = free_address();
    let sink = tcp::send_to(&at.to_string()).reconnect(Duration::from_secs(3600));
    let running = numbers(1, sink).start(Options::default()).unwrap();
    running.stop();
    let text = format!("{:?}", finish(running).unwrap_err());
    assert!(text.contains("cannot connect"), "{text}");
}

#[test]
fn an_item_that_its_framing_cannot_carry_fails_the_flow() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap().to_string();
    let flow = Flow::new("long");
    flow.source("n", testing::items(["x".repeat(256)])).sink(
        "out",
        codec::encode(
            tcp::send_to(&at).framing(Framing::U8),
            codec::display::<String>,
        ),
    );
    let text = format!("{:?}", run(&flow, 1).unwrap_err());
    assert_eq!(
        text,
        "step \"out\": a frame of 256 bytes does not fit the framing u8, whose limit is 255"
    );
}

#[test]
fn a_client_can_be_answered_while_the_flow_runs() {
    // A result is sent at once: it does not wait for a full buffer or for the end.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap().to_string();
    let (source, told) = super::support::listener();
    let flow = Flow::new("echo");
    flow.source("in", source.framing(Framing::Lines).connections(1))
        .sink("out", tcp::send_to(&at).framing(Framing::Lines));
    let running = flow.start(Options::default()).unwrap();
    let mut client = TcpStream::connect(super::support::address(&told)).unwrap();
    let (mut answers, _) = server.accept().unwrap();
    for _ in 0..100 {
        client.write_all(b"ping\n").unwrap();
        let mut line = [0; 5];
        answers.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"ping\n");
    }
    drop(client);
    finish(running).unwrap();
}

#[test]
fn a_receiver_that_is_not_up_yet_is_waited_for() {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = place.local_addr().unwrap();
    drop(place);
    let flow = Flow::new("early");
    let began = std::sync::Arc::new(std::sync::Barrier::new(2));
    let sink = tcp::send_to(&at.to_string()).connect_timeout(WATCHDOG);
    flow.source("in", testing::items(["one".to_owned()]))
        .sink("out", codec::encode(sink, codec::display::<String>));
    let starting = std::thread::spawn({
        let began = std::sync::Arc::clone(&began);
        move || {
            began.wait();
            flow.run(Options::default())
        }
    });
    began.wait();
    // No process listens for a while; the flow must connect whether or not it has tried by then.
    std::thread::sleep(Duration::from_millis(200));
    let listener = TcpListener::bind(at).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut found = Vec::new();
    stream.read_to_end(&mut found).unwrap();
    assert_eq!(found, b"\0\0\0\x03one");
    starting.join().unwrap().expect("it runs");
}

#[test]
fn a_missing_receiver_is_an_error_that_names_it() {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = place.local_addr().unwrap();
    drop(place);
    let flow = Flow::new("alone");
    let sink = tcp::send_to(&at.to_string()).connect_timeout(Duration::from_millis(30));
    flow.source("in", testing::items(["one".to_owned()]))
        .sink("out", codec::encode(sink, codec::display::<String>));
    let error = format!(
        "{:?}",
        flow.run(Options::default()).expect_err("nobody listens")
    );
    assert!(
        error.contains(&format!("cannot connect to {at}: Connection refused")),
        "{error}"
    );
}
