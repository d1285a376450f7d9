//! Real connections of leaders and followers: a machine in the middle, another secret, another version, addresses of
//! other machines.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::{Journal, Options};
use millstream_link::{CallerSide, ListenerSide, ReadOutcome, Stream, connect};
use tempfile::TempDir;

use super::super::error::ReplicationError;
use super::super::frames::{self, Kind};
use super::super::{FollowOptions, Followed, PROTOCOL, Secret, ServeOptions, follow, serve};

const PATIENCE: Duration = Duration::from_secs(10);

fn secret(text: &str) -> Option<Secret> {
    Some(Secret::new(text.as_bytes()).unwrap())
}

/// A journal with one record, and a directory for a copy.
pub(super) struct Journals {
    _folder: TempDir,
    pub original: PathBuf,
    pub copy: PathBuf,
}

pub(super) fn journals() -> Journals {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("orders");
    let journal = Journal::open(&original, Options::default()).unwrap();
    journal.writer().unwrap().append(b"buy 100").unwrap();
    Journals {
        copy: folder.path().join("copy"),
        _folder: folder,
        original,
    }
}

/// Raises a flag when it is dropped: a thread that waits for it ends when a test fails, too.
pub(super) struct Raised<'a>(pub &'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Do something with the address of a leader that has this secret.
pub(super) fn with_leader<T>(
    journals: &Journals,
    secret: Option<Secret>,
    act: impl FnOnce(SocketAddr) -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let mut options = ServeOptions::new(([127, 0, 0, 1], 0).into(), [journals.original.clone()]);
    options.secret = secret;
    let (ready, address) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| serve(&options, &stop, |address| ready.send(address).unwrap()));
        let ending = Raised(&stop);
        let done = act(address.recv().unwrap());
        drop(ending);
        leader.join().unwrap().unwrap();
        done
    })
}

fn follow_once(
    address: SocketAddr,
    journals: &Journals,
    secret: Option<Secret>,
) -> Result<Vec<Followed>, ReplicationError> {
    let mut options = FollowOptions::new("127.0.0.1", address.port(), &journals.copy);
    (options.once, options.secret) = (true, secret);
    follow(&options, &AtomicBool::new(false))
}

/// A machine in the middle: it speaks TLS with both sides, with a key of its own, and relays all that they send.
fn relay(listener: &TcpListener, leader: SocketAddr) -> usize {
    let stop = AtomicBool::new(false);
    let own = ListenerSide::new(&PROTOCOL, None, true).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let accepted = own
        .accept(socket.into(), PATIENCE, PATIENCE, &stop)
        .unwrap()
        .unwrap();
    let follower = Arc::new(accepted.0);
    let any = CallerSide::new(&PROTOCOL, "leader", None, true).unwrap();
    let socket = TcpStream::connect(leader).unwrap();
    let leader =
        Arc::new(connect(socket.into(), &PROTOCOL, any.as_ref(), PATIENCE, PATIENCE).unwrap());
    std::thread::scope(|scope| {
        let up = scope.spawn(|| pass(&follower, &leader));
        pass(&leader, &follower);
        up.join().unwrap()
    })
}

/// Pass on what one side sends until it ends; returns how many bytes that was.
fn pass(from: &Stream, to: &Stream) -> usize {
    let mut buffer = [0; 4 << 10];
    let mut passed = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(ReadOutcome::Bytes(count)) if to.write(&buffer[..count]).is_ok() => passed += count,
            Ok(ReadOutcome::Nothing) => {}
            _ => {
                to.close();
                return passed;
            }
        }
    }
}

#[test]
fn a_secret_alone_encrypts_and_authenticates() {
    let journals = journals();
    let right = "a secret of both sides";
    let followed = with_leader(&journals, secret(right), |address| {
        follow_once(address, &journals, secret(right))
    });
    assert_eq!(followed.unwrap()[0].acknowledged, 1);
}

#[test]
fn a_machine_in_the_middle_with_a_key_of_its_own_is_refused() {
    let journals = journals();
    let right = "a secret of both sides";
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = middle.local_addr().unwrap();
    let (outcome, relayed) = with_leader(&journals, secret(right), |leader| {
        std::thread::scope(|scope| {
            let relayed = scope.spawn(|| relay(&middle, leader));
            let outcome = follow_once(address, &journals, secret(right));
            (outcome, relayed.join().unwrap())
        })
    });
    // HELLO and FOLLOW went through it, so that it was not the TLS of the middle that failed.
    assert!(relayed > 100, "{relayed}");
    assert_eq!(
        outcome.unwrap_err().to_string(),
        "the leader refuses: the secrets of leader and follower differ, or a machine between them breaks TLS open"
    );
    assert!(!journals.copy.exists());
}

#[test]
fn the_wrong_secret_and_none_are_refused_on_either_side() {
    let journals = journals();
    let right = "a secret of both sides";
    for (leader, follower, says) in [
        (secret(right), secret("another secret, as long"), "differ"),
        (secret(right), None, "asks for a secret: give the one"),
        (None, secret(right), "the leader does not know the secret"),
    ] {
        let outcome = with_leader(&journals, leader, |address| {
            follow_once(address, &journals, follower)
        });
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(!error.may_pass() && !journals.copy.exists());
    }
}

#[test]
fn a_follower_of_another_version_learns_the_version_of_the_leader() {
    let journals = journals();
    let hello = frames::frame(Kind::Hello, &[b"MSFOLLOW\x02\0\0\0\x01", &[7; 35]]);
    for leader in [None, secret("a secret of both sides")] {
        let answer = with_leader(&journals, leader, |address| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(&hello).unwrap();
            let mut answer = Vec::new();
            socket.read_to_end(&mut answer).unwrap();
            answer
        });
        assert_eq!(answer[4], Kind::Challenge as u8);
        assert_eq!(
            &answer[millstream_link::frames::HEADER..][..12],
            b"MSFOLLOW\x01\0\0\0"
        );
    }
}

#[test]
fn a_leader_that_closes_the_connection_before_tls_is_tried_again() {
    let journals = journals();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| other.accept().unwrap().0.read(&mut [0; 12]).unwrap());
        follow_once(address, &journals, secret("a secret of both sides"))
    });
    let error = outcome.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("it may be another program"), "{text}");
    assert!(error.may_pass());
}

#[test]
fn without_secret_and_certificate_only_this_machine_is_served_and_followed() {
    let journals = journals();
    let everywhere = ServeOptions::new(([0, 0, 0, 0], 0).into(), [journals.original.clone()]);
    let stop = AtomicBool::new(true);
    let refused = serve(&everywhere, &stop, |_| ()).unwrap_err();
    assert!(matches!(refused, ReplicationError::Usage(_)), "{refused}");
    assert!(refused.to_string().contains("Options::secret"), "{refused}");
    let with_secret = ServeOptions {
        secret: secret("a secret of both sides"),
        ..everywhere
    };
    serve(&with_secret, &stop, |_| ()).unwrap();
    // An address for documentation, which is nowhere (RFC 5737).
    let mut options = FollowOptions::new("192.0.2.1", 7600, &journals.copy);
    options.once = true;
    let refused = follow(&options, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(refused, ReplicationError::Usage(_)), "{refused}");
    assert!(refused.to_string().contains("Options::secret"), "{refused}");
}
