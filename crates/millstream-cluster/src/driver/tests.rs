//! A process of an earlier run that calls a process of this one.

use std::sync::Arc;
use std::sync::mpsc::channel;

use millstream_flow::cluster::{Cluster, Offer};
use millstream_link::{Address, Secret};

use super::call::Purpose;
use super::handshake::CallError;
use super::hub::{Hub, Machine};
use super::meet::call;
use super::settings::{Auth, Identity, Settings};
use super::{Processes, random};
use crate::error::ClusterError;
use crate::protocol::Ids;

fn offer() -> Offer {
    Offer {
        flow: "orders".to_owned(),
        workers: 1,
        ..Offer::default()
    }
}

#[test]
fn data_links_of_other_runs_and_second_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |process| Address::Unix(folder.path().join(format!("{process}.sock")));
    let hosts: Vec<_> = (0..2).map(path).collect();
    let auth = Auth::Secret(Secret::new(b"a secret of all processes").unwrap());
    let settings = |process| Settings::new(process, hosts.clone(), auth.clone());
    let joined: Vec<_> = std::thread::scope(|scope| {
        let join = |process| {
            let processes = Processes::new(settings(process)).unwrap();
            scope.spawn(move || processes.join(offer(), &|| false).unwrap())
        };
        let both: Vec<_> = (0..2).map(join).collect();
        both.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let own = settings(1);
    let identity = Arc::new(Identity::new(&own).unwrap());
    let ids = Ids {
        run: random().unwrap(),
        cluster: 1,
    };
    let machine = Machine::new(&own, &offer(), ids).unwrap();
    let stale = Hub::new(own, identity, machine, channel().0);
    let run = joined[0].run;
    match call(&stale, 0, Purpose::Data { run: run ^ 1 }) {
        Err(CallError::Final(ClusterError::Refused(text))) => {
            assert!(text.contains("which is over"), "{text}");
        }
        _ => panic!("a process of another run is not refused"),
    }
    match call(&stale, 0, Purpose::Data { run }) {
        Err(CallError::Passing(text)) => assert!(text.contains("already"), "{text}"),
        _ => panic!("a second data link is not refused"),
    }
    // The run does not notice.
    joined.iter().for_each(|one| one.member.stop());
    assert!(joined[1].events.recv().is_ok());
}
