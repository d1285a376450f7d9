//! The metrics of services.

use super::metric::{Kind, Metric, Put, metric};
use crate::sections::service_figures::ServiceSnapshot;
use crate::snapshot::Snapshot;

const SERVICE: &[&str] = &["service"];
const INPUT: &[&str] = &["service", "input"];
const METHOD: &[&str] = &["service", "method"];
const PROCESS: &[&str] = &["process"];
const HOP: &[&str] = &["service", "from", "to", "part"];

fn services(snapshot: &Snapshot) -> impl Iterator<Item = &ServiceSnapshot> {
    snapshot.services.iter().flat_map(|all| &all.services)
}

fn each(snapshot: &Snapshot, put: Put<'_>, of: fn(&ServiceSnapshot) -> f64) {
    for service in services(snapshot) {
        put(&[&service.name], of(service));
    }
}

/// The metrics of services, in the order of the guide.
pub static SERVICES: &[Metric] = &[
    metric(
        "millstream_service_calls_total",
        Kind::Counter,
        SERVICE,
        "Calls of a service by records, the rebuilding of its state included",
        |all, put| {
            each(all, put, |service| service.calls as f64);
        },
    ),
    metric(
        "millstream_service_ticks_total",
        Kind::Counter,
        SERVICE,
        "Calls of a service by timers",
        |all, put| {
            each(all, put, |service| service.ticks as f64);
        },
    ),
    metric(
        "millstream_service_skipped_records_total",
        Kind::Counter,
        SERVICE,
        "Records that a service has skipped",
        |all, put| {
            each(all, put, |service| service.skipped as f64);
        },
    ),
    metric(
        "millstream_service_dead_letters_total",
        Kind::Counter,
        SERVICE,
        "Records that a service has set aside as dead letters",
        |all, put| {
            each(all, put, |service| service.dead_letters as f64);
        },
    ),
    metric(
        "millstream_service_method_calls_total",
        Kind::Counter,
        METHOD,
        "Calls by method since the page is served; at most 2,000 records of an input count in a second",
        |all, put| {
            for service in services(all) {
                for method in &service.methods {
                    put(&[&service.name, &method.name], method.calls as f64);
                }
            }
        },
    ),
    metric(
        "millstream_service_input_lag_records",
        Kind::Gauge,
        INPUT,
        "Records of an input that a service has not taken",
        |all, put| {
            for service in services(all) {
                for input in &service.inputs {
                    put(&[&service.name, &input.name], input.lag_records as f64);
                }
            }
        },
    ),
    metric(
        "millstream_service_input_lag_seconds",
        Kind::Gauge,
        INPUT,
        "Age of the first record of an input that a service has not taken",
        |all, put| {
            for service in services(all) {
                for input in &service.inputs {
                    put(&[&service.name, &input.name], input.lag_seconds);
                }
            }
        },
    ),
    metric(
        "millstream_service_busy_ratio",
        Kind::Gauge,
        SERVICE,
        "Share of the last three seconds in which a service did not wait for an input",
        |all, put| {
            for service in services(all) {
                if let Some(busy) = service.busy {
                    put(&[&service.name], busy);
                }
            }
        },
    ),
    metric(
        "millstream_service_call_seconds",
        Kind::Gauge,
        SERVICE,
        "Seconds for which a service has been inside one call; 0 before two seconds",
        |all, put| {
            each(all, put, |service| {
                service
                    .call
                    .as_ref()
                    .map_or(0.0, |call| call.seconds as f64)
            });
        },
    ),
    metric(
        "millstream_service_hop_p99_seconds",
        Kind::Gauge,
        HOP,
        "Latency of a hop to the output of a service, of the newest 500 records: one call in 100 takes longer",
        |all, put| {
            for service in services(all) {
                for hop in &service.hops {
                    put(
                        &[&service.name, &hop.from, &hop.to, &hop.part],
                        hop.p99_seconds,
                    );
                }
            }
        },
    ),
    metric(
        "millstream_service_process_running",
        Kind::Gauge,
        PROCESS,
        "1 while a process of a system of services runs, otherwise 0",
        |all, put| {
            for process in all.services.iter().flat_map(|all| &all.processes) {
                put(&[&process.name], f64::from(process.is_running()));
            }
        },
    ),
    metric(
        "millstream_service_process_restarts_total",
        Kind::Counter,
        PROCESS,
        "Restarts of a process of a system of services by its supervisor",
        |all, put| {
            for process in all.services.iter().flat_map(|all| &all.processes) {
                put(&[&process.name], process.restarts as f64);
            }
        },
    ),
];
