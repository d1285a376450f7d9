//! The staged output of a sink, which is not in the queue yet: a journal beside the queues, `.flows/ID`.
//!
//! The invariant: the queue has the staged items before the number in its log, and none after it.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;

use crate::embedded::Queue;
use millstream_flow::error::Cause;
use millstream_flow::named::DROP_STATE;
use millstream_flow::sink::Token;
use millstream_journal::{Cursor, CursorMode, Journal, Options, Reader, Retention, context};

/// The directory of staging journals, in that of the queues. No queue has such a name.
const FOLDER: &str = ".flows";
const SEGMENT_BYTES: u64 = 16 << 20;
/// The prefix of directories that are removed when the directory of the queues is opened.
const REMOVED: &str = ".removed-flow-";
/// The cursor before which all items are in the queue and durable.
const MOVED: &str = "moved";
/// The number of items that are moved in one call.
const ITEMS_AT_ONCE: usize = 256;

/// The contents of a token: a staging journal, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Staged {
    pub(super) id: u64,
    pub(super) length: u64,
}

impl Staged {
    pub(super) fn token(self) -> Token {
        [self.id.to_le_bytes(), self.length.to_le_bytes()].concat()
    }

    /// An empty journal, with an id that no other flow has.
    pub(super) fn first(queue: &Queue) -> Self {
        Staged {
            id: RandomState::new().hash_one(queue.name()),
            length: 0,
        }
    }

    /// Refuses to resume from a position before items that the queue has: new output would have their numbers, and be
    /// skipped. The staged items stay unchanged, for the newest state.
    fn is_newest(self, moved: u64, queue: &Queue) -> Result<(), Cause> {
        if moved <= self.length {
            return Ok(());
        }
        Err(format!(
            "queue {} has {moved} items of this flow, and the state directory knows of {}: it is an older copy. Resume from the newest \
             one, or drop the state of the sink ({DROP_STATE}), which then adds later output of the flow to the queue",
            queue.name(),
            self.length
        )
        .into())
    }

    /// The furthest of these tokens; `None` at the first run.
    pub(super) fn of(tokens: &[Token]) -> Result<Option<Self>, Cause> {
        let mut furthest: Option<Staged> = None;
        for token in tokens {
            let (words, []) = token.as_chunks::<8>() else {
                return Err("the token of its last epoch is not that of a queue".into());
            };
            let &[id, length] = words else {
                return Err("the token of its last epoch is not that of a queue".into());
            };
            let this = Staged {
                id: u64::from_le_bytes(id),
                length: u64::from_le_bytes(length),
            };
            if furthest.is_none_or(|staged| staged.length < this.length) {
                furthest = Some(this);
            }
        }
        Ok(furthest)
    }
}

/// The staging journal of a run.
pub(super) struct Staging {
    pub(super) id: u64,
    queue: Queue,
    path: PathBuf,
    journal: Journal,
    reader: Reader,
    cursor: Cursor,
    /// The queue has all items before this one.
    moved: u64,
}

impl Staging {
    /// Opens the journal of the last commit, truncates it, and moves the committed items into the queue.
    pub(super) fn resume(queue: Queue, staged: Staged) -> Result<Self, Cause> {
        let folder = queue.queues().folder().join(FOLDER);
        let path = folder.join(format!("{:016x}", staged.id));
        let options = Options {
            exclusive: true,
            segment_bytes: SEGMENT_BYTES
                .max(8 * queue.item_bytes_max().next_multiple_of(1 << 20) as u64),
            record_bytes_max: u32::try_from(queue.item_bytes_max())?,
            // A journal that does not exist was removed when all of it was in the queue.
            first_sequence: staged.length,
            ..Options::default()
        };
        let mark = queue.next_index(staged.id)?;
        staged.is_newest(mark, &queue)?;
        let journal = Journal::open(&path, options)?;
        let cursor = journal.cursor(MOVED, CursorMode::Exclusive)?;
        // A deleted queue has forgotten the number.
        let moved = mark.max(cursor.position()?);
        staged.is_newest(moved, &queue)?;
        journal
            .cut(staged.length)
            .map_err(|cause| context("output of the last epoch is no longer there", cause))?;
        let mut staging = Staging {
            id: staged.id,
            queue,
            path,
            reader: journal.reader()?,
            cursor,
            journal,
            moved,
        };
        staging.move_until(staged.length)?;
        Ok(staging)
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether the queue has all staged items.
    pub(super) fn is_moved(&self) -> Result<bool, Cause> {
        Ok(self.moved == self.journal.next()?)
    }

    /// Moves the items before this one, which are committed, into the queue.
    pub(super) fn move_until(&mut self, length: u64) -> Result<(), Cause> {
        let mut bodies: Vec<Vec<u8>> = Vec::new();
        while self.moved < length {
            bodies.clear();
            let until = length.min(self.moved + ITEMS_AT_ONCE as u64);
            for position in self.moved..until {
                bodies.push(self.reader.read(position)?.body.to_vec());
            }
            self.queue
                .put_always(&bodies, Some((self.id, self.moved)))?;
            self.moved = until;
        }
        Ok(())
    }

    /// Prunes the items that were moved before the last sync of the queue.
    pub(super) fn prune(&self) -> Result<(), Cause> {
        self.cursor.set(self.moved)?;
        self.journal.prune(&Retention {
            keep_for_cursors: true,
            ..Retention::default()
        })?;
        Ok(())
    }

    /// Closes the journal at the end of the run. It is removed if the queue has all its items durably.
    pub(super) fn close(self) -> Result<(), Cause> {
        let all = self.is_moved()?;
        if all {
            self.queue.sync()?;
        }
        let Staging {
            id,
            queue,
            journal,
            reader,
            cursor,
            path,
            ..
        } = self;
        drop((reader, cursor, journal));
        if all {
            // A directory that cannot be removed now is removed when the directory of the queues is opened.
            let removed = queue.queues().folder().join(format!("{REMOVED}{id:016x}"));
            std::fs::rename(path, &removed)?;
            let _ = std::fs::remove_dir_all(removed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::embedded::Queues;

    use super::*;

    fn queue(place: &std::path::Path) -> Queue {
        let queue = Queues::attach(place).and_then(|queues| queues.queue("q"));
        queue.expect("it is there")
    }

    fn drained(queue: &Queue) -> String {
        let items = std::iter::from_fn(|| queue.get(Duration::ZERO).expect("it is open"));
        items
            .map(|item| String::from_utf8_lossy(&item).into_owned())
            .collect()
    }

    #[test]
    fn a_move_resumes_where_it_ended_and_truncates_what_is_not_committed() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path();
        let staging = Staging::resume(queue(place), Staged::first(&queue(place)));
        let staging = staging.expect("it begins");
        let id = staging.id;
        let writer = staging.journal().writer().expect("it is writable");
        writer
            .append_many(["a", "b", "c", "d", "e"])
            .expect("there is room");
        drop((writer, staging));
        // The process dies during the move of three items: two are in the queue.
        queue(place)
            .put_always(["a", "b"], Some((id, 0)))
            .expect("there is room");
        let committed = Staged { id, length: 3 };
        for _ in 0..2 {
            let staging = Staging::resume(queue(place), committed).expect("it resumes");
            assert_eq!(staging.journal().next().ok(), Some(3));
        }
        assert_eq!(drained(&queue(place)), "abc");
        // All items are moved: the journal is removed, and created again at the same position.
        let staging = Staging::resume(queue(place), committed).expect("it resumes");
        let path = staging.path.clone();
        staging.close().expect("it is removed");
        assert!(!path.exists());
        let mut staging = Staging::resume(queue(place), committed).expect("it resumes");
        let writer = staging.journal().writer().expect("it is writable");
        assert_eq!(writer.append(b"f").ok(), Some(3));
        staging.move_until(4).expect("it is staged");
        assert_eq!(drained(&queue(place)), "f");
        // The queue is deleted, and its numbers with it: its items are not put again.
        staging.prune().expect("it is writable");
        drop((writer, staging));
        // An older copy of the state does not know "f": its next output must not be skipped in its place.
        let older = Staging::resume(queue(place), committed);
        let error = older.err().map(|error| error.to_string());
        let said = "queue q has 4 items of this flow, and the state directory knows of 3: it is an older copy";
        assert!(
            error.as_ref().is_some_and(|error| error.starts_with(said)),
            "{error:?}"
        );
        assert_eq!(queue(place).delete().ok(), Some(true));
        let resumed = Staging::resume(queue(place), Staged { id, length: 4 });
        assert_eq!(resumed.map(|staging| staging.moved).ok(), Some(4));
        assert_eq!(drained(&queue(place)), "");
        // Committed output that is missing is an error.
        let gone = Staging::resume(queue(place), Staged { id, length: 9 });
        let error = gone.err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("no longer there")));
    }

    #[test]
    fn the_furthest_token_counts() {
        let tokens = [(7, 3), (7, 5), (7, 4)].map(|(id, length)| Staged { id, length }.token());
        assert_eq!(
            Staged::of(&tokens).ok(),
            Some(Some(Staged { id: 7, length: 5 }))
        );
        assert_eq!(Staged::of(&[]).ok(), Some(None));
        assert!(Staged::of(&[vec![1; 15]]).is_err());
    }
}
