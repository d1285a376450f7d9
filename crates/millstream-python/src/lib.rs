//! `millstream._millstream`: the native half of the Python package.
//!
//! The fluent API, with its documentation, is Python (`python/millstream`); it describes a flow with
//! the verbs of `pipe`, and the engine of `millstream-flow` runs it. One file for each Python
//! class; all handling of the interpreter lock is in `gil`, all mapping of errors in `error`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod assign;
mod batch;
mod calls;
mod cli;
mod clock;
mod cluster;
mod compression;
mod datetime;
mod debug;
mod divide;
mod error;
mod event_clock;
mod flow;
mod gather;
mod gil;
mod join;
mod join_keys;
mod journal;
#[cfg(feature = "kafka")]
mod kafka;
mod kernel_states;
mod key;
mod keyed;
mod logic;
mod logs;
mod observer;
mod outage;
mod ownership;
mod pickled;
mod pipe;
mod policy;
mod queues;
mod record;
mod rehearsal;
mod replica;
mod report;
mod route;
mod run;
mod saving;
mod service;
mod show;
mod sink;
mod source;
mod stacks;
mod step;
mod stopper;
mod time;
mod user_metrics;
mod window;

/// The extension module.
///
/// It does not need the interpreter lock, and a free-threaded interpreter leaves it off. What workers share is behind locks
/// and atomics of its own; batches, kernels and states belong to one worker at a time, which the engine passes between
/// threads.
#[pyo3::pymodule(gil_used = false)]
mod _millstream {
    #[pymodule_export]
    use crate::cli::{cli_main, name_options_of_command_line};
    #[pymodule_export]
    use crate::clock::VirtualClock;
    #[pymodule_export]
    use crate::compression::{Decompressor, compress};
    #[pymodule_export]
    use crate::flow::Flow;
    #[pymodule_export]
    use crate::gil::measure_lock_waits;
    #[pymodule_export]
    use crate::journal::{Journal, JournalCursor, JournalReader, JournalRecord};
    #[cfg(feature = "kafka")]
    #[pymodule_export]
    use crate::kafka::KafkaMessage;
    #[cfg(feature = "kafka")]
    #[pymodule_export]
    use crate::kafka::kafka_message_time;
    #[pymodule_export]
    use crate::key::key_hash;
    #[pymodule_export]
    use crate::logic::KeyContext;
    #[pymodule_export]
    use crate::logs::{log_levels, log_line, log_modules, plain_text};
    #[pymodule_export]
    use crate::observer::{Observer, write_system_status};
    #[pymodule_export]
    use crate::pipe::Pipe;
    #[pymodule_export]
    use crate::queues::{ItemOrigin, OpenItem, Queue, Queues};
    #[pymodule_export]
    use crate::record::{Field, Layout, Record};
    #[pymodule_export]
    use crate::rehearsal::{Rehearsal, saved_states, shown_state};
    #[pymodule_export]
    use crate::report::Report;
    #[pymodule_export]
    use crate::run::{Handle, run, start};
    #[pymodule_export]
    use crate::service::{
        Clock, Gateway, Interface, Meter, OneOffs, Outlet, Recorder, Reporter, Service, Trial,
        When, service_ask, service_export, service_has_input, service_history, service_latency,
        service_test, service_variants,
    };
    #[cfg(feature = "kafka")]
    #[pymodule_export]
    use crate::sink::kafka_write;
    #[pymodule_export]
    use crate::sink::{
        ByteSink, KeyedSink, file_write, file_write_by_key, http_feed, http_post, http_replies,
        http_reply, journal_append, outbox_sink, queue_write, tcp_send_to,
    };
    #[cfg(feature = "kafka")]
    #[pymodule_export]
    use crate::source::kafka_read;
    #[pymodule_export]
    use crate::source::{
        ByteSource, CsvSource, DurableSource, Script, SourceIo, csv_directory, csv_read,
        directory_read, file_read, http_listen, http_received, journal_read, queue_read,
        saved_positions, tcp_connect, tcp_listen,
    };
    #[pymodule_export]
    use crate::stopper::Stopper;
    #[pymodule_export]
    use crate::user_metrics::{Counter, Gauge, user_counter, user_gauge};

    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        name_options_of_command_line(false);
        Ok(())
    }
}
