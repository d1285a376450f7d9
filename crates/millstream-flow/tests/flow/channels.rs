//! Flows between channels and streams of an asynchronous program.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use millstream_flow::testing::{Collected, items};
use millstream_flow::{Flow, Options, Running, channel};
use tokio::sync::mpsc;
use tokio::time::{Interval, interval, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a future on this thread, and panics if that takes too long.
fn on_one_thread<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(PATIENCE, future).await.expect("it hangs") })
}

#[test]
fn a_handle_crosses_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<Running>();
}

#[test]
fn items_pass_through_channels_that_are_full_most_of_the_time() {
    for workers in 1..=3 {
        on_one_thread(async {
            let (numbers, source) = mpsc::channel(3);
            let (sink, mut tens) = mpsc::channel(1);
            let flow = Flow::new("tens");
            flow.source("in", channel::source(source))
                .redistribute()
                .map(|n: i64| n * 10)
                .sink("out", channel::sink(sink));
            let running = flow.start(Options::workers(workers)).unwrap();
            drop(flow);
            let sending = tokio::spawn(async move {
                for n in 0..2000 {
                    numbers.send(n).await.unwrap();
                }
            });
            let mut seen = Vec::new();
            while let Some(n) = tens.recv().await {
                seen.push(n);
            }
            let report = running.await.unwrap();
            sending.await.unwrap();
            assert_eq!(report.step("out").unwrap().items_in, 2000);
            let expected = (0..2000).map(|n| n * 10);
            match workers {
                1 => assert!(seen.into_iter().eq(expected)),
                _ => assert!(
                    seen.into_iter()
                        .collect::<BTreeSet<_>>()
                        .into_iter()
                        .eq(expected)
                ),
            }
        });
    }
}

#[test]
fn a_channel_is_read_by_one_run() {
    let (numbers, source) = mpsc::channel::<i64>(1);
    drop(numbers);
    let flow = Flow::new("once");
    flow.source("in", channel::source(source))
        .sink("out", Collected::new().sink());
    flow.run(Options::default()).unwrap();
    let error = format!("{:?}", flow.run(Options::default()).unwrap_err());
    assert!(
        error.contains("source \"in\" (channel): an earlier run has taken this channel"),
        "{error}"
    );
}

#[test]
fn a_receiver_that_is_dropped_fails_the_flow() {
    on_one_thread(async {
        let (sink, out) = mpsc::channel(1);
        let flow = Flow::new("gone");
        flow.source("in", items(0..100_i64))
            .sink("out", channel::sink(sink));
        let running = flow.start(Options::default()).unwrap();
        drop(out);
        let error = format!("{:?}", running.await.unwrap_err());
        assert_eq!(
            error,
            "step \"out\": the receiver of the channel was dropped"
        );
    });
}

#[test]
fn a_flow_whose_items_are_not_received_is_stopped() {
    on_one_thread(async {
        let (numbers, source) = mpsc::channel(100);
        let (sink, mut out) = mpsc::channel(1);
        let flow = Flow::new("stopped");
        flow.source("in", channel::source(source))
            .sink("out", channel::sink(sink));
        let running = flow.start(Options::default()).unwrap();
        for n in 0..10_i64 {
            numbers.send(n).await.unwrap();
        }
        while out.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        running.stop();
        running.await.unwrap();
        assert_eq!(out.recv().await, Some(0));
    });
}

#[test]
fn a_future_that_is_dropped_stops_its_flow() {
    on_one_thread(async {
        let (numbers, source) = mpsc::channel(1);
        let flow = Flow::new("dropped");
        flow.source("in", channel::source(source))
            .sink("out", Collected::<i64>::new().sink());
        let running = flow.start(Options::default()).unwrap();
        let waited = timeout(Duration::from_millis(20), running.into_future());
        assert!(waited.await.is_err());
        numbers.closed().await;
    });
}

/// Numbers at an interval, which the runtime of the program counts.
struct Ticks(Interval, i64);

impl Stream for Ticks {
    type Item = i64;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<i64>> {
        ready!(self.0.poll_tick(cx));
        self.1 += 1;
        Poll::Ready((self.1 <= 5).then_some(self.1))
    }
}

#[test]
fn a_stream_waits_for_timers_of_the_runtime_in_which_it_was_made() {
    on_one_thread(async {
        let flow = Flow::new("ticks");
        let seen = Collected::new();
        let ticks = Ticks(interval(Duration::from_millis(2)), 0);
        flow.source("in", channel::stream(ticks))
            .sink("out", seen.sink());
        flow.start(Options::workers(2)).unwrap().await.unwrap();
        assert_eq!(seen.take(), [1, 2, 3, 4, 5]);
    });
}
