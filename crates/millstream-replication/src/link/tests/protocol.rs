//! The protocol without sockets: complete conversations, split at every byte, and messages that break its rules.

use millstream_journal::Term;
use millstream_link::{Credential, LinkError, Secret, encode, proved, read_proved};

use super::super::error::{Reason, ReplicationError};
use super::super::frames::Kind;
use super::super::frames::{self, Frame, Frames};
use super::super::handshake::{
    Asking, Calling, Challenging, Listening, PendingRequest, write_refused,
};
use super::super::message::{
    self, At, Batch, Follow, MEMBERS_MAX, Member, NAME_MAX, Offer, Purpose, Records, TERMS_MAX,
    Welcome,
};

/// The secret on one TLS connection.
fn secret(text: &str) -> Option<Credential> {
    on_connection(text, 1)
}

fn on_connection(text: &str, binding: u8) -> Option<Credential> {
    let secret = Secret::new(text.as_bytes()).unwrap();
    Some(Credential::new(
        &super::super::PROTOCOL,
        secret,
        [binding; 32],
    ))
}

fn follow() -> Follow {
    Follow {
        follower: "backup.1".to_owned(),
        purpose: Purpose::Records,
        members: vec![member("orders"), member("fills")],
    }
}

fn member(journal: &str) -> Member {
    Member {
        journal: journal.to_owned(),
        lineage: Some(1 << 100 | 7),
        own: 99,
        next: 1_000,
        last: Some(456),
        terms: vec![term(1), term(7)],
    }
}

fn term(number: u64) -> Term {
    Term {
        number,
        start: number * 10,
        id: number << 60,
    }
}

fn welcome() -> Welcome {
    Welcome {
        heartbeat_ms: 1_000,
        members: vec![
            None,
            Some(Offer {
                lineage: 1 << 100 | 7,
                segment_bytes: 64 << 20,
                next: 1_000,
                end: 2_000,
                terms: vec![term(2)],
            }),
        ],
    }
}

/// The frames of these bytes, which come in two parts.
fn split(bytes: &[u8], cut: usize) -> Vec<(Kind, Vec<u8>)> {
    let mut frames = Frames::new(1 << 20);
    let mut found = Vec::new();
    for part in [&bytes[..cut], &bytes[cut..]] {
        frames.space()[..part.len()].copy_from_slice(part);
        frames.filled(part.len());
        while frames.is_ready() {
            let frame = frames.next_frame().unwrap().unwrap();
            found.push((frame.kind, frame.payload.to_vec()));
        }
    }
    found
}

fn only(bytes: &[u8], cut: usize) -> (Kind, Vec<u8>) {
    let mut found = split(bytes, cut.min(bytes.len()));
    assert_eq!(found.len(), 1, "cut at {cut}");
    found.remove(0)
}

fn frame((kind, payload): &(Kind, Vec<u8>)) -> Frame<'_> {
    Frame {
        kind: *kind,
        payload,
    }
}

fn listening(credential: Option<Credential>) -> Listening<'static> {
    Listening {
        credential,
        refusal: None,
    }
}

/// Both first words, as far as the follower's request.
fn met(
    leader: Option<Credential>,
    follower: Option<Credential>,
    cut: usize,
) -> Result<(Challenging, Asking, Vec<u8>), ReplicationError> {
    let mut up = Vec::new();
    let mut down = Vec::new();
    let calling = Calling::new(follower, &mut up);
    let challenging = listening(leader).hello(frame(&only(&up, cut)), &mut down)?;
    up.clear();
    let asking = calling.challenge(frame(&only(&down, cut)), &follow(), &mut up)?;
    Ok((challenging, asking, up))
}

fn authenticate(
    leader: Option<Credential>,
    follower: Option<Credential>,
    cut: usize,
) -> Result<(PendingRequest, Asking), ReplicationError> {
    let (challenging, asking, up) = met(leader, follower, cut)?;
    let asked = challenging.follow(frame(&only(&up, cut)), &mut Vec::new())?;
    Ok((asked, asking))
}

#[test]
fn a_handshake_that_is_cut_comes_to_the_same_end() {
    for leader in [None, secret("a secret of both sides")] {
        for cut in (0..600).step_by(7) {
            let (asked, asking) = authenticate(leader.clone(), leader.clone(), cut).unwrap();
            assert_eq!(asked.follow, follow());
            let mut down = Vec::new();
            asked.welcome(&welcome(), &mut down);
            let found = asking.welcome(frame(&only(&down, cut))).unwrap();
            assert_eq!(found, welcome(), "cut at {cut}");
        }
    }
}

#[test]
fn a_peer_without_the_secret_is_refused_on_both_sides() {
    let right = || secret("a secret of both sides");
    for (leader, follower, says) in [
        (right(), secret("another secret, as long"), "differ"),
        // The two ends of a machine in the middle, which has a TLS connection with each of them.
        (
            right(),
            on_connection("a secret of both sides", 2),
            "breaks TLS open",
        ),
        (right(), None, "asks for a secret"),
    ] {
        let (challenging, _, up) = met(leader, follower, 0).unwrap();
        let mut down = Vec::new();
        let refused = challenging.follow(frame(&only(&up, 0)), &mut down);
        assert!(refused.is_err());
        let (kind, payload) = only(&down, 0);
        assert_eq!(kind, Kind::Refused);
        let (_, body) = read_proved(&payload).unwrap();
        let ReplicationError::Refused { reason, text } = message::read_refused(body) else {
            panic!("no refusal")
        };
        assert!(reason == Reason::Secret && text.contains(says), "{text}");
    }
    // A leader that has no secret gets no request at all.
    assert!(matches!(
        met(None, right(), 0),
        Err(ReplicationError::LeaderSecret)
    ));
    // One that says it has one, and does not know it, is found out by its welcome.
    let (_, asking) = authenticate(right(), right(), 0).unwrap();
    let down = proved(Kind::Welcome, &[0; 32], &encode(&welcome()));
    assert!(matches!(
        asking.welcome(frame(&only(&down, 0))),
        Err(ReplicationError::LeaderSecret)
    ));
}

#[test]
fn a_request_that_was_changed_on_the_way_is_refused() {
    let right = || secret("a secret of both sides");
    let (_, _, up) = met(right(), right(), 0).unwrap();
    let (kind, payload) = only(&up, 0);
    for byte in 0..payload.len() {
        let (challenging, _, _) = met(right(), right(), 0).unwrap();
        let mut changed = payload.clone();
        changed[byte] ^= 1;
        let outcome = challenging.follow(frame(&(kind, changed)), &mut Vec::new());
        assert!(outcome.is_err(), "byte {byte}");
    }
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let term = [&b"\x93\x02\x14\xcf\x20"[..], &[0; 7]].concat();
    let lineage = [&b"\xc4\x10\0\0\0\x10"[..], &[0; 11], &[7]].concat();
    let asked = Follow {
        members: vec![Member {
            terms: vec![self::term(2)],
            ..member("orders")
        }],
        ..follow()
    };
    let next = b"\xcd\x03\xe8";
    let expected = [
        b"\x93\xa8backup.1\xa7Records\x91\x96\xa6orders",
        &lineage[..],
        b"\x63",
        next,
        b"\xcd\x01\xc8\x91",
        &term,
    ];
    assert_eq!(encode(&asked), expected.concat());
    let expected = [
        b"\x92\xcd\x03\xe8\x92\xc0\x95",
        &lineage[..],
        b"\xce\x04\0\0\0",
        next,
        b"\xcd\x07\xd0\x91",
        &term,
    ];
    assert_eq!(encode(&welcome()), expected.concat());
    let at = At {
        member: 1,
        next: 1_000,
    };
    let pruned = only(&at.frame(Kind::Pruned), 0);
    assert_eq!(pruned, (Kind::Pruned, [b"\x92\x01", &next[..]].concat()));
    let names = only(&message::names_frame(["a", "b"].into_iter()), 0);
    assert_eq!(names, (Kind::Names, b"\x92\xa1a\xa1b".to_vec()));
    assert_eq!(
        message::refused_body(Reason::InUse, "why"),
        b"\x92\xa5InUse\xa3why"
    );
}

#[test]
fn messages_that_are_too_short_or_too_long_are_errors() {
    let body = encode(&follow());
    let welcome = encode(&welcome());
    for length in 0..body.len() {
        assert!(Follow::read(&body[..length]).is_err(), "{length}");
    }
    for length in 0..welcome.len() {
        assert!(Welcome::read(&welcome[..length]).is_err(), "{length}");
    }
    for whole in [&body, &welcome] {
        let longer = [&whole[..], &[0]].concat();
        assert!(Follow::read(&longer).is_err());
        assert!(Welcome::read(&longer).is_err());
    }
}

#[test]
fn damaged_bytes_are_an_error_or_another_message() {
    let body = encode(&follow());
    let answer = encode(&welcome());
    let damaged = |whole: &[u8], bit: usize| {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    for bit in 0..body.len() * 8 {
        let read = Follow::read(&damaged(&body, bit));
        assert_ne!(read.ok(), Some(follow()), "bit {bit}");
    }
    for bit in 0..answer.len() * 8 {
        let read = Welcome::read(&damaged(&answer, bit));
        assert_ne!(read.ok(), Some(welcome()), "bit {bit}");
    }
}

#[test]
fn messages_over_their_limits_are_errors() {
    let read = |follow: Follow| Follow::read(&encode(&follow)).is_ok();
    let of_members = |count| Follow {
        members: vec![member("orders"); count],
        ..follow()
    };
    let of_terms = |count| vec![term(1); count];
    let named = |bytes| Follow {
        members: vec![member(&"x".repeat(bytes))],
        ..follow()
    };
    let from = |bytes| Follow {
        follower: "x".repeat(bytes),
        ..follow()
    };
    let with_terms = |count| Follow {
        members: vec![Member {
            terms: of_terms(count),
            ..member("orders")
        }],
        ..follow()
    };
    for (within, beyond) in [
        (of_members(MEMBERS_MAX), of_members(MEMBERS_MAX + 1)),
        (named(NAME_MAX), named(NAME_MAX + 1)),
        (from(NAME_MAX), from(NAME_MAX + 1)),
        (with_terms(TERMS_MAX), with_terms(TERMS_MAX + 1)),
    ] {
        assert!(read(within) && !read(beyond));
    }
    // Names are asked for without members, all else with some.
    let names = |count| Follow {
        purpose: Purpose::Names,
        ..of_members(count)
    };
    assert!(read(names(0)) && !read(names(1)) && !read(of_members(0)));
    let answer = |count| {
        let mut answer = welcome();
        answer.members[1].as_mut().unwrap().terms = of_terms(count);
        Welcome::read(&encode(&answer)).is_ok()
    };
    assert!(answer(TERMS_MAX) && !answer(TERMS_MAX + 1));
    assert!(message::read_names(&encode(&["x".repeat(NAME_MAX)])).is_ok());
    assert!(message::read_names(&encode(&["x".repeat(NAME_MAX + 1)])).is_err());
}

#[test]
fn another_version_is_named_by_both() {
    let up = frames::frame(Kind::Hello, &[b"MSFOLLOW\x02\0\0\0\0"]);
    let mut down = Vec::new();
    let outcome = listening(None).hello(frame(&only(&up, 0)), &mut down);
    assert!(matches!(
        outcome,
        Err(ReplicationError::Version { theirs: 2, ours: 1 })
    ));
    let newer = outcome.err().unwrap().to_string();
    assert_eq!(
        newer,
        "the other side speaks version 2 of the protocol, this one 1: update Millstream on this machine"
    );
    // The follower learns the leader's version all the same.
    assert_eq!(only(&down, 0).0, Kind::Challenge);
    // Without TLS as well, and whatever follows the version.
    let up = frames::frame(Kind::Hello, &[b"MSFOLLOW\x02\0\0\0", &[0; 36]]);
    let mut down = Vec::new();
    let without_tls = Listening {
        credential: None,
        refusal: Some("the leader asks for a secret"),
    };
    let outcome = without_tls.hello(frame(&only(&up, 0)), &mut down);
    assert_eq!(outcome.err().unwrap().to_string(), newer);
    let (kind, payload) = only(&down, 0);
    assert_eq!(
        (kind, &payload[..12]),
        (Kind::Challenge, &b"MSFOLLOW\x01\0\0\0"[..])
    );
}

#[test]
fn a_follower_without_tls_is_refused_in_words() {
    let mut up = Vec::new();
    let calling = Calling::new(None, &mut up);
    let mut down = Vec::new();
    let without_tls = Listening {
        credential: None,
        refusal: Some("the leader asks for a secret"),
    };
    assert!(without_tls.hello(frame(&only(&up, 0)), &mut down).is_err());
    let outcome = calling.challenge(frame(&only(&down, 0)), &follow(), &mut Vec::new());
    assert_eq!(
        outcome.err().unwrap().to_string(),
        "the leader refuses: the leader asks for a secret"
    );
}

#[test]
fn a_refusal_that_the_leader_has_not_proved_says_nothing() {
    let right = || secret("a secret of both sides");
    for (prover, is_believed) in [
        (right(), true),
        (on_connection("a secret of both sides", 2), false),
        (secret("another secret, as long"), false),
        (None, false),
    ] {
        let mut down = Vec::new();
        write_refused(
            prover.as_ref(),
            Reason::Superseded,
            "follow me instead",
            &mut down,
        );
        let refusal = only(&down, 0);
        let (_, asking) = authenticate(right(), right(), 0).unwrap();
        let calling = Calling::new(right(), &mut Vec::new());
        for outcome in [
            asking.welcome(frame(&refusal)).err(),
            calling
                .challenge(frame(&refusal), &follow(), &mut Vec::new())
                .err(),
        ] {
            let found = match outcome.unwrap() {
                ReplicationError::Refused { reason, .. } => reason == Reason::Superseded,
                ReplicationError::LeaderSecret => false,
                other => panic!("{other}"),
            };
            assert_eq!(found, is_believed);
        }
    }
}

#[test]
fn a_message_out_of_turn_is_an_error_that_names_it() {
    let at = At { member: 1, next: 7 };
    let ack = only(&at.frame(Kind::Ack), 0);
    let error = listening(None).hello(frame(&ack), &mut Vec::new());
    let error = error.err().unwrap().to_string();
    assert!(
        error.ends_with("Ack came where Hello was expected"),
        "{error}"
    );
    let (challenging, asking, _) = met(None, None, 0).unwrap();
    assert!(challenging.follow(frame(&ack), &mut Vec::new()).is_err());
    assert!(asking.welcome(frame(&ack)).is_err());
}

#[test]
fn records_are_read_as_they_were_written() {
    let bodies: [&[u8]; 4] = [b"first", b"", &[7; 1_000], b"last"];
    let mut batch = Batch::new(3);
    for _ in 0..2 {
        assert!(batch.is_empty() && batch.bytes_len() == 0);
        for (sequence, body) in (41..).zip(bodies) {
            batch.add(sequence, sequence * 10, body);
        }
        let bytes = batch.take().to_vec();
        for cut in 0..bytes.len() {
            let found = only(&bytes, cut);
            let mut records = Records::read(&found.1).unwrap();
            assert_eq!(records.member, 3);
            for (sequence, body) in (41..).zip(bodies) {
                assert_eq!(records.sequence, sequence);
                assert_eq!(records.next().unwrap(), Some((sequence * 10, body)));
            }
            assert_eq!(records.next().unwrap(), None);
        }
        // A payload that ends early is noticed, whatever its checksum says.
        let (_, payload) = only(&bytes, 0);
        for length in 0..payload.len() {
            let short = (Kind::Records, payload[..length].to_vec());
            let read = Records::read(&short.1).and_then(|mut records| {
                let mut count = 0;
                while records.next()?.is_some() {
                    count += 1;
                }
                Ok(count)
            });
            assert!(
                read.is_err() || read.is_ok_and(|count| count < 4),
                "{length}"
            );
        }
    }
    assert_eq!(batch.take(), b"");
}

#[test]
fn a_refusal_cannot_write_to_the_terminal_what_it_likes() {
    let mut bytes = Vec::new();
    write_refused(
        None,
        Reason::Pruned,
        "gone\x1b[2J\nmillstream: all is well",
        &mut bytes,
    );
    let (_, payload) = only(&bytes, 0);
    let (_, body) = read_proved(&payload).unwrap();
    let ReplicationError::Refused { reason, text } = message::read_refused(body) else {
        panic!("no refusal")
    };
    assert_eq!(reason, Reason::Pruned);
    assert_eq!(text, "gone[2Jmillstream: all is well");
    // A reason of a later version is no refusal, and may pass; neither is nothing at all.
    for bytes in [&encode(&("Later", "x"))[..], &[]] {
        let error = message::read_refused(bytes);
        assert!(error.may_pass());
        assert!(matches!(
            error,
            ReplicationError::Link(LinkError::Protocol { .. })
        ));
    }
}
