//! Descriptions of flows: errors are found before anything runs, and the graph can be shown.

use millstream_flow::testing::{Collected, items};
use millstream_flow::{Emit, Flow, FlowError, Options, Stream, tcp};

use super::support::run;

fn numbers(flow: &Flow, name: &str) -> Stream<u64> {
    flow.source(name, items([1u64, 2, 3]))
}

fn mistake(flow: &Flow) -> FlowError {
    match flow.start(Options::default()) {
        Ok(_) => panic!("the mistake was not found"),
        Err(error) => error,
    }
}

#[test]
fn a_name_used_twice() {
    let flow = Flow::new("f");
    let source = numbers(&flow, "n");
    source
        .map(|n| n)
        .named("n")
        .sink("out", Collected::new().sink());
    let error = mistake(&flow);
    assert!(matches!(&error, FlowError::DuplicateName { name, .. } if name == "n"));
    assert_eq!(
        error.to_string(),
        "flow \"f\": the name \"n\" is used by two steps"
    );
}

#[test]
fn a_default_name_can_be_replaced() {
    let flow = Flow::new("f");
    let keyed = numbers(&flow, "n").key_by(|n| *n);
    let first = keyed.count(Emit::End);
    let second = keyed.count(Emit::End).named("second count");
    let sums = keyed.sum(Emit::End);
    let more_sums = keyed.sum(Emit::End).named("second sum");
    let seen = Collected::new();
    first
        .merge(&[second, sums, more_sums])
        .values()
        .sink("out", seen.sink());
    flow.check().unwrap();
    let report = run(&flow, 2).unwrap();
    assert_eq!(seen.take().iter().sum::<u64>(), 3 + 3 + 6 + 6);
    for (name, kind) in [
        ("second count", "count"),
        ("second sum", "sum"),
        ("sum", "sum"),
    ] {
        let step = report.step(name).unwrap();
        assert_eq!((step.kind, step.items_in), (kind, 3), "{name}");
    }
}

#[test]
fn a_name_for_merged_keyed_streams() {
    for workers in 1..=3 {
        let flow = Flow::new("f");
        let [here, there] = ["n", "m"].map(|name| numbers(&flow, name).key_by(|n| *n));
        let both = here.merge(&[there]).named("both");
        let seen = Collected::new();
        both.map(|n| n * 10)
            .sum(Emit::End)
            .items()
            .sink("out", seen.sink());
        let report = run(&flow, workers).unwrap();
        assert_eq!(report.step("both").unwrap().kind, "exchange");
        let mut sums = seen.take();
        sums.sort_unstable();
        assert_eq!(sums, [(1, 20), (2, 40), (3, 60)], "{workers} workers");
    }
}

#[test]
fn an_unread_side_of_a_branch_is_dropped() {
    for side in [true, false] {
        let flow = Flow::new("f");
        let (yes, no) = numbers(&flow, "n").branch(|n| *n == 2);
        let seen = Collected::new();
        if side { yes } else { no }.sink("out", seen.sink());
        run(&flow, 2).unwrap();
        let due: &[u64] = if side { &[2] } else { &[1, 3] };
        assert_eq!(seen.take(), due);
    }
}

#[test]
fn two_counts_need_two_names() {
    let flow = Flow::new("f");
    let keyed = numbers(&flow, "n").key_by(|n| *n);
    keyed
        .count(Emit::End)
        .merge(&[keyed.count(Emit::End)])
        .values()
        .sink("out", Collected::new().sink());
    assert!(matches!(mistake(&flow), FlowError::DuplicateName { name, .. } if name == "count"));
}

#[test]
fn a_state_without_a_name() {
    let flow = Flow::new("f");
    numbers(&flow, "n")
        .key_by(|n| *n)
        .stateful("", |_| (), |(), _, n| [n])
        .values()
        .sink("out", Collected::new().sink());
    let error = mistake(&flow);
    assert!(matches!(error, FlowError::MissingName { .. }));
    assert_eq!(
        error.to_string(),
        "flow \"f\": a stateful step keeps state and needs a name"
    );
}

#[test]
fn no_source() {
    let error = mistake(&Flow::new("f"));
    assert!(matches!(error, FlowError::NoSource(_)));
    assert_eq!(error.to_string(), "flow \"f\" has no source");
}

#[test]
fn an_unread_stream() {
    let flow = Flow::new("f");
    let _ = numbers(&flow, "n").map(|n| n).named("lost");
    let error = mistake(&flow);
    assert!(matches!(error, FlowError::Unread { .. }));
    assert_eq!(
        error.to_string(),
        "flow \"f\": nothing reads the output of \"lost\"; end it with a sink"
    );
}

#[test]
fn streams_of_two_flows() {
    let here = Flow::new("here");
    let there = Flow::new("there");
    let other = numbers(&there, "m").map(|n| n);
    other.sink("there", Collected::new().sink());
    numbers(&here, "n")
        .merge(&[other])
        .sink("out", Collected::new().sink());
    for flow in [&here, &there] {
        let error = mistake(flow);
        assert!(matches!(error, FlowError::ForeignStream), "{error}");
        assert_eq!(
            error.to_string(),
            "streams of two different flows cannot be merged"
        );
        // Formatting the graph must not fail because of the missing stream.
        let shown = flow.describe();
        let _ = (shown.to_string(), shown.to_json(), shown.to_mermaid());
    }
}

#[test]
fn the_number_of_workers_has_limits() {
    let flow = Flow::new("f");
    numbers(&flow, "n").sink("out", Collected::new().sink());
    for workers in [0, 257] {
        let Err(error) = flow.start(Options::workers(workers)) else {
            panic!("{workers} workers run")
        };
        assert!(matches!(error, FlowError::Usage(_)));
        assert_eq!(
            error.to_string(),
            format!("{workers} workers requested; the number must be from 1 to 256")
        );
    }
}

/// A flow with every kind of connection.
fn example() -> Flow {
    let flow = Flow::new("votes");
    let votes = numbers(&flow, "votes").filter(|n| *n > 0).named("real");
    let late = numbers(&flow, "late");
    let (even, odd) = votes.merge(&[late]).named("all").branch(|n| n % 2 == 0);
    even.key_by(|n| *n)
        .named("by number")
        .sum(Emit::End)
        .values()
        .named("totals")
        .sink("out", Collected::new().sink());
    odd.redistribute()
        .named("spread")
        .sink("say \"odd\"", Collected::new().sink());
    flow
}

#[test]
fn a_flow_as_text() {
    assert_eq!(
        example().describe().to_string(),
        "flow votes
  source       votes (test script)
  filter       real from votes
  source       late (test script)
  merge        all from real, late
  branch       branch-4 from all
  key_by       by number from branch-4
  exchange     exchange-6 by key from by number
  sum          sum from exchange-6
  values       totals from sum
  sink         out (collected in memory) from totals
  redistribute spread in turn from branch-4
  sink         say \"odd\" (collected in memory) from spread
"
    );
}

#[test]
fn a_flow_as_json() {
    let shown = example().describe().to_json();
    assert_eq!(shown["flow"], "votes");
    assert_eq!(
        shown["nodes"][3],
        serde_json::json!({"name": "all", "kind": "merge", "detail": "", "inputs": ["real", "late"],
            "exchanged": false})
    );
    assert_eq!(
        shown["nodes"][9],
        serde_json::json!({"name": "out", "kind": "sink", "detail": "collected in memory",
            "inputs": ["totals"], "exchanged": false})
    );
    assert_eq!(shown["nodes"][6]["exchanged"], true);
    assert_eq!(shown["nodes"].as_array().unwrap().len(), 12);
}

#[test]
fn a_flow_as_mermaid() {
    assert_eq!(
        example().describe().to_mermaid(),
        "flowchart LR
  n0[\"votes<br/>source test script\"]
  n1[\"real<br/>filter\"]
  n2[\"late<br/>source test script\"]
  n3[\"all<br/>merge\"]
  n4[\"branch-4<br/>branch\"]
  n5[\"by number<br/>key_by\"]
  n6[\"exchange-6<br/>exchange\"]
  n7[\"sum<br/>sum\"]
  n8[\"totals<br/>values\"]
  n9[\"out<br/>sink collected in memory\"]
  n10[\"spread<br/>redistribute\"]
  n11[\"say #quot;odd#quot;<br/>sink collected in memory\"]
  n0 --> n1
  n1 --> n3
  n2 --> n3
  n3 --> n4
  n4 --> n5
  n5 ==> n6
  n6 --> n7
  n7 --> n8
  n8 --> n9
  n4 ==> n10
  n10 --> n11
"
    );
}

#[test]
fn connectors_are_described() {
    let flow = Flow::new("f");
    flow.source("in", tcp::listen("127.0.0.1:7001")).sink(
        "out",
        tcp::send_to("localhost:7002").framing("u16le".parse().unwrap()),
    );
    let text = flow.describe().to_string();
    assert!(
        text.contains("source    in (tcp listen 127.0.0.1:7001, u32)"),
        "{text}"
    );
    assert!(
        text.contains("sink      out (tcp connect localhost:7002, u16le) from in"),
        "{text}"
    );
}
