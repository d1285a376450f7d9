//! `map_async`: the outputs are those of plain calls, for any number of calls at once, any order of their ends,
//! and crashes at any point.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_flow::testing::{Collected, Trial, items};
use millstream_flow::{Calls, Emit, Flow, FlowError, OnError, Options, Recovery, codec, files};

use crate::recovery::crash_everywhere;
use crate::support::{Random, failure, run};

/// Doubles a number, with different delays.
async fn twice(n: u64) -> Result<u64, Cause> {
    for _ in 0..n * 7 % 5 {
        tokio::task::yield_now().await;
    }
    Ok(2 * n)
}

#[test]
fn results_are_those_of_plain_calls() {
    let expected: Vec<u64> = (0..500).map(|n| 2 * n).collect();
    for (concurrency, ordered, workers) in
        [(1, true, 1), (3, true, 2), (16, false, 1), (64, false, 3)]
    {
        let flow = Flow::new("twice");
        let out = Collected::new();
        let calls = Calls::new().concurrency(concurrency);
        let calls = if ordered { calls } else { calls.unordered() };
        flow.source("in", items(0..500u64).batch_size(33))
            .map_async("twice", calls, twice)
            .sink("out", out.sink());
        run(&flow, workers).expect("it runs");
        let mut found = out.take();
        if !ordered {
            found.sort_unstable();
        }
        assert_eq!(found, expected, "{concurrency} calls, {workers} workers");
    }
}

#[test]
fn pending_calls_are_limited_and_keys_stay_with_their_answers() {
    for ordered in [true, false] {
        let now = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let flow = Flow::new("watched");
        let out = Collected::new();
        let calls = Calls::new().concurrency(5);
        let seen = Arc::clone(&most);
        flow.source("in", items(0..200u64))
            .key_by(|n| n % 7)
            .map_async(
                "watch",
                if ordered { calls } else { calls.unordered() },
                move |n| {
                    let now = Arc::clone(&now);
                    let most = Arc::clone(&most);
                    async move {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        now.fetch_sub(1, Ordering::SeqCst);
                        Ok::<_, Cause>(n)
                    }
                },
            )
            .items()
            .sink("out", out.sink());
        run(&flow, 1).expect("it runs");
        assert_eq!(seen.load(Ordering::SeqCst), 5);
        let found = out.take();
        assert_eq!(found.len(), 200);
        assert!(found.iter().all(|(key, n)| *key == n % 7), "{found:?}");
    }
}

#[test]
fn failed_calls_are_repeated_and_then_handled_by_the_policy() {
    let asked = Arc::new(AtomicUsize::new(0));
    let calls = |retries| {
        let calls = Calls::new().retries(retries).retry_pause(Duration::ZERO);
        calls.timeout(Duration::from_secs(60))
    };
    // Each third call succeeds.
    let shaky = |asked: &Arc<AtomicUsize>| {
        let asked = Arc::clone(asked);
        move |n: u64| {
            let nth = asked.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                match nth % 3 {
                    0 => Ok(n),
                    _ => Err("no line"),
                }
            }
        }
    };
    let flow = Flow::new("shaky");
    let out = Collected::new();
    flow.source("in", items(0..9u64))
        .map_async("ask", calls(2).concurrency(1), shaky(&asked))
        .sink("out", out.sink());
    run(&flow, 1).expect("it runs");
    assert_eq!(out.take(), (0..9).collect::<Vec<u64>>());
    assert_eq!(asked.swap(0, Ordering::SeqCst), 27);

    let letters = Collected::new();
    for (on_error, given) in [
        (OnError::Skip, 3),
        (OnError::dead_letter(letters.sink()), 3),
    ] {
        asked.store(0, Ordering::SeqCst);
        let flow = Flow::new("shaky");
        flow.source("in", items(0..9u64))
            .key_by(|n| n % 2)
            .map_async(
                "ask",
                calls(0).concurrency(1).on_error(on_error),
                shaky(&asked),
            )
            .values()
            .sink("out", out.sink());
        run(&flow, 1).expect("it runs");
        assert_eq!(out.take().len(), given);
    }
    let letters = letters.take();
    assert_eq!(letters.len(), 6);
    assert!(letters[0].error.contains("no line"), "{}", letters[0].error);

    asked.store(0, Ordering::SeqCst);
    let flow = Flow::new("shaky");
    flow.source("in", items(7..8u64))
        .key_by(|n| n % 2)
        .map_async("ask", calls(1), shaky(&asked))
        .values()
        .sink("out", out.sink());
    let said = failure(&flow, 1);
    for part in ["step \"ask\"", "key 1", "item 7", "no line"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_call_without_an_answer_times_out() {
    let flow = Flow::new("silent");
    let given_up = Arc::new(AtomicBool::new(false));
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let flag = Arc::clone(&given_up);
    flow.source("in", items(0..3u64))
        .map_async(
            "ask",
            Calls::new().timeout(Duration::from_millis(5)),
            move |n| {
                let flag = Flag(Arc::clone(&flag));
                async move {
                    std::future::pending::<()>().await;
                    drop(flag);
                    Ok::<_, Cause>(n)
                }
            },
        )
        .sink("out", Collected::new().sink());
    let said = failure(&flow, 2);
    assert!(said.contains("no answer within 5ms"), "{said}");
    assert!(given_up.load(Ordering::SeqCst));
}

#[test]
fn a_call_that_panics_ends_the_flow_whatever_the_policy() {
    let flow = Flow::new("panicking");
    flow.source("in", items(0..3u64))
        .map_async(
            "ask",
            Calls::new().on_error(OnError::Skip),
            |n| async move {
                assert!(n != 1, "a test panics, as it should");
                Ok::<_, Cause>(n)
            },
        )
        .sink("out", Collected::new().sink());
    let said = failure(&flow, 1);
    assert!(
        said.contains("step \"ask\"")
            && said.contains("item 1")
            && said.contains("the call panicked: a test panics, as it should"),
        "{said}"
    );
}

#[test]
fn calls_may_use_an_existing_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("there")
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("it is made");
    let flow = Flow::new("there");
    let out = Collected::new();
    let calls = Calls::new().runtime(runtime.handle().clone());
    flow.source("in", items(0..50u64))
        .map_async("name", calls, |_| async {
            let name = std::thread::current().name().map(str::to_owned);
            name.ok_or("a thread without a name")
        })
        .sink("out", out.sink());
    run(&flow, 2).expect("it runs");
    assert_eq!(out.take(), vec!["there"; 50]);
    runtime.shutdown_background();
    let said = failure(&flow, 1);
    assert!(said.contains("its runtime was shut down"), "{said}");
}

#[test]
fn a_runtime_without_threads_makes_calls_while_it_is_blocked_on() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("it is made");
    let flow = Flow::new("there");
    let out = Collected::new();
    let calls = Calls::new().runtime(runtime.handle().clone());
    flow.source("in", items(0..50u64))
        .map_async("twice", calls, twice)
        .sink("out", out.sink());
    runtime.block_on(async {
        let running = flow.start(Options::default()).expect("it starts");
        running.await.expect("it runs");
    });
    assert_eq!(out.take().len(), 50);
    // Its `block_on` is over.
    let said = failure(&flow, 1);
    assert!(
        said.contains("\"twice\"") && said.contains("no call has begun for 10 s"),
        "{said}"
    );
}

fn asking(out: &std::path::Path) -> Flow {
    let flow = Flow::new("asking");
    flow.source("in", items(0..400u64).batch_size(9))
        .key_by(|n| n % 11)
        .count(Emit::Each)
        .named("before")
        .map_async("ask", Calls::new().concurrency(30).unordered(), twice)
        .count(Emit::Each)
        .named("behind")
        .items()
        .map(|(key, count)| format!("{key} {count}"))
        .sink("out", codec::encode(files::write(out), codec::display));
    flow
}

#[test]
fn pending_calls_are_repeated_with_any_number_of_workers() {
    let mut expected: Vec<String> = (0..400u64)
        .map(|n| format!("{} {}", n % 11, n / 11 + 1))
        .collect();
    expected.sort();
    for seed in 0..6 {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let state = folder.path().join("state");
        let mut random = Random::new(seed);
        let crashes = crash_everywhere(&asking(&out), &state, 2, || 1 + random.below(3) as usize);
        assert!(crashes > 1, "seed {seed}: {crashes}");
        let mut found = crate::recovery::lines(&out);
        found.sort();
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn a_crash_at_any_point_does_not_change_the_results() {
    let flow = Flow::new("trial");
    flow.source("in", items(0..60u64))
        .map_async("ask", Calls::new().concurrency(8), twice)
        .sink(
            "out",
            codec::encode(files::write("/dev/null/folder"), codec::display),
        );
    let crashes = Trial::new(&flow).crash_everywhere();
    assert!(crashes.expect("nothing differs") > 6);
}

#[test]
fn invalid_options_are_reported() {
    let build = |name: &str, calls: Calls| {
        let flow = Flow::new("mistaken");
        flow.source("in", items(0..3u64))
            .map_async(name, calls, twice)
            .sink("out", Collected::new().sink());
        flow
    };
    let told = |flow: Flow| flow.run(Options::default()).err();
    let error = told(build("ask", Calls::new().concurrency(0))).expect("nothing is asked");
    assert!(format!("{error:?}").contains("1 call or more"), "{error}");
    assert!(
        told(build("", Calls::new())).is_some(),
        "it keeps state, and has no name"
    );

    #[derive(Clone, Debug)]
    struct Unknown;
    let flow = Flow::new("unknown");
    flow.source("in", items([Unknown]))
        .map_async("ask", Calls::new(), |_: Unknown| async {
            Ok::<_, Cause>(0u64)
        })
        .sink("out", Collected::new().sink());
    let state = tempfile::tempdir().expect("a folder");
    let error = crate::recovery::run(&flow, 1, Recovery::new(state.path()));
    assert!(matches!(error, Err(FlowError::Unsaved { .. })), "{error:?}");
}
