//! Tests of the engine through its public interface: real sockets, files and threads, one module for each
//! behaviour.

#![expect(
    clippy::disallowed_methods,
    reason = "clients and receivers live on threads of their own and wait"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

mod adapters;
mod backpressure;
mod batch_sizes;
mod calls;
mod channels;
mod compressed;
mod csv_files;
mod dead_letters;
mod descriptions;
mod destination;
mod directories;
mod directories_that_change;
mod durable;
mod files;
mod files_by_key;
mod growing;
mod idle;
mod joins;
mod joins_of_many;
mod json_lines;
mod keyed;
mod last_commit;
mod lifecycle;
mod limits;
mod lookups;
mod memory;
mod metrics;
mod new_input;
mod options_of_parts;
mod outbox;
mod outbox_batches;
mod outbox_compares;
mod outbox_crashes;
mod outbox_faults;
mod outbox_kills;
mod outbox_refused;
mod packets;
mod panics;
mod policies;
mod positions;
mod recovery;
mod recovery_of_clocks;
mod recovery_of_time;
mod replaced_steps;
mod replays;
mod second_signals;
mod sequence_window;
mod slow_steps;
mod stable_keys;
mod tcp_faults;
mod tcp_framing;
mod tcp_sinks;
mod timers;
mod trials;
mod verbs;
mod watermarks;
mod window_choices;
mod windows;
