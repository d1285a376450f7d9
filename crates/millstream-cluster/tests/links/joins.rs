//! Processes that join, and are refused.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use millstream_cluster::{Auth, Processes, Tls};
use millstream_flow::cluster::{
    Cluster, CommitId, Event, HandledLoad, JoinStopped, Joined, Raise, StateOffer,
};
use millstream_flow::error::NotMet;

use super::{
    StopAtEnd, Stopping, certificates, error_of, free, join, meet, next, offer, paths, secret,
    settings,
};

/// Each process sends a text to each other one, and reads what the others send, until the ends.
fn exchange(all: &mut [Joined]) {
    for (process, joined) in all.iter_mut().enumerate() {
        for (other, link) in joined.links.iter_mut().enumerate() {
            assert_eq!(link.is_none(), other == process);
            if let Some(link) = link {
                link.write_all(format!("{process} to {other}").as_bytes())
                    .unwrap();
                link.shutdown(Shutdown::Write).unwrap();
            }
        }
    }
    for joined in all.iter() {
        joined.member.ended();
    }
    for (process, joined) in all.iter_mut().enumerate() {
        for (other, link) in joined.links.iter_mut().enumerate() {
            if let Some(link) = link {
                let mut text = String::new();
                link.try_clone().unwrap().read_to_string(&mut text).unwrap();
                assert_eq!(text, format!("{other} to {process}"));
            }
        }
    }
}

#[test]
fn processes_meet_over_unix_sockets_loopback_secrets_and_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let path = certificates(folder.path());
    let tls = Auth::Tls(Tls {
        certificate: path("right.pem"),
        key: path("right.key"),
        authorities: path("ca-right.pem"),
        name: None,
    });
    for (hosts, auth) in [
        (paths(&folder, 3), Auth::None),
        (paths(&folder, 3), secret()),
        (free(3), Auth::None),
        (free(3), secret()),
        (free(3), tls),
        (free(1), Auth::None),
    ] {
        let mut all = meet(&hosts, &auth);
        assert!(
            all.iter()
                .all(|one| one.run == all[0].run && one.cluster == all[0].cluster)
        );
        exchange(&mut all);
    }
}

#[test]
fn an_epoch_is_raised_prepared_and_committed() {
    let all = meet(&free(3), &secret());
    all.iter().for_each(|one| one.member.built());
    for one in &all {
        assert_eq!(next(one), Event::Go);
    }
    for (process, one) in all.iter().enumerate() {
        one.member.prepared(1, process == 2, false);
    }
    assert_eq!(
        next(&all[0]),
        Event::AllPrepared {
            epoch: 1,
            changed: vec![false, false, true],
            last: false
        }
    );
    all[0].member.committed(1);
    for one in &all[1..] {
        assert_eq!(
            next(one),
            Event::Committed {
                epoch: 1,
                last: false
            }
        );
    }
    all[0].member.raise(Raise::Ending);
    for one in &all {
        assert_eq!(next(one), Event::Raise(Raise::Ending));
    }
    let load = HandledLoad {
        sender: 2,
        worker: 3,
        weight: 100,
        items: 7,
        turn_items: u64::MAX,
        in_flight_items_max: u64::MAX,
        congested: false,
        outbox_full: true,
    };
    all[1]
        .member
        .handled(&[load, HandledLoad { sender: 0, ..load }]);
    assert_eq!(next(&all[2]), Event::Handled(load));
    assert_eq!(
        next(&all[0]),
        Event::Handled(HandledLoad { sender: 0, ..load })
    );
    all[2].member.stop();
    for (process, one) in all.iter().enumerate() {
        assert_eq!(next(one), Event::Stop);
        one.member.drained(process == 1);
    }
    assert_eq!(next(&all[0]), Event::Drained { has_input: true });
    // In any order, and without a word about connections that end.
    all[1].member.ended();
    all[0].member.ended();
    all[2].member.ended();
    for one in &all {
        assert_eq!(next(one), Event::Ended);
    }
    let [zero, one, two]: [Joined; 3] = all.try_into().ok().unwrap();
    drop(one.member);
    drop(zero.member);
    for events in [&zero.events, &one.events, &two.events] {
        assert_eq!(events.try_recv().ok(), None);
    }
}

#[test]
fn another_flow_is_refused_by_name_and_the_right_one_joins() {
    let hosts = free(2);
    std::thread::scope(|scope| {
        let zero = join(scope, settings(0, &hosts, &secret()), offer());
        let mut wrong = offer();
        wrong.graph[1] = "sum".to_owned();
        let error = error_of(
            join(scope, settings(1, &hosts, &secret()), wrong)
                .join()
                .unwrap(),
        );
        assert!(error.contains("line 2 is \"sum\" there"), "{error}");
        let mut copy = offer();
        copy.state = Some(StateOffer {
            cluster: Some(3),
            processes: Some(2),
            committed: Some(CommitId { epoch: 9, run: 8 }),
            ..StateOffer::default()
        });
        let error = error_of(
            join(scope, settings(1, &hosts, &secret()), copy)
                .join()
                .unwrap(),
        );
        assert!(error.contains("another directory"), "{error}");
        let right = join(scope, settings(1, &hosts, &secret()), offer());
        let zero = zero.join().unwrap().unwrap();
        let right = right.join().unwrap().unwrap();
        assert_eq!(zero.run, right.run);
    });
}

#[test]
fn state_of_another_number_of_processes_is_refused_at_once() {
    let mut own = offer();
    own.state = Some(StateOffer {
        cluster: Some(3),
        processes: Some(4),
        committed: Some(CommitId { epoch: 9, run: 8 }),
        ..StateOffer::default()
    });
    let processes = Processes::new(settings(0, &free(2), &secret())).unwrap();
    let error = error_of(processes.join(own, &|| false));
    assert!(error.contains("millstream scale"), "{error}");
}

#[test]
fn other_secrets_certificates_and_numbers_of_processes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = certificates(folder.path());
    let tls = |certificate: &str, ca: &str| {
        Auth::Tls(Tls {
            certificate: path(&format!("{certificate}.pem")),
            key: path(&format!("{certificate}.key")),
            authorities: path(&format!("{ca}.pem")),
            name: None,
        })
    };
    let other = Auth::Secret(millstream_cluster::Secret::new(b"another secret, as long").unwrap());
    let right = || tls("right", "ca-right");
    for (zero, one, says) in [
        (secret(), other, "does not know the secret"),
        (secret(), Auth::None, "asks for a secret"),
        (Auth::None, secret(), "does not know the secret"),
        (right(), tls("right", "ca-other"), "vouches for it"),
        (right(), secret(), "TLS"),
    ] {
        let hosts = free(2);
        let stop = Stopping::new();
        let processes = Processes::new(settings(0, &hosts, &zero)).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| processes.join(offer(), &|| stop.is_raised()));
            let at_end = StopAtEnd(&stop);
            let mut short = settings(1, &hosts, &one);
            short.meet_within = Duration::from_millis(500);
            let refused = join(scope, short, offer()).join().unwrap();
            let error = refused.err().expect("it is refused");
            // It may be cured at either end.
            let not_met = error.downcast_ref::<NotMet>().expect("it has waited");
            assert!(not_met.cause.contains(says) && !not_met.alone, "{error}");
            drop(at_end);
            let stopped = waiting.join().unwrap().err().unwrap();
            assert!(stopped.is::<JoinStopped>(), "{stopped}");
        });
    }
    let hosts = free(3);
    let stop = Stopping::new();
    let processes = Processes::new(settings(0, &hosts[..2], &secret())).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| processes.join(offer(), &|| stop.is_raised()));
        let at_end = StopAtEnd(&stop);
        let error = error_of(
            join(scope, settings(1, &hosts, &secret()), offer())
                .join()
                .unwrap(),
        );
        assert!(error.contains("one of 3 processes"), "{error}");
        drop(at_end);
        waiting.join().unwrap().err().unwrap();
    });
}

#[test]
fn without_authentication_only_this_machine_is_used() {
    let error = |host: &str| {
        let hosts = vec!["127.0.0.1:7600".parse().unwrap(), host.parse().unwrap()];
        match Processes::new(settings(0, &hosts, &Auth::None)) {
            Ok(_) => panic!("it is taken"),
            Err(error) => error.to_string(),
        }
    };
    // An address for documentation, which is nowhere (RFC 5737), and a name that is none (RFC 6761).
    for host in [
        "192.0.2.1:7600",
        "[2001:db8::1]:7600",
        "flow-1.invalid:7600",
    ] {
        let error = error(host);
        assert!(
            error.contains(host) && error.contains("Auth::Secret"),
            "{error}"
        );
    }
    let error = Processes::new(settings(2, &free(2), &Auth::None))
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("process 2 has no address"),
        "{error}"
    );
}

#[test]
fn a_process_that_stops_waiting_says_so() {
    let hosts = free(2);
    for process in 0..2 {
        let processes = Processes::new(settings(process, &hosts, &secret())).unwrap();
        let error = processes.join(offer(), &|| true).err().unwrap();
        assert!(error.is::<JoinStopped>(), "{error}");
    }
}

#[test]
fn the_wait_for_others_has_a_limit() {
    for process in 0..2 {
        // Those of its own: the listener of the process before may still end.
        let hosts = free(3);
        let mut settings = settings(process, &hosts, &secret());
        settings.meet_within = Duration::from_millis(100);
        let joined = Processes::new(settings).unwrap().join(offer(), &|| false);
        let error = joined.err().expect("no other comes");
        let error = error.downcast::<NotMet>().expect("it is that").to_string();
        let missing = match process {
            0 => format!("2 of 3 processes: 1 ({}), 2 ({})", hosts[1], hosts[2]),
            _ => format!("process 0 ({}): cannot connect", hosts[0]),
        };
        assert!(
            error.contains("100ms") && error.contains(&missing),
            "{error}"
        );
    }
}
