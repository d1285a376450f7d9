//! Peers that are no processes of the run: they are refused within a time limit, and the processes do not notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_cluster::Address;
use millstream_flow::cluster::{Event, Joined};

use super::{free, join, meet_with, next, offer, secret, settings};

fn socket(address: &Address) -> TcpStream {
    let address: SocketAddr = address.to_string().parse().unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(super::PATIENCE)).unwrap();
    socket
}

/// Whether the other side closes the connection, whatever it says before.
fn is_closed(socket: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// The run goes on: an epoch is committed.
fn is_well(all: &[Joined], epoch: u64) {
    all.iter()
        .for_each(|one| one.member.prepared(epoch, false, false));
    assert!(matches!(next(&all[0]), Event::AllPrepared { .. }));
    all[0].member.committed(epoch);
    for one in &all[1..] {
        assert_eq!(next(one), Event::Committed { epoch, last: false });
    }
}

fn run() -> (Vec<Address>, Vec<Joined>) {
    let hosts = free(2);
    let all = meet_with(&hosts, &secret(), |settings| {
        settings.greeting = Duration::from_secs(3);
    });
    (hosts, all)
}

#[test]
fn garbage_and_silence_are_closed() {
    let (hosts, all) = run();
    for (number, host) in hosts.iter().enumerate() {
        let mut http = socket(host);
        http.write_all(b"GET / HTTP/1.1\r\nhost: flow\r\n\r\n")
            .unwrap();
        assert!(is_closed(&mut http));
        let mut tls = socket(host);
        tls.write_all(&[0x16; 400]).unwrap();
        assert!(is_closed(&mut tls));
        let mut huge = socket(host);
        huge.write_all(&[0xff; 4_000]).unwrap();
        assert!(is_closed(&mut huge));
        let mut silent = socket(host);
        assert!(is_closed(&mut silent));
        is_well(&all, number as u64 + 1);
    }
}

#[test]
fn a_peer_that_sends_byte_by_byte_is_closed() {
    let (hosts, all) = run();
    let mut slow = socket(&hosts[0]);
    let ended = AtomicBool::new(false);
    let mut reader = slow.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The beginning of a TLS record of 512 bytes.
            for byte in [0x16, 3, 1, 2, 0].into_iter().chain([1; 512]) {
                if ended.load(Ordering::Relaxed) || slow.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        assert!(is_closed(&mut reader));
        ended.store(true, Ordering::Relaxed);
    });
    is_well(&all, 1);
}

#[test]
fn hundreds_of_idle_connections_keep_no_process_out() {
    let hosts = free(2);
    std::thread::scope(|scope| {
        let zero = join(scope, settings(0, &hosts, &secret()), offer());
        let address: SocketAddr = hosts[0].to_string().parse().unwrap();
        let mut idle = Vec::new();
        while idle.len() < 300 {
            match TcpStream::connect(address) {
                Ok(socket) => idle.push(socket),
                // It does not listen yet.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        let one = join(scope, settings(1, &hosts, &secret()), offer());
        let all = [zero.join().unwrap().unwrap(), one.join().unwrap().unwrap()];
        is_well(&all, 1);
        drop(idle);
    });
}

#[test]
fn a_process_that_comes_into_a_run_waits_for_its_end() {
    let hosts = free(2);
    let all = meet_with(&hosts, &secret(), |_| ());
    std::thread::scope(|scope| {
        // Its predecessor lives yet, and has the address of process 1: one that only calls.
        let mut elsewhere = hosts.clone();
        elsewhere[1] = free(1).remove(0);
        let next_one = join(scope, settings(1, &elsewhere, &secret()), offer());
        is_well(&all, 1);
        let before = all[0].run;
        assert!(!next_one.is_finished());
        for one in &all {
            one.member.failed("the run is over");
        }
        drop(all);
        let zero = join(scope, settings(0, &hosts, &secret()), offer());
        let all = [
            zero.join().unwrap().unwrap(),
            next_one.join().unwrap().unwrap(),
        ];
        assert!(all[0].run == all[1].run && all[0].run != before);
        is_well(&all, 1);
    });
}
