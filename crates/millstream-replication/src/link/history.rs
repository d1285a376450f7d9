//! Comparing two histories by their terms: where a copy and its leader diverge.
//!
//! Each term is stored with the first sequence number that belongs to it, and with a random number, in all copies that
//! have it. So records before the first term that only one of the two knows were written by one leader and are the same
//! in both.

use millstream_journal::Term;

use super::message::TERMS_MAX;

/// The newest terms: as many as one side sends to the other.
pub(super) fn recent(terms: Vec<Term>) -> Vec<Term> {
    let skipped = terms.len().saturating_sub(TERMS_MAX);
    terms.into_iter().skip(skipped).collect()
}

/// The number of the newest term; 0 without any.
pub(super) fn newest(terms: &[Term]) -> u64 {
    terms.last().map_or(0, |term| term.number)
}

/// Whether both were promoted to the same number independently.
pub(super) fn clash(ours: &[Term], theirs: &[Term]) -> bool {
    match (ours.last(), theirs.last()) {
        (Some(ours), Some(theirs)) => ours.number == theirs.number && ours != theirs,
        _ => false,
    }
}

/// The first sequence number at which the histories differ; `None` when they have the same terms. Both lists are
/// sorted.
pub(super) fn parting(ours: &[Term], theirs: &[Term]) -> Option<u64> {
    // A side that has sent the greatest number of terms may have left out older ones.
    let sent_from = |terms: &[Term]| match terms {
        [oldest, ..] if terms.len() >= TERMS_MAX => oldest.number,
        _ => 0,
    };
    let from = sent_from(ours).max(sent_from(theirs));
    let ours_only = ours.iter().filter(|term| !theirs.contains(term));
    let theirs_only = theirs.iter().filter(|term| !ours.contains(term));
    ours_only
        .chain(theirs_only)
        .filter(|term| term.number >= from)
        .map(|term| term.start)
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(all: &[(u64, u64, u64)]) -> Vec<Term> {
        let term = |&(number, start, id)| Term { number, start, id };
        all.iter().map(term).collect()
    }

    #[test]
    fn histories_part_at_the_first_term_that_only_one_knows() {
        let leader = terms(&[(1, 100, 7), (2, 250, 8)]);
        for (copy, at) in [
            (&[][..], Some(100)),
            (&[(1, 100, 7)], Some(250)),
            (&[(1, 100, 7), (2, 250, 8)], None),
            // Promoted on its own, at an earlier or a later record.
            (&[(1, 60, 9)], Some(60)),
            (&[(1, 160, 9)], Some(100)),
        ] {
            assert_eq!(parting(&leader, &terms(copy)), at, "{copy:?}");
            assert_eq!(parting(&terms(copy), &leader), at, "{copy:?}");
        }
        assert!(clash(&leader, &terms(&[(2, 250, 9)])));
        assert!(!clash(&leader, &leader) && !clash(&leader, &terms(&[(1, 60, 9)])));
    }

    #[test]
    fn terms_that_were_left_out_do_not_count() {
        let all: Vec<_> = (1..=TERMS_MAX as u64 + 50)
            .map(|number| (number, number * 10, number))
            .collect();
        let told = recent(terms(&all));
        assert_eq!(told.len(), TERMS_MAX);
        assert_eq!(newest(&told), TERMS_MAX as u64 + 50);
        let behind = recent(terms(&all[..all.len() - 1]));
        assert_eq!(parting(&told, &behind), Some(all[all.len() - 1].1));
        assert_eq!(parting(&told, &terms(&[])), Some(told[0].start));
    }
}
