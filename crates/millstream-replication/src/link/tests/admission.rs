//! Which copies a leader admits by itself, over real connections.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::{Error, Journal, Options, Retention, Sync};

use super::super::connector::Connector;
use super::super::error::ReplicationError;
use super::super::message::{Follow, Member, Purpose};
use super::super::{FollowOptions, follow};
use super::authentication::{Raised, journals, with_leader};
use crate::{Followers, Standing};

#[test]
fn a_follower_that_dies_before_it_has_made_its_copy_does_not_count_under_its_name() {
    let journals = journals();
    let journal = Journal::open(&journals.original, Options::default()).unwrap();
    let followers = Followers::of(&journal);
    with_leader(&journals, None, |address| {
        let stop = AtomicBool::new(false);
        let leader = ("127.0.0.1".to_owned(), address.port());
        let connector = Connector::new(&leader, None, None).unwrap();
        let follow_as = |own| Follow {
            follower: "backup".to_owned(),
            purpose: Purpose::Records,
            members: vec![Member {
                journal: String::new(),
                lineage: None,
                own,
                next: 0,
                last: None,
                terms: Vec::new(),
            }],
        };
        // The leader has accepted it, and it is killed.
        connector.probe(&follow_as(7), &stop).unwrap();
        while followers.list().unwrap()[0].is_connected != Some(false) {
            std::thread::yield_now();
        }
        assert_eq!(followers.list().unwrap()[0].standing, Standing::New);
        let mut options = FollowOptions::new("127.0.0.1", address.port(), &journals.copy);
        (options.once, options.name) = (true, "backup".to_owned());
        follow(&options, &stop).unwrap();
        let limit = Some(Duration::from_secs(60));
        Followers::of(&journal).wait(0, 1, limit).unwrap();
        // Begun anew, it is another copy.
        std::fs::remove_dir_all(&journals.copy).unwrap();
        while let Err(error) = follow(&options, &stop) {
            let is_left = matches!(error, ReplicationError::Refused { .. });
            assert!(is_left, "the leader has not noticed the end: {error}");
        }
        while followers.list().unwrap()[0].position == 0 {
            std::thread::yield_now();
        }
        assert_eq!(followers.list().unwrap()[0].standing, Standing::OtherCopy);
        assert!(followers.positions().unwrap().is_empty());
    });
}

#[test]
fn a_new_copy_begins_although_the_leader_prunes_while_it_is_admitted() {
    let journals = journals();
    let small = Options {
        segment_bytes: 64 << 10,
        ..Options::default()
    };
    let folder = journals.copy.parent().unwrap();
    std::fs::remove_dir_all(&journals.original).unwrap();
    let journal = Journal::open(&journals.original, small).unwrap();
    journal.writer().unwrap().append(b"first").unwrap();
    let stop = AtomicBool::new(false);
    let writing = journal.clone();
    let keep = Retention {
        bytes: Some(2 * (64 << 10)),
        keep_for_cursors: true,
        ..Retention::default()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = writing.writer().unwrap();
            while !stop.load(Ordering::Relaxed) {
                writer.append(&[7; 40 << 10]).unwrap();
                writing.prune(&keep).unwrap();
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
        let _ending = Raised(&stop);
        with_leader(&journals, None, |address| {
            for number in 0..30 {
                let copy = folder.join(format!("copy {number}"));
                let mut options = FollowOptions::new("127.0.0.1", address.port(), &copy);
                (options.once, options.name) = (true, format!("copy-{number}"));
                options.sync = Sync::Never;
                // What a reader opens in the first moment of the copy stays the copy: it is never removed and made
                // again.
                let reading = scope.spawn({
                    let copy = copy.clone();
                    move || {
                        loop {
                            if let Ok(directory) = std::fs::File::open(&copy) {
                                return directory;
                            }
                            std::thread::yield_now();
                        }
                    }
                });
                let followed = follow(&options, &AtomicBool::new(false));
                // The leader has it open until it has noticed the end.
                let cursor = format!("follower.copy-{number}");
                while let Err(error) = journal.remove_cursor(&cursor) {
                    assert!(matches!(error, Error::CursorInUse { .. }), "{error}");
                    std::thread::yield_now();
                }
                let next = followed.unwrap()[0].next;
                let copied = Journal::open(&copy, Options::default()).unwrap();
                assert_eq!(copied.next().unwrap(), next);
                let opened = reading.join().unwrap().metadata().unwrap();
                assert_eq!(opened.ino(), std::fs::metadata(&copy).unwrap().ino());
            }
        });
    });
}
