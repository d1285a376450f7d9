//! Whether two processes run the same flow; if not, the first difference in words.

use millstream_flow::cluster::Offer;

/// Compares what process `process` offers with what process 0 has.
pub(super) fn compare(process: usize, zero: &Offer, other: &Offer) -> Result<(), String> {
    if zero.flow != other.flow {
        return Err(format!(
            "process {process} runs the flow \"{}\", process 0 the flow \"{}\"",
            other.flow, zero.flow
        ));
    }
    if let Some((line, theirs, ours)) = first_difference(&other.graph, &zero.graph) {
        return Err(format!(
            "process {process} has another graph of the flow than process 0: line {line} is {theirs} there, and {ours} in process 0"
        ));
    }
    if zero.workers != other.workers {
        return Err(format!(
            "process {process} has {} worker(s), process 0 {}: all processes have the same number",
            other.workers, zero.workers
        ));
    }
    let names = |offer: &Offer| -> Vec<String> {
        offer
            .partitions
            .iter()
            .map(|(source, _)| source.clone())
            .collect()
    };
    if let Some((_, theirs, ours)) = first_difference(&names(other), &names(zero)) {
        return Err(format!(
            "process {process} has the source {theirs} where process 0 has {ours}"
        ));
    }
    for ((source, theirs), (_, ours)) in other.partitions.iter().zip(&zero.partitions) {
        if let Some((_, theirs, ours)) = first_difference(theirs, ours) {
            return Err(format!(
                "the source \"{source}\" has the partition {theirs} in process {process} where it has {ours} in process 0: all processes \
                 must see the same partitions"
            ));
        }
    }
    match (&other.state, &zero.state) {
        (Some(_), None) => Err(format!(
            "process {process} has a state directory, process 0 has none: all keep state, or none does"
        )),
        (None, Some(_)) => Err(format!(
            "process {process} has no state directory, process 0 has one: all keep state, or none does"
        )),
        _ => Ok(()),
    }
}

/// The first line that differs, by its number from 1, with the text on each side.
fn first_difference(theirs: &[String], ours: &[String]) -> Option<(usize, String, String)> {
    let quoted = |lines: &[String], at: usize| match lines.get(at) {
        Some(line) => format!("\"{line}\""),
        None => "missing".to_owned(),
    };
    let at = (0..theirs.len().max(ours.len())).find(|at| theirs.get(*at) != ours.get(*at))?;
    Some((at + 1, quoted(theirs, at), quoted(ours, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer {
            flow: "orders".to_owned(),
            graph: vec!["read".to_owned(), "count".to_owned()],
            workers: 2,
            partitions: vec![("read".to_owned(), vec!["0".to_owned(), "1".to_owned()])],
            state: None,
        }
    }

    #[test]
    fn a_refusal_names_the_first_difference_on_both_sides() {
        let check = |change: &dyn Fn(&mut Offer), words: &[&str]| {
            let mut other = offer();
            change(&mut other);
            let refusal = compare(3, &offer(), &other).unwrap_err();
            for word in words.iter().chain(&["process 3", "process 0"]) {
                assert!(refusal.contains(word), "{refusal}: {word}");
            }
        };
        assert_eq!(compare(3, &offer(), &offer()), Ok(()));
        check(
            &|other| other.flow = "stock".to_owned(),
            &["\"stock\"", "\"orders\""],
        );
        check(
            &|other| other.graph[1] = "sum".to_owned(),
            &["line 2", "\"sum\"", "\"count\""],
        );
        check(
            &|other| other.graph.truncate(1),
            &["line 2", "missing", "\"count\""],
        );
        check(&|other| other.workers = 3, &["3 worker(s)", "2"]);
        check(
            &|other| other.partitions[0].1.push("2".to_owned()),
            &["\"read\"", "\"2\"", "missing"],
        );
        check(&|other| other.partitions.clear(), &["missing", "\"read\""]);
        check(
            &|other| other.state = Some(Default::default()),
            &["has a state directory"],
        );
    }
}
