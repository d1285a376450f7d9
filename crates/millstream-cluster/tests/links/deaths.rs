//! Processes that fail, vanish and fall silent: all others learn the first cause.

use std::time::Duration;

use millstream_cluster::{Address, Auth};
use millstream_flow::cluster::{Event, Joined};

use super::proxy::Proxy;
use super::{death, free, join, meet, meet_with, next, offer, secret, settings};

#[test]
fn the_cause_of_a_failure_reaches_all() {
    for failing in 0..3 {
        let mut all = meet(&free(3), &secret());
        all[failing]
            .member
            .failed("step \"count\": division by zero");
        // The process exits at once: its connections end after its last words.
        let failed = all.remove(failing);
        let events = failed.events;
        drop((failed.member, failed.links));
        for one in &all {
            let (process, cause) = death(one);
            assert_eq!(process, failing);
            assert_eq!(cause, "step \"count\": division by zero");
        }
        assert!(
            events
                .try_iter()
                .all(|event| matches!(event, Event::Died { .. }))
        );
    }
}

#[test]
fn a_process_that_vanishes_is_named_by_all() {
    for killed in 0..3 {
        let mut all = meet(&free(3), &Auth::None);
        let gone = all.remove(killed);
        drop((gone.member, gone.links));
        for one in &all {
            let (process, cause) = death(one);
            assert_eq!(process, killed, "{cause}");
            assert!(cause.contains("without an end of the run"), "{cause}");
        }
    }
}

#[test]
fn nothing_is_reported_after_a_death() {
    let all = meet(&free(2), &Auth::None);
    all[0].member.failed("it is over");
    death(&all[1]);
    all[1].member.prepared(1, true, false);
    all[1].member.failed("another cause");
    all[0].member.prepared(1, true, false);
    assert_eq!(death(&all[0]).1, "it is over");
    assert!(all[0].events.try_iter().next().is_none());
}

/// Two processes whose control link goes through a proxy.
fn through_proxy(dead_after: Duration) -> (Proxy, Joined, Joined) {
    let hosts = free(2);
    let proxy = Proxy::to(&hosts[0]);
    let seen_by_one: Vec<Address> = vec![proxy.address.clone(), hosts[1].clone()];
    let (zero, one) = std::thread::scope(|scope| {
        let one = |process, hosts: &[Address]| {
            let mut settings = settings(process, hosts, &secret());
            settings.dead_after = dead_after;
            join(scope, settings, offer())
        };
        let zero = one(0, &hosts);
        let one = one(1, &seen_by_one);
        (zero.join().unwrap().unwrap(), one.join().unwrap().unwrap())
    });
    (proxy, zero, one)
}

#[test]
fn silence_in_either_direction_ends_the_run_on_both_sides() {
    let stalls: [fn(&Proxy); 2] = [Proxy::stall_up, Proxy::stall_down];
    for stall in stalls {
        let (proxy, zero, one) = through_proxy(Duration::from_secs(2));
        stall(&proxy);
        let causes = [death(&zero), death(&one)];
        for (process, cause) in causes {
            let words = ["received nothing", "without an end of the run", "lost"];
            assert!(
                words.iter().any(|words| cause.contains(words)),
                "{process}: {cause}"
            );
        }
    }
}

#[test]
fn connections_that_are_cut_end_the_run() {
    let (proxy, zero, one) = through_proxy(Duration::from_secs(10));
    zero.member.built();
    one.member.built();
    assert_eq!(next(&one), Event::Go);
    proxy.cut();
    assert_eq!(death(&zero).0, 1);
    assert_eq!(death(&one).0, 0);
}

#[test]
fn a_quiet_run_is_not_taken_for_a_dead_one() {
    let all = meet_with(&free(3), &secret(), |settings| {
        settings.dead_after = Duration::from_secs(5);
    });
    let quiet = all[1].events.recv_timeout(Duration::from_secs(7));
    assert!(quiet.is_err(), "{quiet:?}");
    all[2].member.stop();
    for one in &all {
        assert_eq!(next(one), Event::Stop);
    }
}

#[test]
fn a_process_that_is_lost_before_the_run_is_waited_for() {
    let hosts = free(3);
    std::thread::scope(|scope| {
        let zero = join(scope, settings(0, &hosts, &secret()), offer());
        // It comes, waits for the third, and is stopped.
        let early = millstream_cluster::Processes::new(settings(1, &hosts, &secret())).unwrap();
        let looked = std::cell::Cell::new(0);
        let stopping = || {
            looked.set(looked.get() + 1);
            looked.get() > 10
        };
        let stopped = millstream_flow::cluster::Cluster::join(&early, offer(), &stopping);
        assert!(stopped.is_err());
        let others: Vec<_> = (1..3)
            .map(|process| join(scope, settings(process, &hosts, &secret()), offer()))
            .collect();
        // It stays until the others have met, too.
        let zero = zero.join().unwrap().unwrap();
        for other in others {
            assert_eq!(other.join().unwrap().unwrap().run, zero.run);
        }
    });
}
