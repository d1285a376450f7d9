//! Whether the process that had a writer's slot is gone, although a child that it forked still holds the lock of the
//! slot.
//!
//! A number alone does not say. A killed process keeps its number until its parent has waited for it, and afterwards
//! another process may get it. So a slot also holds the start time of its process. A value that cannot be read proves
//! nothing: where `/proc` is missing, hides other users' processes or shows those of another namespace, a process is
//! gone only when its number is free.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// When a process started, in one word: clock ticks since the machine started, and in the upper bits where these mean
/// the same. 0 is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartTime(pub u64);

const TICKS_BITS: u32 = 48;

impl StartTime {
    pub const UNKNOWN: StartTime = StartTime(0);

    fn new(clock: u64, ticks: u64) -> Self {
        StartTime(clock << TICKS_BITS | ticks & ((1 << TICKS_BITS) - 1))
    }

    /// Of this process.
    pub fn own() -> Self {
        lookup(std::process::id()).map_or(Self::UNKNOWN, |found| found.started)
    }

    /// Whether the two are known, by the same clock, and differ.
    fn is_another(self, other: StartTime) -> bool {
        let comparable = self != Self::UNKNOWN
            && other != Self::UNKNOWN
            && self.0 >> TICKS_BITS == other.0 >> TICKS_BITS;
        comparable && self != other
    }
}

/// Whether the process with this number in this namespace, which started then, is gone.
pub(crate) fn is_gone(number: u32, started: StartTime) -> bool {
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
        return false;
    };
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return true;
    }
    lookup(number).is_some_and(|found| found.is_dead || found.started.is_another(started))
}

/// A process as `/proc` shows it.
#[derive(Debug, PartialEq, Eq)]
struct ProcessState {
    /// It has ended, and its parent has not waited for it yet.
    is_dead: bool,
    started: StartTime,
}

/// The process of that number, where `/proc` shows this namespace and this process may look.
fn lookup(number: u32) -> Option<ProcessState> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    if !is_of_this_namespace(&status) {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    parse(&stat, clock())
}

/// A process that `/proc` shows with one number has none in an inner namespace: the numbers of `/proc` are those that
/// it uses itself.
fn is_of_this_namespace(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

/// Which clock the ticks are of: a namespace may count from another moment.
fn clock() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let link = link.to_string_lossy();
    let digits: String = link.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// Reads a line of `/proc/PID/stat`. The name of the program, in parentheses, may hold anything.
fn parse(stat: &str, clock: u64) -> Option<ProcessState> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let state = *fields.first()?;
    // The first thread of a process can end before the others: then the threads are counted.
    let threads: u64 = fields.get(17)?.parse().ok()?;
    let ticks = fields.get(19)?.parse().ok()?;
    Some(ProcessState {
        is_dead: matches!(state, "Z" | "X" | "x") && threads <= 1,
        started: StartTime::new(clock, ticks),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: &str, threads: u64, ticks: u64) -> String {
        format!(
            "42 (a) Z (b) {state} 1 42 42 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 {threads} 0 {ticks} 9 9\n"
        )
    }

    #[test]
    fn a_process_is_identified_by_its_state_and_its_start() {
        let found = |state, threads| parse(&stat(state, threads, 777), 5).expect("it is a line");
        assert!(!found("S", 1).is_dead && !found("R", 3).is_dead);
        assert!(found("Z", 1).is_dead && !found("Z", 2).is_dead);
        let started = found("S", 1).started;
        assert_eq!(started, StartTime::new(5, 777));
        assert!(started.is_another(StartTime::new(5, 778)));
        assert!(!started.is_another(started));
        assert!(!started.is_another(StartTime::new(6, 778)), "another clock");
        assert!(!started.is_another(StartTime::UNKNOWN));
        for wrong in ["", "42 (x", "42 (x) S 1 2"] {
            assert_eq!(parse(wrong, 5), None);
        }
    }

    #[test]
    fn the_numbers_of_another_namespace_are_not_believed() {
        assert!(is_of_this_namespace("Name:\tx\nNSpid:\t7\nNSpgid:\t7\n"));
        assert!(!is_of_this_namespace("Name:\tx\nNSpid:\t7\t1\n"));
        assert!(!is_of_this_namespace("Name:\tx\n"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_alive_and_one_with_another_start_is_not() {
        let own = StartTime::own();
        assert_ne!(own, StartTime::UNKNOWN);
        assert!(!is_gone(std::process::id(), own));
        assert!(!is_gone(std::process::id(), StartTime::UNKNOWN));
        assert!(is_gone(std::process::id(), StartTime(own.0 + 1)));
        assert!(!is_gone(0, own), "no number at all");
    }
}
