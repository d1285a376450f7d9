//! The commits of several processes against a model: whatever process ends at whatever point, the states that are found
//! again are those of one epoch.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::SharedCommits;
use crate::checkpoint::begin::{ClusterStart, ResumedRun, resume};
use crate::checkpoint::fits::FlowParts;
use crate::checkpoint::store::{self, Saved};
use crate::checkpoint::{
    Changes, Codecs, CommitNotice, Committer, Crash, EpochPart, Recovery, Sinks, Sources,
};
use crate::clock::WallClock;
use crate::cluster::{Event, HandledLoad, Joined, Member, Membership, Raise, StateOffer, resolve};
use crate::control::Control;
use crate::error::FlowError;
use crate::key::Shards;
use crate::metrics::progress::CommitTimer;
use crate::mutex::lock;
use crate::node::{Node, Reads};

const PROCESSES: usize = 3;
const STEP: &str = "count";
/// The length of the states of process 1.
const STATE_BYTES: usize = 5 << 19;

/// The processes of a run, as process 0 sees them.
struct Hub {
    run: u64,
    state: Mutex<HubState>,
    events: Vec<Sender<Event>>,
}

#[derive(Default)]
struct HubState {
    /// The epochs that each process has prepared: their numbers, and whether it has changes.
    prepared: Vec<Vec<(u64, bool)>>,
    /// The last epoch of each process, once it is known.
    last: Vec<Option<u64>>,
    drained: Vec<Option<bool>>,
    /// The number of epochs that process 0 was asked to commit.
    asked: Option<u64>,
    first: u64,
}

impl Hub {
    /// Asks process 0 to commit the next epoch, once all have prepared it.
    fn ask(&self, state: &mut HubState) {
        let epoch = state.asked.map_or(state.first, |asked| asked + 1);
        let has = |process: usize| {
            let found = state.prepared[process].iter().find(|(of, _)| *of == epoch);
            match (found, state.last[process]) {
                (Some((_, changed)), _) => Some(*changed),
                (None, Some(last)) if last < epoch => Some(false),
                _ => None,
            }
        };
        let all: Option<Vec<bool>> = (0..PROCESSES).map(has).collect();
        let is_over = state
            .last
            .iter()
            .all(|last| last.is_some_and(|last| last < epoch));
        if let Some(changed) = all.filter(|_| !is_over) {
            state.asked = Some(epoch);
            let last = state
                .last
                .iter()
                .all(|last| last.is_some_and(|last| last <= epoch));
            let _ = self.events[0].send(Event::AllPrepared {
                epoch,
                changed,
                last,
            });
        }
    }
}

struct InHub {
    hub: Arc<Hub>,
    process: usize,
}

impl Member for InHub {
    fn built(&self) {}
    fn drained(&self, has_input: bool) {
        let mut state = lock(&self.hub.state);
        state.drained[self.process] = Some(has_input);
        let all: Option<Vec<bool>> = state.drained.iter().copied().collect();
        if let Some(all) = all {
            let has_input = all.contains(&true);
            let _ = self.hub.events[0].send(Event::Drained { has_input });
        }
    }
    fn raise(&self, raise: Raise) {
        for events in &self.hub.events {
            let _ = events.send(Event::Raise(raise));
        }
    }
    fn prepared(&self, epoch: u64, changed: bool, last: bool) {
        let mut state = lock(&self.hub.state);
        state.prepared[self.process].push((epoch, changed));
        if last {
            state.last[self.process] = Some(epoch);
        }
        self.hub.ask(&mut state);
    }
    fn committed(&self, epoch: u64) {
        let mut state = lock(&self.hub.state);
        let last = state
            .last
            .iter()
            .all(|last| last.is_some_and(|last| last <= epoch));
        for events in &self.hub.events[1..] {
            let _ = events.send(Event::Committed { epoch, last });
        }
        self.hub.ask(&mut state);
    }
    fn handled(&self, _: &[HandledLoad]) {}
    fn stop(&self) {}
    fn failed(&self, _: &str) {}
    fn ended(&self) {}
}

/// What a process that starts learns from process 0 about its state.
fn keeps_prepared(zero: &StateOffer, process: usize, offer: &StateOffer) -> bool {
    process > 0
        && resolve(process, PROCESSES, zero, offer).expect("the directories belong together")
}

/// A run of all processes, of which one may crash.
struct Trial {
    dir: tempfile::TempDir,
    runs: u64,
    /// The epochs in which each process has put its key, as of the run that has them.
    written: Vec<BTreeSet<u64>>,
}

impl Trial {
    fn new() -> Self {
        Trial {
            dir: tempfile::tempdir().expect("a folder"),
            runs: 0,
            written: vec![BTreeSet::new(); PROCESSES],
        }
    }

    /// Whether a process changes its key in an epoch.
    fn changes(process: usize, epoch: u64) -> bool {
        !(epoch + process as u64).is_multiple_of(3)
    }

    /// Runs until each process has ended `epochs` epochs, or the process of `crash` has crashed. `ends` ends the flow
    /// instead of stopping it.
    fn run(&mut self, epochs: u64, crash: Option<(usize, Crash)>, ends: bool) {
        self.runs += 1;
        let (hub, starts) = self.begin();
        let states: Vec<StateOffer> = starts.iter().map(|(_, recovery)| offer(recovery)).collect();
        let zero = states[0].clone();
        let base = zero.committed.unwrap_or_default().epoch;
        lock(&hub.state).first = base + 1;
        self.check(&states, base);
        for written in &mut self.written {
            written.retain(|epoch| *epoch <= base);
        }
        let controls: Vec<_> = (0..PROCESSES)
            .map(|_| Arc::new(Control::new(1, None)))
            .collect();
        let written = thread::scope(|scope| {
            let threads: Vec<_> = starts
                .into_iter()
                .enumerate()
                .map(|(process, (events, mut recovery))| {
                    let hub = &hub;
                    let controls = &controls;
                    let zero = &zero;
                    recovery.crash = crash.filter(|(of, _)| *of == process).map(|(_, at)| at);
                    scope.spawn(move || {
                        let process = Process {
                            process,
                            hub: Arc::clone(hub),
                            controls,
                            epochs,
                            ends,
                        };
                        process.run(&recovery, zero, events)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect::<Vec<_>>()
        });
        for (known, new) in self.written.iter_mut().zip(written) {
            known.extend(new);
        }
    }

    /// A hub for the next run, and the directories and events of its processes.
    fn begin(&self) -> (Arc<Hub>, Vec<(Receiver<Event>, Recovery)>) {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..PROCESSES).map(|_| channel()).unzip();
        let hub = Arc::new(Hub {
            run: self.runs,
            state: Mutex::new(HubState {
                prepared: vec![Vec::new(); PROCESSES],
                last: vec![None; PROCESSES],
                drained: vec![None; PROCESSES],
                ..HubState::default()
            }),
            events: senders,
        });
        let recovery = Recovery::new(self.dir.path())
            .epoch(Duration::ZERO)
            .sync(false);
        let starts = receivers.into_iter().enumerate().map(|(process, events)| {
            let membership = membership(process);
            let recovery = recovery.of_process(Some(membership));
            (events, recovery.expect("the layout is right"))
        });
        (hub, starts.collect())
    }

    /// Checks that what the next start finds is the state of one epoch in all processes.
    fn check(&self, offers: &[StateOffer], base: u64) {
        for (process, offer) in offers.iter().enumerate() {
            let is_kept = keeps_prepared(&offers[0], process, offer);
            let expected = self.written[process].range(..=base).next_back();
            let found = if is_kept {
                offer.prepared.map(|prepared| prepared.epoch)
            } else {
                self.saved(process)
            };
            // A prepared epoch that is kept may be one without the key, the first of a run.
            if !is_kept || found.is_some_and(|epoch| self.written[process].contains(&epoch)) {
                assert_eq!(found, expected.copied(), "process {process}, epoch {base}");
            }
        }
    }

    /// The value of the key of a process, as of its last commit.
    fn saved(&self, process: usize) -> Option<u64> {
        let dir = crate::checkpoint::process_dir(self.dir.path(), process);
        let saved = Saved::open(&dir).ok()?;
        let keys = saved.keys(STEP, |_| true).expect("it is read");
        let key = keys.into_iter().next()?;
        let (number, rest) = key.state.split_first_chunk().expect("8 bytes");
        let is_long = process == 1;
        assert_eq!(rest.len(), if is_long { STATE_BYTES - 8 } else { 0 });
        Some(u64::from_le_bytes(*number))
    }
}

/// The step whose key is put.
fn nodes() -> Vec<Node> {
    vec![Node {
        name: STEP.to_owned(),
        kind: "stateful",
        detail: String::new(),
        inputs: Vec::new(),
        exchanged: true,
        reads: Reads::default(),
    }]
}

fn membership(process: usize) -> Membership {
    Membership {
        process,
        processes: PROCESSES,
    }
}

/// What a directory has, which is none of a process that never began.
fn offer(recovery: &Recovery) -> StateOffer {
    let opened = crate::checkpoint::opened::Opened::open(recovery.dir(), false);
    opened.expect("it opens").offer()
}

/// One process of a run.
struct Process<'a> {
    process: usize,
    hub: Arc<Hub>,
    controls: &'a [Arc<Control>],
    epochs: u64,
    ends: bool,
}

impl Process<'_> {
    fn control(&self) -> &Arc<Control> {
        &self.controls[self.process]
    }

    /// Ends all processes, as this one has died.
    fn die(&self) {
        for control in self.controls {
            control.life.fail(FlowError::Lost {
                process: self.process,
                cause: "a test".to_owned(),
            });
        }
        for events in &self.hub.events {
            let _ = events.send(Event::Died {
                process: self.process,
                cause: "a test".to_owned(),
            });
        }
    }

    /// Runs; returns the epochs in which the key was put.
    fn run(
        &self,
        recovery: &Recovery,
        zero: &StateOffer,
        events: Receiver<Event>,
    ) -> BTreeSet<u64> {
        let events = Mutex::new(Some(events));
        let member: Arc<dyn Member> = Arc::new(InHub {
            hub: Arc::clone(&self.hub),
            process: self.process,
        });
        let join = |offer: StateOffer, _: Shards| {
            Ok(Some(Joined {
                run: self.hub.run,
                links: Vec::new(),
                cluster: zero.cluster.unwrap_or(77),
                keeps_prepared: keeps_prepared(zero, self.process, &offer),
                epoch: zero.committed.unwrap_or_default().epoch,
                member: Arc::clone(&member),
                events: lock(&events).take().expect("it joins once"),
            }))
        };
        let start = ClusterStart {
            membership: membership(self.process),
            join: &join,
            stop: &|| {},
        };
        let parts = FlowParts {
            nodes: &nodes(),
            sources: &Sources::default(),
            sinks: &Sinks::default(),
            codecs: &Codecs::default(),
            shards: None,
        };
        let resumed = resume("test", &parts, recovery, 1, 0, Some(&start));
        match resumed {
            Ok(resumed) => self.work(recovery, resumed),
            Err(_) => {
                self.die();
                BTreeSet::new()
            }
        }
    }

    fn work(&self, recovery: &Recovery, resumed: ResumedRun) -> BTreeSet<u64> {
        let joined = resumed.joined.expect("it has joined");
        let control = self.control();
        control.epochs.keep_state();
        let committer = Committer {
            letters: Vec::new(),
            store: resumed.store,
            base: resumed.base,
            commit: resumed.commit,
            flow: "test".to_owned(),
            nodes: nodes(),
            sinks: Sinks::default(),
            recordings: Vec::new(),
            local: resumed.local,
            options: recovery.clone(),
            control: Arc::clone(control),
            clock: Arc::new(WallClock::default()),
            workers: 1,
            roots: 1,
            replicated: None,
            timer: CommitTimer::default(),
            shared: Some(SharedCommits::new(joined.member, self.process)),
        };
        let (notices, received) = channel();
        let passed = notices.clone();
        let events = joined.events;
        thread::scope(|scope| {
            let committer = scope.spawn(move || committer.run(&received));
            scope.spawn(move || {
                for event in events {
                    // The last event that is read, also where nothing has died.
                    let ends = matches!(event, Event::Died { .. });
                    if ends || passed.send(CommitNotice::Cluster(event)).is_err() {
                        break;
                    }
                }
            });
            let written = self.steps(&notices, resumed.base);
            let _ = notices.send(CommitNotice::WorkerEnded);
            committer.join().expect("no panic");
            if self.control().aborted() {
                // It may have died after its worker had ended.
                self.die();
            }
            let _ = self.hub.events[self.process].send(Event::Died {
                process: self.process,
                cause: "it has ended".to_owned(),
            });
            written
        })
    }

    /// The worker: a key is put in each epoch with changes.
    fn steps(&self, notices: &Sender<CommitNotice>, base: u64) -> BTreeSet<u64> {
        let control = self.control();
        let mut written = BTreeSet::new();
        let mut epoch = 0;
        let mut send = |epoch: u64, last: bool| {
            let number = base + 1 + epoch;
            let mut part = EpochPart {
                epoch,
                last,
                ..EpochPart::default()
            };
            if Trial::changes(self.process, number) {
                let mut changes = Changes::new(STEP, Shards::default());
                let mut state = number.to_le_bytes().to_vec();
                if self.process == 1 {
                    // Divided over several records of the journal.
                    state.resize(STATE_BYTES, 7);
                }
                changes.copy(self.process, 0, &[self.process as u8], (1, &state));
                part.changes.extend(changes.records());
                written.insert(number);
            }
            let _ = notices.send(CommitNotice::Part(part));
        };
        loop {
            if control.aborted() {
                self.die();
                break;
            }
            if control.epochs.epoch() > epoch {
                send(epoch, false);
                epoch += 1;
            } else if control.epochs.ends_in(epoch) {
                send(epoch, true);
                break;
            } else if epoch >= self.epochs && self.ends {
                let _ = notices.send(CommitNotice::Drained);
                thread::sleep(Duration::from_millis(1));
            } else if epoch >= self.epochs && self.process == 0 {
                self.controls.iter().for_each(|control| control.stop());
            } else {
                thread::sleep(Duration::from_micros(50));
            }
        }
        written
    }
}

#[test]
fn a_crash_at_any_point_leaves_one_epoch_in_all_processes() {
    for process in 0..PROCESSES {
        for (at, moment) in Crash::SHARED_MOMENTS.into_iter().enumerate() {
            let mut trial = Trial::new();
            for commit in 1..=2 {
                trial.run(3, Some((process, moment(commit))), at % 2 == 0);
            }
            trial.run(3, None, at % 2 == 1);
            trial.run(0, None, false);
            let found: Vec<usize> = trial.written.iter().map(BTreeSet::len).collect();
            assert!(found.iter().all(|epochs| *epochs >= 2), "{found:?}");
        }
    }
}

/// Removes the last commit record of a process, as a loss of power does that takes what was not synced.
fn lose_commit(dir: &Path) {
    let options = millstream_journal::Options {
        exclusive: true,
        ..Default::default()
    };
    let journal = millstream_journal::Journal::open(store::path(dir), options).expect("it opens");
    let mut reader = journal.reader().expect("it opens");
    let mut last = None;
    while let Some(record) = reader.next().expect("it is read") {
        if crate::checkpoint::record::is_commit(record.body) {
            last = Some(record.sequence);
        }
    }
    drop(reader);
    journal
        .cut(last.expect("there is a commit"))
        .expect("it is cut");
}

#[test]
fn a_commit_record_that_a_loss_of_power_takes_is_restored() {
    let mut trial = Trial::new();
    for _ in 0..4 {
        trial.run(5, None, false);
        for process in 1..PROCESSES {
            lose_commit(&crate::checkpoint::process_dir(trial.dir.path(), process));
        }
    }
    trial.run(0, None, false);
}

#[test]
fn a_flow_that_has_ended_has_finished_in_all_processes() {
    let mut trial = Trial::new();
    trial.run(3, None, true);
    for process in 0..PROCESSES {
        let dir = crate::checkpoint::process_dir(trial.dir.path(), process);
        let saved = Saved::open(&dir).expect("it is read");
        let commit = saved.commit().expect("it has committed");
        assert!(
            commit.finished && !commit.notify_pending,
            "process {process}"
        );
        assert!(crate::checkpoint::division::has_stopped(&dir, commit.epoch));
        assert_eq!(saved.prepared(), None);
    }
}

#[test]
fn a_directory_of_another_division_is_refused_and_stays_as_it_is() {
    let mut trial = Trial::new();
    trial.run(3, None, false);
    let dir = crate::checkpoint::process_dir(trial.dir.path(), 1);
    lose_commit(&dir);
    let before = Saved::open(&dir).expect("it is read");
    let parts = FlowParts {
        nodes: &[],
        sources: &Sources::default(),
        sinks: &Sinks::default(),
        codecs: &Codecs::default(),
        shards: None,
    };
    let alone = resume("test", &parts, &Recovery::new(&dir), 1, 0, None);
    let error = format!("{:?}", alone.err().expect("it is refused"));
    assert!(error.contains("part of process 1 of 3"), "{error}");
    let after = Saved::open(&dir).expect("it is read");
    assert!(after.prepared().is_some());
    assert_eq!(before.prepared(), after.prepared());
    let whole = Recovery::new(trial.dir.path());
    let error = format!("{:?}", whole.of_process(None).expect_err("it is refused"));
    assert!(error.contains("millstream scale"), "{error}");
}
