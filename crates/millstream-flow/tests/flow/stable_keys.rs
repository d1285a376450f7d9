//! A key whose hash is not stable is an error that names the step and the type, and never splits a state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_flow::key::Key;
use millstream_flow::testing::{Collected, items};
use millstream_flow::{Emit, Flow, FlowError, KeyContext, Logic, Options, Recovery};

use super::recovery::run as run_saving;
use super::support::run;

/// Makes a type of keys with a hash of its own.
macro_rules! key {
    ($name:ident, |$own:ident| $hash:expr) => {
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        struct $name(u64);
        impl Key for $name {
            fn stable_hash(&self) -> u64 {
                let $own = self.0;
                $hash
            }
            fn save(&self, out: &mut Vec<u8>) {
                self.0.save(out);
            }
            fn load(bytes: &mut &[u8]) -> Option<Self> {
                u64::load(bytes).map($name)
            }
        }
    };
}

static CALLS: AtomicU64 = AtomicU64::new(0);
static VERSION: AtomicU64 = AtomicU64::new(0);

key!(Restless, |number| number.stable_hash()
    ^ CALLS.fetch_add(1, Ordering::Relaxed));
key!(OfThread, |number| {
    let name = std::thread::current()
        .name()
        .map(str::to_owned)
        .unwrap_or_default();
    number.stable_hash() ^ name.stable_hash()
});
key!(OfVersion, |number| number.stable_hash()
    ^ VERSION.load(Ordering::Relaxed));

/// Emits nothing.
struct Nothing;
impl<K> Logic<K, u64> for Nothing {
    type Out = u64;
    fn on_item(&mut self, _: &K, _: u64, _: &mut KeyContext<'_, u64>) {}
}

/// Checks the failure of a flow by keys that `key` makes, in the step "count", with a state or with a logic.
fn check<K: Key>(key: fn(u64) -> K, workers: usize, type_name: &str) {
    for logic in [false, true] {
        let flow = Flow::new("unstable");
        let keyed = flow
            .source("in", items((0..1000u64).map(|n| n % 10)).batch_size(7))
            .key_by(move |n| key(*n));
        let counts = if logic {
            keyed.stateful_with("count", None, |_| Nothing).values()
        } else {
            keyed
                .stateful(
                    "count",
                    |_| 0u64,
                    |sum, _, _| {
                        *sum += 1;
                        [*sum]
                    },
                )
                .values()
        };
        counts.sink("out", Collected::new().sink());
        let said = format!("{:?}", run(&flow, workers).unwrap_err());
        for part in [
            "step \"count\", key ",
            "the hash of the key is not stable",
            type_name,
            "derive(millstream::Key)",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}

#[test]
fn one_that_changes_at_each_call_is_found_at_the_first_item() {
    check(Restless, 1, "Restless");
    check(Restless, 3, "Restless");
}

#[test]
fn one_that_depends_on_the_thread_is_found_on_the_worker() {
    check(OfThread, 3, "OfThread");
}

#[test]
fn one_that_depends_on_the_program_is_found_at_the_resume() {
    let state = tempfile::tempdir().expect("a directory");
    let out = Collected::new();
    let counted = || {
        let flow = Flow::new("counts");
        flow.source("in", items(0..50u64))
            .key_by(|n| OfVersion(*n))
            .count(Emit::End)
            .items()
            .sink("out", out.sink());
        let recovery = Recovery::new(state.path()).epoch(Duration::from_millis(1));
        run_saving(&flow, 2, recovery)
    };
    VERSION.store(0, Ordering::Relaxed);
    counted().expect("it runs");
    counted().expect("the hashes are the same");
    VERSION.store(0x55, Ordering::Relaxed);
    match counted() {
        Err(FlowError::UnstableKey {
            step,
            type_name,
            found,
            ..
        }) => {
            assert!(
                step.starts_with("count") && type_name.ends_with("OfVersion"),
                "{step} {type_name}"
            );
            assert!(found.starts_with("it was saved in shard "), "{found}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn stable_keys_of_all_kinds_pass() {
    let flow = Flow::new("stable");
    let out = Collected::new();
    flow.source("in", items((0..1000u64).map(|n| n % 10)))
        .key_by(|n| (n.to_string(), *n as i8, *b"ab"))
        .count(Emit::End)
        .items()
        .sink("out", out.sink());
    flow.run(Options::workers(3)).expect("it runs");
    assert_eq!(out.take().len(), 10);
}
