//! Whether two processes run the same flow; if not, the first difference in words.

use millstream_flow::cluster::{Offer, OfferedSource};

use super::message::Misfit;

/// Compares what process `process` offers with what process 0 has.
pub(super) fn compare(process: usize, zero: &Offer, other: &Offer) -> Result<(), Misfit> {
    if zero.flow != other.flow {
        return Err(Misfit::from(format!(
            "process {process} runs the flow \"{}\", process 0 the flow \"{}\"",
            other.flow, zero.flow
        )));
    }
    if let Some(text) = other_version(process, zero, other) {
        return Err(Misfit {
            again: true,
            ..Misfit::from(text)
        });
    }
    Ok(compare_runs(process, zero, other)?)
}

/// What differs in the versions of the program, with the remedy. During an upgrade of one machine after the other that
/// is no mistake.
fn other_version(process: usize, zero: &Offer, other: &Offer) -> Option<String> {
    let version = |offer: &Offer, part: &str| {
        let found = offer.version.iter().find(|(name, _)| name == part);
        found.map_or_else(|| "missing".to_owned(), |(_, version)| version.clone())
    };
    let mut parts = zero.version.iter().chain(&other.version);
    let (part, _) = parts.find(|(part, _)| version(zero, part) != version(other, part))?;
    Some(format!(
        "process {process} runs another version of the flow \"{}\" than process 0: {part} is {} there, and {} in process 0; install one \
         version everywhere, and start all processes with it (versions that may run together have one name, the version of the Flow)",
        zero.flow,
        version(other, part),
        version(zero, part)
    ))
}

/// Compares what the two were started with.
fn compare_runs(process: usize, zero: &Offer, other: &Offer) -> Result<(), String> {
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
        let sources = offer.sources.iter();
        sources.map(|source| source.name.clone()).collect()
    };
    if let Some((_, theirs, ours)) = first_difference(&names(other), &names(zero)) {
        return Err(format!(
            "process {process} has the source {theirs} where process 0 has {ours}"
        ));
    }
    for (theirs, ours) in other.sources.iter().zip(&zero.sources) {
        compare_sources(process, theirs, ours)?;
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

/// Compares a source of process `process` with that of process 0. A source that each machine has for itself has nothing
/// in common.
fn compare_sources(
    process: usize,
    theirs: &OfferedSource,
    ours: &OfferedSource,
) -> Result<(), String> {
    let name = &ours.name;
    if theirs.local != ours.local {
        let whose = |source: &OfferedSource| {
            if source.local {
                "what its machine has"
            } else {
                "what all processes have"
            }
        };
        return Err(format!(
            "the source \"{name}\" reads {} in process {process}, and {} in process 0",
            whose(theirs),
            whose(ours)
        ));
    }
    if ours.local {
        return Ok(());
    }
    if let Some((_, theirs, ours)) = first_difference(&theirs.partitions, &ours.partitions) {
        return Err(format!(
            "the source \"{name}\" has the partition {theirs} in process {process} where it has {ours} in process 0: all processes \
             must see the same partitions; where each machine has files of its own, read them with local=True (in Rust: local(true))"
        ));
    }
    for ((path, theirs), (_, ours)) in theirs.inputs.iter().zip(&ours.inputs) {
        let both = theirs.as_ref().zip(ours.as_ref());
        if let Some(difference) = both.and_then(|(theirs, ours)| theirs.difference(ours)) {
            return Err(format!(
                "the source \"{name}\" finds something else under the name {path} in process {process} than in process 0: {difference}; \
                 each of them reads a part, so put the same on all machines, or, where each machine has files of its own, read them with \
                 local=True (in Rust: local(true))"
            ));
        }
    }
    Ok(())
}

/// Checks that two processes do not read one thing where each reads what its own machine has.
pub(super) fn check_apart(
    (process, offer): (usize, &Offer),
    (known, other): (usize, &Offer),
) -> Result<(), Misfit> {
    let sources = offer.sources.iter().zip(&other.sources);
    for (theirs, ours) in sources.filter(|(source, _)| source.local) {
        let both = theirs.inputs.iter().zip(&ours.inputs);
        let mut ids = both
            .filter_map(|((path, one), (_, other))| Some((path, one.as_ref()?, other.as_ref()?)));
        if let Some((path, ..)) = ids.find(|(_, one, other)| one.is_one(other)) {
            return Err(Misfit::from(format!(
                "the source \"{}\" would read {path} twice, in process {known} and in process {process}: with local=True each process reads \
                 what its own machine has, and these two have one; leave local=True out",
                ours.name
            )));
        }
    }
    Ok(())
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
    use millstream_flow::input::InputId;

    use super::*;

    fn offer() -> Offer {
        Offer {
            flow: "orders".to_owned(),
            version: [("main file", "a1"), ("module \"prices\"", "b1")]
                .map(|(part, version)| (part.to_owned(), version.to_owned()))
                .to_vec(),
            graph: vec!["read".to_owned(), "count".to_owned()],
            workers: 2,
            sources: vec![OfferedSource {
                name: "read".to_owned(),
                local: false,
                partitions: vec!["0".to_owned(), "1".to_owned()],
                inputs: vec![(
                    "Cargo.toml".to_owned(),
                    InputId::of_file("Cargo.toml".as_ref()),
                )],
            }],
            state: None,
        }
    }

    #[test]
    fn what_each_machine_has_for_itself_may_differ() {
        let mut zero = offer();
        let mut other = offer();
        for offer in [&mut zero, &mut other] {
            offer.sources[0].local = true;
        }
        // The same file here: it would be read twice.
        let both = ((3, &other), (0, &zero));
        let Misfit { again, text, .. } = check_apart(both.0, both.1).unwrap_err();
        assert!(
            !again && text.contains("would read Cargo.toml twice"),
            "{text}"
        );
        other.sources[0].partitions.clear();
        other.sources[0].inputs[0].1 = InputId::of_file("src/lib.rs".as_ref());
        assert_eq!(compare(3, &zero, &other), Ok(()));
        assert_eq!(check_apart((3, &other), (0, &zero)), Ok(()));
        // What cannot be read here is reported by the process that reads it.
        let mut unread = offer();
        unread.sources[0].inputs[0].1 = None;
        assert_eq!(compare(3, &offer(), &unread), Ok(()));
    }

    #[test]
    fn a_refusal_names_the_first_difference_on_both_sides() {
        let check = |change: &dyn Fn(&mut Offer), words: &[&str]| {
            let mut other = offer();
            change(&mut other);
            let Misfit { again, text, .. } = compare(3, &offer(), &other).unwrap_err();
            for word in words.iter().chain(&["process 3", "process 0"]) {
                assert!(text.contains(word), "{text}: {word}");
            }
            assert_eq!(again, other.version != offer().version, "{text}");
        };
        assert_eq!(compare(3, &offer(), &offer()), Ok(()));
        check(
            &|other| other.flow = "stock".to_owned(),
            &["\"stock\"", "\"orders\""],
        );
        check(
            &|other| {
                // What the new version has changed in the graph is not the first difference.
                other.graph[1] = "sum".to_owned();
                other.version[1].1 = "b2".to_owned();
            },
            &[
                "module \"prices\" is b2 there, and b1 in process 0",
                "\"orders\"",
            ],
        );
        check(
            &|other| other.version.truncate(1),
            &["module \"prices\" is missing there, and b1 in process 0"],
        );
        check(
            &|other| {
                other
                    .version
                    .push(("module \"more\"".to_owned(), "c1".to_owned()));
            },
            &["module \"more\" is c1 there, and missing in process 0"],
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
            &|other| other.sources[0].partitions.push("2".to_owned()),
            &["\"read\"", "\"2\"", "missing", "local=True"],
        );
        check(&|other| other.sources.clear(), &["missing", "\"read\""]);
        check(
            &|other| other.sources[0].local = true,
            &["\"read\"", "what its machine has"],
        );
        check(
            &|other| other.sources[0].inputs[0].1 = InputId::of_file("src/lib.rs".as_ref()),
            &["\"read\"", "Cargo.toml", "bytes differ", "local=True"],
        );
        check(
            &|other| other.state = Some(Default::default()),
            &["has a state directory"],
        );
    }
}
