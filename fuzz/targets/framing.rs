#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millstream_sim::fuzzed::framing::run(input));
