//! Partitions that a source finds during a run are read once, also if the processes find them in different orders.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use millstream_flow::Flow;
use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Growing, Next, Partition, Position, Source};

use super::hub::{Hub, WATCHDOG, until};

/// A source whose partitions have names; each of them has its name as its only item.
struct Named(Vec<String>);

struct Name(String, bool);

impl Source<Vec<String>> for Named {
    fn describe(&self) -> String {
        "names".to_owned()
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok(vec!["first".to_owned()])
    }
    fn open(
        &self,
        partition: usize,
        _: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Vec<String>>>, Cause> {
        let name = match partition {
            0 => "first".to_owned(),
            found => self.0[found - 1].clone(),
        };
        Ok(Box::new(Name(name, false)))
    }
    fn growing(&self) -> Option<&dyn Growing> {
        Some(self)
    }
}

impl Growing for Named {
    fn found(&self, known: usize) -> Result<Vec<String>, Cause> {
        Ok(self.0[known - 1..].to_vec())
    }
}

impl Partition<Vec<String>> for Name {
    fn next_batch(&mut self, batch: &mut Vec<String>, _: &mut Events<'_>) -> Result<Next, Cause> {
        if std::mem::replace(&mut self.1, true) {
            return Ok(Next::Idle);
        }
        batch.push(self.0.clone());
        Ok(Next::Batch)
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(u64::from(self.1).into())
    }
}

#[test]
fn partitions_that_are_found_in_different_orders_are_read_once() {
    const FOUND: usize = 40;
    let hub = Hub::new(3);
    let (tell, told) = channel();
    let seen: Arc<Mutex<Vec<(usize, String)>>> = Arc::default();
    let processes: Vec<_> = (0..3)
        .map(|process| {
            let tell = tell.clone();
            let seen = Arc::clone(&seen);
            let options = hub.options(process, 1);
            std::thread::spawn(move || {
                let mut found: Vec<String> = (0..FOUND).map(|n| format!("found {n}")).collect();
                found.rotate_left(process * 7);
                let flow = Flow::new("found");
                flow.source("names", Named(found))
                    .inspect(move |name| seen.lock().unwrap().push((process, name.clone())))
                    .sink("out", millstream_flow::testing::Collected::new().sink());
                let running = flow.start(options).unwrap();
                tell.send(running.control()).unwrap();
                assert!(running.ended_within(WATCHDOG));
                running.wait().unwrap();
            })
        })
        .collect();
    until("all partitions are read", || {
        seen.lock().unwrap().len() > FOUND
    });
    told.recv_timeout(WATCHDOG).unwrap().stop();
    processes.into_iter().for_each(|p| p.join().unwrap());
    let seen = seen.lock().unwrap();
    let mut names: Vec<&String> = seen.iter().map(|(_, name)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), seen.len()), (FOUND + 1, FOUND + 1));
    assert!((0..3).all(|process| seen.iter().any(|(by, _)| *by == process)));
}
