//! What becomes of a prepared epoch, and which state directories belong together: pure functions over the last records
//! of directories.

use std::cmp::Ordering;

use super::{CommitId, StateOffer};
use crate::named::{did_you_mean, drop_state};

/// Returns whether process `process` keeps its prepared epoch. It does if process 0 has committed that epoch of that
/// run; otherwise it truncates it (presumed abort). Epochs are compared with their runs everywhere: two copies of one
/// state that have each gone on have epochs of the same numbers.
///
/// `zero` is the offer of process 0, `other` that of the process. `processes` is the number of processes of this run.
///
/// # Errors
/// The directory belongs to another cluster or another number of processes, or misses an epoch that process 0 has
/// committed, or has one that process 0 does not know: an older copy of one of the two, or another directory. The text
/// names both.
///
/// ```
/// use millstream_flow::cluster::{CommitId, StateOffer, resolve};
///
/// let (before, last) = (CommitId { epoch: 5, run: 39 }, CommitId { epoch: 8, run: 40 });
/// let zero = StateOffer {
///     cluster: Some(1), processes: Some(2), committed: Some(last), members: vec![last, last], ..StateOffer::default()
/// };
/// let one = StateOffer {
///     cluster: Some(1), processes: Some(2), committed: Some(before), prepared: Some(last), ..StateOffer::default()
/// };
/// assert_eq!(resolve(1, 2, &zero, &one), Ok(true));
/// let older = StateOffer { prepared: None, ..one };
/// assert!(resolve(1, 2, &zero, &older).unwrap_err().contains("older copy"));
/// ```
pub fn resolve(
    process: usize,
    processes: usize,
    zero: &StateOffer,
    other: &StateOffer,
) -> Result<bool, String> {
    if let (Some(theirs), Some(ours)) = (other.cluster, zero.cluster)
        && theirs != ours
    {
        return Err(format!(
            "the state directory of process {process} belongs to the cluster {theirs:016x}, that of process 0 to {ours:016x}: it is \
             another directory"
        ));
    }
    if let (Some(theirs), None) = (other.cluster, zero.cluster) {
        return Err(format!(
            "the state directory of process {process} belongs to the cluster {theirs:016x} and has epoch {}, that of process 0 is new: it \
             is another directory",
            other.committed.unwrap_or_default().epoch
        ));
    }
    check_processes(process, processes, other)?;
    let known = zero.members.get(process).copied().unwrap_or_default();
    if other.prepared.is_some_and(|prepared| prepared == known) {
        return Ok(true);
    }
    let committed = other.committed.unwrap_or_default();
    if committed == known {
        return Ok(false);
    }
    let theirs = match other.committed {
        Some(CommitId { epoch, run }) => format!("ends with epoch {epoch} of run {run:016x}"),
        None => "is new".to_owned(),
    };
    let which = match committed.epoch.cmp(&known.epoch) {
        Ordering::Less => {
            format!("that of process {process} is an older copy, or another directory")
        }
        Ordering::Equal => format!(
            "the two are copies of one state that have each gone on; take both from the copy of process 0, or both from that of process \
             {process}"
        ),
        Ordering::Greater => format!(
            "that of process 0 is an older copy, or that of process {process} another directory"
        ),
    };
    Err(format!(
        "the state directory of process {process} {theirs}, and process 0 has committed epoch {} of run {:016x} of it: {which}",
        known.epoch, known.run
    ))
}

/// Checks that each name whose state is to be removed is known to a process that was asked to: each has a part of the
/// state only.
///
/// # Errors
/// A name that none of them knows; the text has the name that is most like it.
///
/// ```
/// use millstream_flow::cluster::{StateOffer, check_drops};
///
/// let offer = |drop: &str, names: &[&str]| StateOffer {
///     drops: vec![drop.to_owned()],
///     names: names.iter().map(|name| (*name).to_owned()).collect(),
///     ..StateOffer::default()
/// };
/// let all = [offer("counts", &["in"]), offer("counts", &["in", "counts"])];
/// assert_eq!(check_drops(&all), Ok(()));
/// let wrong = [offer("count", &["in"]), offer("count", &["in", "counts"])];
/// assert!(check_drops(&wrong).unwrap_err().ends_with("; did you mean \"counts\"?"));
/// ```
pub fn check_drops<'a>(
    offers: impl IntoIterator<Item = &'a StateOffer, IntoIter: Clone>,
) -> Result<(), String> {
    let offers = offers.into_iter();
    let has = |name: &String| {
        let mut asked = offers.clone().filter(|offer| offer.drops.contains(name));
        asked.any(|offer| offer.names.contains(name))
    };
    let mut drops = offers.clone().flat_map(|offer| &offer.drops);
    match drops.find(|name| !has(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "{}: no process has anything of that name{}",
            drop_state(name),
            did_you_mean(name, offers.flat_map(|offer| &offer.names))
        )),
    }
}

/// Checks that the state directory of process 0 is that of as many processes.
///
/// # Errors
/// It is of another number; the text names `millstream scale`.
pub fn check_own(processes: usize, zero: &StateOffer) -> Result<(), String> {
    check_processes(0, processes, zero)
}

fn check_processes(process: usize, processes: usize, state: &StateOffer) -> Result<(), String> {
    match state.processes {
        Some(theirs) if theirs != processes => Err(format!(
            "the state directory of process {process} is one of {theirs} processes, and {processes} were started: `millstream scale` \
             divides the state anew"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(epoch: u64, run: u64) -> CommitId {
        CommitId { epoch, run }
    }

    fn zero() -> StateOffer {
        StateOffer {
            cluster: Some(1),
            processes: Some(3),
            committed: Some(commit(8, 40)),
            members: vec![commit(8, 40), commit(5, 40), CommitId::default()],
            ..StateOffer::default()
        }
    }

    fn other(committed: Option<CommitId>, prepared: Option<CommitId>) -> StateOffer {
        StateOffer {
            cluster: committed.map(|_| 1),
            processes: committed.map(|_| 3),
            committed,
            prepared,
            ..StateOffer::default()
        }
    }

    #[test]
    fn what_process_0_has_committed_is_kept_and_all_else_is_aborted() {
        let of = |process, committed: Option<(u64, u64)>, prepared: Option<(u64, u64)>| {
            let [committed, prepared] =
                [committed, prepared].map(|id| id.map(|(epoch, run)| commit(epoch, run)));
            resolve(process, 3, &zero(), &other(committed, prepared))
        };
        // Up to date, without and with an epoch that was not committed.
        assert_eq!(of(1, Some((5, 40)), None), Ok(false));
        assert_eq!(of(1, Some((5, 40)), Some((9, 40))), Ok(false));
        // Committed, and not known here yet.
        assert_eq!(of(1, Some((4, 39)), Some((5, 40))), Ok(true));
        // The first epoch of all: the directory has no commit record yet.
        assert_eq!(of(1, None, Some((5, 40))), Ok(true));
        // The same epoch of a run that was aborted.
        assert!(of(1, Some((4, 39)), Some((5, 39))).is_err());
        // Older, newer, and of a copy that has gone on.
        let refused = [
            (Some((4, 40)), "ends with epoch 4"),
            (Some((6, 40)), "process 0 is an older copy"),
            (Some((5, 41)), "copies of one state that have each gone on"),
            (None, "is new"),
        ];
        for (committed, words) in refused {
            let text = of(1, committed, None).unwrap_err();
            assert!(text.contains(words), "{text}");
        }
        // A process that never had changes.
        assert_eq!(of(2, None, None), Ok(false));
        assert_eq!(of(2, None, Some((9, 40))), Ok(false));
    }

    #[test]
    fn other_clusters_and_other_numbers_of_processes_are_refused() {
        let mut mine = other(Some(commit(5, 40)), None);
        mine.cluster = Some(2);
        assert!(
            resolve(1, 3, &zero(), &mine)
                .unwrap_err()
                .contains("another directory")
        );
        mine.cluster = Some(1);
        let new = StateOffer::default();
        assert!(
            resolve(1, 3, &new, &mine)
                .unwrap_err()
                .contains("process 0 is new")
        );
        assert_eq!(resolve(1, 3, &new, &new), Ok(false));
        assert!(
            resolve(1, 4, &zero(), &mine)
                .unwrap_err()
                .contains("millstream scale")
        );
        assert!(
            check_own(4, &zero())
                .unwrap_err()
                .contains("one of 3 processes")
        );
        assert_eq!(check_own(3, &zero()), Ok(()));
    }
}
