//! The inputs of the fuzzers, replayed: every seed, and every input that has found something.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use millstream_sim::fuzzed;

/// Feeds all seeds of a target.
fn replay(target: &str, run: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut inputs = 0;
    for seed in fs::read_dir(seeds.join(target)).unwrap() {
        let seed = seed.unwrap().path();
        let input = fs::read(&seed).unwrap();
        // A panic comes after the name of the file that repeats it.
        println!("{}", seed.display());
        run(&input);
        // A truncated input is an input, too.
        run(&input[..input.len() / 2]);
        inputs += 1;
    }
    assert!(inputs > 0, "{target} has no seeds");
}

#[test]
fn seeds_of_frames() {
    replay("frame", fuzzed::frame::run);
}

#[test]
fn seeds_of_framings() {
    replay("framing", fuzzed::framing::run);
}

#[test]
fn seeds_of_memcache() {
    replay("memcache", fuzzed::memcache::run);
}

#[test]
fn seeds_of_recoveries() {
    replay("recover", fuzzed::recover::run);
}

#[test]
fn seeds_of_wire() {
    replay("wire", fuzzed::wire::run);
}
