//! What becomes of a prepared epoch, and which state directories belong together: pure functions over the last records of directories.

use millstream_flow::cluster::StateOffer;

/// Returns whether process `process` keeps its prepared epoch. It does if process 0 has committed that epoch in that run; otherwise it
/// truncates it (presumed abort).
///
/// `zero` is the offer of process 0, `other` that of the process. `processes` is the number of processes of this run.
///
/// # Errors
/// The directory belongs to another cluster or another number of processes, or misses an epoch that process 0 has committed, or has one that
/// process 0 does not know: an older copy of one of the two, or another directory. The text names both.
///
/// ```
/// use millstream_cluster::protocol::resolve;
/// use millstream_flow::cluster::StateOffer;
///
/// let zero = StateOffer {
///     cluster: Some(1), processes: Some(2), committed: Some(8), committed_run: Some(40), prepared: None, members: vec![8, 8],
/// };
/// let one = StateOffer {
///     cluster: Some(1), processes: Some(2), committed: Some(5), committed_run: Some(39), prepared: Some((8, 40)), members: Vec::new(),
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
            other.committed.unwrap_or(0)
        ));
    }
    check_processes(process, processes, other)?;
    let known = zero.members.get(process).copied().unwrap_or(0);
    let committed = other.committed.unwrap_or(0);
    if let Some((epoch, run)) = other.prepared
        && epoch == known
        && zero.committed_run == Some(run)
    {
        return Ok(true);
    }
    if committed == known {
        return Ok(false);
    }
    let theirs = match other.committed {
        Some(epoch) => format!("ends with epoch {epoch}"),
        None => "is new".to_owned(),
    };
    let which = match committed < known {
        true => format!("that of process {process} is an older copy, or another directory"),
        false => format!(
            "that of process 0 is an older copy, or that of process {process} another directory"
        ),
    };
    Err(format!(
        "the state directory of process {process} {theirs}, and process 0 has committed epoch {known} of it: {which}"
    ))
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

    fn zero() -> StateOffer {
        StateOffer {
            cluster: Some(1),
            processes: Some(3),
            committed: Some(8),
            committed_run: Some(40),
            prepared: None,
            members: vec![8, 5, 0],
        }
    }

    fn other(committed: Option<u64>, prepared: Option<(u64, u64)>) -> StateOffer {
        StateOffer {
            cluster: committed.map(|_| 1),
            processes: committed.map(|_| 3),
            committed,
            committed_run: committed.map(|_| 39),
            prepared,
            members: Vec::new(),
        }
    }

    #[test]
    fn what_process_0_has_committed_is_kept_and_all_else_is_aborted() {
        let of = |process, committed, prepared| {
            resolve(process, 3, &zero(), &other(committed, prepared))
        };
        // Up to date, without and with an epoch that was not committed.
        assert_eq!(of(1, Some(5), None), Ok(false));
        assert_eq!(of(1, Some(5), Some((9, 40))), Ok(false));
        // Committed, and not known here yet.
        assert_eq!(of(1, Some(4), Some((5, 40))), Ok(true));
        // The first epoch of all: the directory has no commit record yet.
        assert_eq!(of(1, None, Some((5, 40))), Ok(true));
        // The same epoch of a run that was aborted.
        assert!(of(1, Some(4), Some((5, 39))).is_err());
        // Older, newer.
        assert!(
            of(1, Some(4), None)
                .unwrap_err()
                .contains("ends with epoch 4")
        );
        assert!(
            of(1, Some(6), None)
                .unwrap_err()
                .contains("process 0 is an older copy")
        );
        // A process that never had changes, and one whose directory is gone.
        assert_eq!(of(2, None, None), Ok(false));
        assert_eq!(of(2, None, Some((9, 40))), Ok(false));
        assert!(of(1, None, None).unwrap_err().contains("is new"));
    }

    #[test]
    fn other_clusters_and_other_numbers_of_processes_are_refused() {
        let mut mine = other(Some(5), None);
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
