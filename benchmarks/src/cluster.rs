//! Flows on two processes beside the same flows on one, and beside `timely` and a socket alone.
//!
//! Each process is one of this program, with the role that the command line names; they meet over Unix sockets in a
//! directory. What is compared takes turns, so that slow phases of the machine meet both. Each run compares the items
//! sent with the items handled.

mod floor;
mod flows;
mod report;
mod role;

use std::path::PathBuf;
use std::process::{Child, Stdio};

use clap::ValueEnum;

use self::report::Rate;
pub use self::report::{Commits, Figures, Hop};
use self::role::Fault;
pub use self::role::{Case, Outcome, Role};
use crate::figures::{Latency, median_index};
use crate::programs;
use crate::scratch::Scratch;

/// A part of `millstream-bench cluster`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// A keyed step that costs CPU, on two processes and on one.
    Step,
    /// Small items from each process to both.
    Exchange,
    /// An item from a process that sleeps to another that sleeps.
    Hop,
    /// What commits cost, on two processes and on one.
    Commit,
    /// The CPU of processes without input.
    Idle,
    /// From the death of a process to the first new output; only with --python.
    Kill,
    /// From the stop of two processes to the first output of three; only with --python.
    Rescale,
    /// What a process, a link, a key and an epoch cost; only with --python.
    Costs,
}

impl Part {
    /// Whether only Python measures it.
    pub fn is_of_python(self) -> bool {
        matches!(self, Part::Kill | Part::Rescale | Part::Costs)
    }
}

/// A measurement.
pub struct Plan {
    /// How many runs; every figure is their median.
    pub runs: u32,
    /// How long a run takes, about.
    pub seconds: f64,
    /// These parts only, or all.
    pub parts: Vec<Part>,
    /// Where state and sockets are kept meanwhile.
    pub folder: PathBuf,
}

impl Plan {
    fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }

    /// Runs a case on so many processes, and compares their counts.
    fn play(&self, case: Case, processes: usize, items: u64, saves: bool) -> Result<Played, Fault> {
        let scratch = Scratch::new(&self.folder)?;
        let role = |process| Role {
            case,
            process,
            processes,
            folder: scratch.path().to_owned(),
            items,
            saves,
        };
        Played::of((0..processes).map(role), items)
    }

    /// Runs a case twice at once, each with half of the items: what two processes can do here that need not meet.
    fn play_apart(&self, case: Case, items: u64) -> Result<Played, Fault> {
        let scratch = Scratch::new(&self.folder)?;
        let role = |_| Role {
            case,
            process: 0,
            processes: 1,
            folder: scratch.path().to_owned(),
            items: items / 2,
            saves: false,
        };
        Played::of((0..2).map(role), items / 2 * 2)
    }

    /// The items of a case that take the time of a run.
    fn items(&self, case: Case, processes: usize, trial: u64) -> Result<u64, Fault> {
        let played = self.play(case, processes, trial, false)?;
        // A number that four partitions can share.
        let items = trial as f64 / played.seconds * self.seconds;
        Ok((items as u64).max(4) / 4 * 4)
    }
}

/// Runs one process of a measurement.
pub fn play(role: &Role) -> Result<Outcome, Fault> {
    match role.case {
        Case::Timely => floor::exchange(role),
        Case::TimelyHop => floor::hop(role),
        Case::SocketHop => floor::socket_hop(role),
        _ => flows::run(role),
    }
}

fn start(role: &Role) -> Result<Child, Fault> {
    let mut command = programs::this()?.command(&role.words());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(command.stderr(Stdio::piped()).spawn()?)
}

/// What the processes of one run have measured.
struct Played {
    outcomes: Vec<Outcome>,
    /// From the first item to the end of the last process.
    seconds: f64,
}

impl Played {
    /// Runs all roles at once.
    fn of(roles: impl Iterator<Item = Role>, items: u64) -> Result<Self, Fault> {
        let started = roles.map(|role| start(&role));
        let children: Vec<Child> = started.collect::<Result<_, Fault>>()?;
        // All are awaited, also after one has failed: none outlives the measurement.
        let ended: Vec<_> = children
            .into_iter()
            .map(Child::wait_with_output)
            .collect::<Result<_, _>>()?;
        let mut outcomes = Vec::new();
        for output in ended {
            if !output.status.success() {
                let text = String::from_utf8_lossy(&output.stderr);
                return Err(text.trim().to_owned().into());
            }
            outcomes.push(serde_json::from_slice(&output.stdout)?);
        }
        Played::new(outcomes, items)
    }

    fn new(outcomes: Vec<Outcome>, items: u64) -> Result<Self, Fault> {
        let sum = |count: fn(&Outcome) -> u64| outcomes.iter().map(count).sum::<u64>();
        let sent = sum(|each| each.sent);
        let handled = sum(|each| each.handled);
        if (sent, handled) != (items, items) {
            return Err(format!(
                "the counts disagree: {items} ordered, {sent} sent, {handled} handled"
            )
            .into());
        }
        let began = outcomes.iter().map(|each| each.began_ns).min().unwrap_or(0);
        let ended = outcomes.iter().map(|each| each.ended_ns).max().unwrap_or(0);
        Ok(Played {
            seconds: ended.saturating_sub(began) as f64 / 1e9,
            outcomes,
        })
    }

    fn latency(self) -> Result<Latency, Fault> {
        let mut latencies = self.outcomes.into_iter().filter_map(|each| each.latency);
        latencies.next().ok_or_else(|| "no latencies".into())
    }
}

fn median(values: &[f64]) -> f64 {
    values[median_index(values)]
}

/// Measures the parts of the plan.
pub fn run(plan: &Plan) -> Result<Figures, Fault> {
    let mut figures = Figures::default();
    if plan.has(Part::Step) {
        let items = plan.items(Case::Step, 1, 200_000)?;
        let on = |processes| move || plan.play(Case::Step, processes, items, false);
        let two = ("keyed step of 1 us, two processes", &on(2) as _);
        figures
            .rates
            .push(beside(plan, two, ("one process", &on(1)), items)?);
        let apart = || plan.play_apart(Case::Step, items);
        let apart = ("the same, two flows that do not meet", &apart as _);
        figures
            .rates
            .push(beside(plan, apart, ("one process", &on(1)), items)?);
    }
    if plan.has(Part::Exchange) {
        let items = plan.items(Case::Exchange, 2, 2_000_000)?;
        let of = |case| move || plan.play(case, 2, items, false);
        let own = (
            "exchange in batches of 1,000, two processes",
            &of(Case::Exchange) as _,
        );
        figures.rates.push(beside(
            plan,
            own,
            ("timely alone", &of(Case::Timely)),
            items,
        )?);
    }
    if plan.has(Part::Hop) {
        figures.hop = Some(hop(plan)?);
    }
    if plan.has(Part::Commit) {
        for (case, keys) in [(Case::Keys1000, 1_000), (Case::Keys1000000, 1_000_000)] {
            figures.commits.push(commits(plan, case, keys)?);
        }
    }
    if plan.has(Part::Idle) {
        figures.idle_percent = Some(idle(plan)?);
    }
    Ok(figures)
}

/// Measures what `which(2)` names beside what `which(1)` names.
/// The rate of `own` beside that of `other`, in turns.
fn beside(
    plan: &Plan,
    (name, own): (&str, &dyn Fn() -> Result<Played, Fault>),
    (beside, other): (&str, &dyn Fn() -> Result<Played, Fault>),
    items: u64,
) -> Result<Rate, Fault> {
    let mut rates = Vec::new();
    let mut floors = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..plan.runs {
        let floor = items as f64 / other()?.seconds;
        let rate = items as f64 / own()?.seconds;
        floors.push(floor);
        rates.push(rate);
        ratios.push(rate / floor);
    }
    Ok(Rate {
        name: name.to_owned(),
        beside: beside.to_owned(),
        items_per_second: median(&rates),
        items_per_second_beside: median(&floors),
        ratio: median(&ratios),
    })
}

fn hop(plan: &Plan) -> Result<Hop, Fault> {
    let items = (plan.seconds * role::HOPS_PER_SECOND) as u64;
    let mut flows = Vec::new();
    let mut timelies = Vec::new();
    let mut sockets = Vec::new();
    for _ in 0..plan.runs {
        flows.push(plan.play(Case::Hop, 2, items, false)?.latency()?);
        timelies.push(plan.play(Case::TimelyHop, 2, items, false)?.latency()?);
        sockets.push(plan.play(Case::SocketHop, 2, items, false)?.latency()?);
    }
    let median = |runs: &[Latency]| Latency::median_of(&runs.iter().collect::<Vec<_>>());
    Ok(Hop {
        flow: median(&flows),
        timely: median(&timelies),
        socket: median(&sockets),
    })
}

/// How much slower a run is that commits each second, in percent.
fn commits(plan: &Plan, case: Case, keys: u64) -> Result<Commits, Fault> {
    let of_one = plan.items(case, 1, 2_000_000)?;
    let of_two = plan.items(case, 2, 2_000_000)?;
    let mut one = Vec::new();
    let mut two = Vec::new();
    for _ in 0..plan.runs {
        for (processes, items, costs) in [(1, of_one, &mut one), (2, of_two, &mut two)] {
            let off = plan.play(case, processes, items, false)?.seconds;
            let on = plan.play(case, processes, items, true)?.seconds;
            costs.push(100.0 * (1.0 - off / on));
        }
    }
    let more: Vec<f64> = one.iter().zip(&two).map(|(one, two)| two - one).collect();
    Ok(Commits {
        keys,
        one_process_percent: median(&one),
        two_processes_percent: median(&two),
        points_more: median(&more),
    })
}

/// Percent of a core that the process uses which uses most.
fn idle(plan: &Plan) -> Result<f64, Fault> {
    let mut percents = Vec::new();
    for _ in 0..plan.runs {
        let played = plan.play(Case::Idle, 2, 2, true)?;
        let each = played.outcomes.iter().map(|each| each.cpu_percent);
        percents.push(each.fold(0.0, f64::max));
    }
    Ok(median(&percents))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(sent: u64, handled: u64) -> Outcome {
        Outcome {
            began_ns: 1_000_000_000 * sent,
            ended_ns: 3_000_000_000,
            sent,
            handled,
            ..Outcome::default()
        }
    }

    #[test]
    fn counts_that_disagree_are_an_error() {
        let played = Played::new(vec![outcome(1, 3), outcome(2, 0)], 3).expect("equal counts");
        assert!((played.seconds - 2.0).abs() < 1e-9);
        for wrong in [outcome(2, 1), outcome(1, 2)] {
            let error = Played::new(vec![outcome(1, 1), wrong], 2)
                .err()
                .map(|error| error.to_string());
            assert!(error.is_some_and(|text| text.starts_with("the counts disagree: 2 ordered")));
        }
    }
}
