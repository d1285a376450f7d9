//! A stop on one process ends all of them, with everything processed that was read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, generator};

use super::hub::{Hub, WATCHDOG, until};

#[test]
fn a_stop_of_one_process_stops_all_and_loses_nothing() {
    let hub = Hub::new(3);
    let read = Arc::new(AtomicU64::new(0));
    let seen = Collected::<u64>::new();
    let (tell, told) = channel();
    let processes: Vec<_> = (0..3)
        .map(|process| {
            let read = Arc::clone(&read);
            let out = seen.clone();
            let tell = tell.clone();
            let options = hub.options(process, 1);
            std::thread::spawn(move || {
                let flow = Flow::new("stopped");
                let source = generator::from_fn(move |n| {
                    read.fetch_add(1, Ordering::SeqCst);
                    Some(n)
                });
                flow.source("numbers", source.rate(20_000.0).partitions(3))
                    .key_by(|n| n % 31)
                    .stateful("same", |_| (), |(), _, n| [n])
                    .values()
                    .sink("out", out.sink());
                let running = flow.start(options).unwrap();
                tell.send((process, running.control())).unwrap();
                assert!(running.ended_within(WATCHDOG));
                running.wait().unwrap();
            })
        })
        .collect();
    let controls: Vec<_> = (0..3)
        .map(|_| told.recv_timeout(WATCHDOG).unwrap())
        .collect();
    until("items are read", || read.load(Ordering::SeqCst) > 3000);
    let (_, control) = controls.iter().find(|(process, _)| *process == 1).unwrap();
    control.stop();
    processes.into_iter().for_each(|p| p.join().unwrap());
    assert_eq!(seen.take().len() as u64, read.load(Ordering::SeqCst));
}

/// A process that is inside an item for long is abandoned, and so are the others.
#[test]
fn a_process_that_does_not_drain_does_not_hold_up_the_others() {
    let hub = Hub::new(2);
    let (tell, told) = channel();
    let inside = Arc::new(AtomicU64::new(0));
    let processes: Vec<_> = (0..2)
        .map(|process| {
            let tell = tell.clone();
            let inside = Arc::clone(&inside);
            let options = hub.options(process, 1);
            std::thread::spawn(move || {
                let flow = Flow::new("slow");
                flow.source("numbers", generator::from_fn(Some))
                    .redistribute()
                    .map(move |n| {
                        if process == 1 {
                            inside.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(400));
                        }
                        n
                    })
                    .sink("out", Collected::new().sink());
                let running = flow.start(options).unwrap();
                tell.send((process, running.control())).unwrap();
                assert!(running.ended_within(WATCHDOG));
                running.wait().unwrap();
            })
        })
        .collect();
    let controls: Vec<_> = (0..2)
        .map(|_| told.recv_timeout(WATCHDOG).unwrap())
        .collect();
    until("process 1 is busy", || inside.load(Ordering::SeqCst) > 1);
    controls[0].1.stop();
    processes.into_iter().for_each(|p| p.join().unwrap());
}
