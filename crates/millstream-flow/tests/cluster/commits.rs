//! The commits of a cluster in memory, as process 0 sees them: which process has prepared which epoch, and what a
//! process that starts keeps of its state.

use std::sync::Mutex;
use std::sync::mpsc::Sender;

use millstream_flow::cluster::{Event, StateOffer};

/// The commits of one run.
#[derive(Default)]
pub struct Commits(Mutex<State>);

#[derive(Default)]
struct State {
    /// The epochs that each process has prepared, with whether it has changes.
    prepared: Vec<Vec<(u64, bool)>>,
    /// The last epoch of each process, once it is known.
    last: Vec<Option<u64>>,
    drained: Vec<Option<bool>>,
    /// The epoch that is committed next.
    next: u64,
    /// Whether process 0 was asked to commit it.
    is_asked: bool,
}

impl Commits {
    pub fn new(processes: usize) -> Self {
        Commits(Mutex::new(State {
            prepared: vec![Vec::new(); processes],
            last: vec![None; processes],
            drained: vec![None; processes],
            ..State::default()
        }))
    }

    /// All processes have joined, after this epoch.
    pub fn begin(&self, epoch: u64) {
        self.0.lock().unwrap().next = epoch + 1;
    }

    pub fn drained(&self, process: usize, has_input: bool, zero: &Sender<Event>) {
        let mut state = self.0.lock().unwrap();
        state.drained[process] = Some(has_input);
        let all: Option<Vec<bool>> = state.drained.iter().copied().collect();
        if let Some(all) = all {
            let has_input = all.contains(&true);
            let _ = zero.send(Event::Drained { has_input });
        }
    }

    pub fn prepared(
        &self,
        process: usize,
        prepared: (u64, bool),
        last: bool,
        zero: &Sender<Event>,
    ) {
        let mut state = self.0.lock().unwrap();
        state.prepared[process].push(prepared);
        state.last[process] = last.then_some(prepared.0);
        state.ask(zero);
    }

    pub fn committed(&self, epoch: u64, events: &[Sender<Event>]) {
        let mut state = self.0.lock().unwrap();
        assert_eq!(state.next, epoch);
        let last = state.is_over(epoch);
        for events in &events[1..] {
            let _ = events.send(Event::Committed { epoch, last });
        }
        (state.next, state.is_asked) = (epoch + 1, false);
        state.ask(&events[0]);
    }
}

impl State {
    /// Whether no process has parts after this epoch.
    fn is_over(&self, epoch: u64) -> bool {
        let mut lasts = self.last.iter();
        lasts.all(|last| last.is_some_and(|last| last <= epoch))
    }

    /// Asks process 0 to commit the next epoch, once all have prepared it.
    fn ask(&mut self, zero: &Sender<Event>) {
        let epoch = self.next;
        let changed = self
            .prepared
            .iter()
            .zip(&self.last)
            .map(|(prepared, last)| {
                let found = prepared.iter().find(|(of, _)| *of == epoch);
                let ended = last.is_some_and(|last| last < epoch).then_some(false);
                found.map(|(_, changed)| *changed).or(ended)
            });
        let changed: Option<Vec<bool>> = changed.collect();
        if let Some(changed) = changed.filter(|_| !self.is_asked && !self.is_over(epoch - 1)) {
            self.is_asked = true;
            let last = self.is_over(epoch);
            let _ = zero.send(Event::AllPrepared {
                epoch,
                changed,
                last,
            });
        }
    }
}

/// Whether a process that starts keeps what it has prepared. The directories must be those of one state.
pub fn keeps_prepared(offers: &[StateOffer], process: usize) -> bool {
    let zero = &offers[0];
    let offer = &offers[process];
    let member = zero.members.get(process).copied();
    let keeps = process > 0 && offer.prepared.is_some() && offer.prepared == member;
    let has = offer.committed.unwrap_or_default();
    assert!(
        keeps || process == 0 || has == member.unwrap_or_default(),
        "process {process} has {offer:?}, process 0 {zero:?}"
    );
    keeps
}
