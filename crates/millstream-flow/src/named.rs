//! The options of a run in messages, each with its names in Rust, in Python, and on the command line.
//!
//! ```
//! assert_eq!(millstream_flow::named::drop_state("orders"), "Recovery::drop_state(\"orders\")");
//! ```

pub use millstream_journal::named::Named;

/// Commits wait for a follower.
pub(crate) const COMMIT_ON_REPLICA: Named = Named([
    "Recovery::commit_on_replica",
    "commit_on_replica=True",
    "--commit-on-replica",
]);
/// Removes the state of a step, source or sink.
pub const DROP_STATE: Named = Named(["Recovery::drop_state", "drop_state=", "--drop-state"]);
/// Removes all state.
pub(crate) const FRESH: Named = Named(["Recovery::fresh", "fresh=True", "--fresh"]);
/// The state is followed by other machines.
pub(crate) const REPLICA: Named = Named(["Recovery::replica", "replica=", "--replica"]);
/// Sets saved times back to the clock.
pub(crate) const RESET_CLOCK: Named =
    Named(["Recovery::reset_clock", "reset_clock=True", "--reset-clock"]);
/// Into how many parts keys are divided; a number follows.
const SHARDS: Named = Named(["Options::shards = ", "shards=", "--shards "]);
/// The directory of the state.
pub(crate) const STATE: Named = Named(["Options::recovery", "state=", "--state DIR"]);

/// How the state of a step, source or sink is removed.
#[must_use]
pub fn drop_state(name: &str) -> String {
    DROP_STATE.with(name)
}

/// How so many shards are asked for.
pub(crate) fn shards(count: usize) -> String {
    format!("{SHARDS}{count}")
}

/// The end of an error about a name that is not known: the known one from which it differs in the fewest letters.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let near = known
        .map(|other| (letters_between(name, other), other))
        .min();
    match near {
        Some((letters, near)) if letters <= name.len() / 3 => format!("; did you mean \"{near}\"?"),
        _ => String::new(),
    }
}

/// The number of letters to insert, remove or replace until `one` is `other` (the distance of Levenshtein, 1965).
fn letters_between(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (place, theirs) in other.chars().enumerate() {
            let replaced = diagonal + usize::from(letter != theirs);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_like_the_nearest_one() {
        let known = ["counts", "in", "out", "per minute"].map(String::from);
        for (name, meant) in [
            ("count", Some("counts")),
            ("cuonts", Some("counts")),
            ("per minuet", Some("per minute")),
            ("sums", None),
            ("", None),
        ] {
            let expected =
                meant.map_or_else(String::new, |meant| format!("; did you mean \"{meant}\"?"));
            assert_eq!(did_you_mean(name, known.iter()), expected, "{name}");
        }
        assert_eq!(letters_between("kitten", "sitting"), 3);
    }
}
