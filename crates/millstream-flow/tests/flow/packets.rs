//! The form of packets: unchanged in memory, or as bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use millstream_flow::Packets;
use millstream_flow::metrics::Report;
use millstream_flow::testing::{Collected, Mark, script};
use millstream_flow::{Flow, FlowError, Options};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::support::in_own_process_with;

/// How many items were encoded and decoded, in the whole process: tests that look at them have types of their own.
static ENCODED: AtomicUsize = AtomicUsize::new(0);
static DECODED: AtomicUsize = AtomicUsize::new(0);

/// A number that counts its encodings. 13 cannot be encoded, and 14 cannot be decoded.
#[derive(Clone, Debug, PartialEq)]
struct Counted(u64);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        ENCODED.fetch_add(1, Relaxed);
        match self.0 {
            13 => Err(S::Error::custom("13 is unlucky")),
            number => to.serialize_u64(number),
        }
    }
}

impl<'a> Deserialize<'a> for Counted {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        DECODED.fetch_add(1, Relaxed);
        match u64::deserialize(from)? {
            14 => Err(D::Error::custom("14 is unreadable")),
            number => Ok(Counted(number)),
        }
    }
}

fn run(flow: &Flow, workers: usize, packets: Option<Packets>) -> Result<Report, FlowError> {
    flow.run(Options {
        packets,
        ..Options::workers(workers)
    })
}

fn counted(numbers: &[u64], announced: bool) -> (Flow, Collected<(u64, Counted)>) {
    let flow = Flow::new("counted");
    let out = Collected::new();
    if announced {
        flow.saves::<Counted>();
    }
    let marks: Vec<_> = numbers.iter().map(|n| Mark::Item(Counted(*n))).collect();
    flow.source("in", script([marks]))
        .key_by(|n: &Counted| n.0 % 3)
        .stateful("pass", |_| (), |(), _, n: Counted| Some(n))
        .items()
        .sink("out", out.sink());
    (flow, out)
}

/// One test, as the counts are those of the process.
#[test]
fn items_are_encoded_only_if_packets_are_bytes_and_failures_name_the_edge() {
    let numbers = [0, 1, 2, 3, 4, 5];
    for workers in [1, 2] {
        let (flow, out) = counted(&numbers, false);
        run(&flow, workers, Some(Packets::InMemory)).unwrap();
        assert_eq!(out.take().len(), numbers.len());
        assert_eq!((ENCODED.load(Relaxed), DECODED.load(Relaxed)), (0, 0));
    }
    for workers in [1, 2] {
        let (flow, out) = counted(&numbers, true);
        run(&flow, workers, Some(Packets::Bytes)).unwrap();
        let mut items = out.take();
        items.sort_by_key(|(_, number)| number.0);
        assert_eq!(items, numbers.map(|n| (n % 3, Counted(n))));
        let counts = (ENCODED.swap(0, Relaxed), DECODED.swap(0, Relaxed));
        assert_eq!(counts, (numbers.len(), numbers.len()));
    }
    let (flow, _) = counted(&numbers, false);
    let error = format!("{:?}", run(&flow, 1, Some(Packets::Bytes)).unwrap_err());
    let edge = "items from \"key_by-1\" to \"exchange-2\" cannot be sent as bytes";
    assert!(error.contains(edge) && error.contains("Counted"), "{error}");
    for (number, cause) in [(13, "13 is unlucky"), (14, "14 is unreadable")] {
        let (flow, _) = counted(&[1, number, 2], true);
        let error = format!("{:?}", run(&flow, 2, Some(Packets::Bytes)).unwrap_err());
        assert!(
            error.contains(cause) && error.contains("exchange-2"),
            "{error}"
        );
    }
}

#[test]
fn a_type_that_shares_memory_stays_in_its_process() {
    let flow = Flow::new("shared");
    let out = Collected::new();
    flow.source("in", script([vec![Mark::Item(Arc::new(1_u64))]]))
        .key_by(|n: &Arc<u64>| **n)
        .count(millstream_flow::Emit::End)
        .items()
        .sink("out", out.sink());
    run(&flow, 2, Some(Packets::InMemory)).unwrap();
    assert_eq!(out.take(), [(1, 1)]);
    let error = format!("{:?}", run(&flow, 2, Some(Packets::Bytes)).unwrap_err());
    assert!(error.contains("Arc<u64> has no codec"), "{error}");
}

#[test]
#[ignore = "run by the test below, as a process of its own"]
fn by_the_environment() {
    let (flow, out) = counted(&[1, 2], true);
    match run(&flow, 1, None) {
        Ok(_) => println!(
            "{} items, {} encoded",
            out.take().len(),
            ENCODED.load(Relaxed)
        ),
        Err(error) => println!("error: {error}"),
    }
}

#[test]
fn the_environment_chooses_the_form() {
    let output = |value: Option<&str>| {
        let output = in_own_process_with("packets::by_the_environment", |command| {
            command.env_remove("MILLSTREAM_PACKETS");
            command.envs(value.map(|value| ("MILLSTREAM_PACKETS", value)));
        });
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(output(None).contains("2 items, 0 encoded"));
    assert!(output(Some("memory")).contains("2 items, 0 encoded"));
    assert!(output(Some("bytes")).contains("2 items, 2 encoded"));
    let wrong = output(Some("byte"));
    assert!(
        wrong.contains("error: MILLSTREAM_PACKETS is \"byte\""),
        "{wrong}"
    );
}
