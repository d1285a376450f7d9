//! Batches: what travels between steps.
//!
//! A step never sees one item alone; it is handed a batch, so that every fixed cost (a clock
//! read, a dynamic call, taking the interpreter lock) is paid per batch and not per item.
//! Rust flows use `Vec<T>`, byte connectors use [`Frames`], and the
//! Python face has its own. The engine asks no more of a batch than the few verbs below.

mod codec;
mod raw;

use crate::error::Cause;
use crate::framing::Frames;
use crate::saved::codec::Codecs;

pub use crate::data::Data;
pub use codec::{BatchCodec, timed};
use codec::{FrameBytes, Halves, Items};
pub(crate) use codec::{key_and_value, option_pair};
pub use raw::{Kind, Raw};

/// A group of items that travels as one.
pub trait Batch: Default + Clone + Send + 'static {
    /// The number of items.
    fn len(&self) -> usize;
    /// True when there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Drops the items and keeps the memory.
    fn clear(&mut self);
    /// Takes the first `count` items out, or all if there are fewer; the others stay, in order.
    #[must_use]
    fn take_first(&mut self, count: usize) -> Self;
    /// How batches become bytes on their way to another process.
    ///
    /// # Errors
    /// They cannot, or an item's type was not [announced](crate::Flow::saves).
    #[doc(hidden)] // For the other crates of Millstream.
    fn codec(_: &Codecs) -> Result<Box<dyn BatchCodec<Self>>, Cause> {
        let name = std::any::type_name::<Self>();
        Err(format!("a batch of the type {name} cannot become bytes").into())
    }
}

impl<T: Data> Batch for Vec<T> {
    fn len(&self) -> usize {
        Vec::len(self)
    }
    fn clear(&mut self) {
        Vec::clear(self);
    }
    fn take_first(&mut self, count: usize) -> Self {
        let rest = self.split_off(count.min(Vec::len(self)));
        std::mem::replace(self, rest)
    }
    fn codec(codecs: &Codecs) -> Result<Box<dyn BatchCodec<Self>>, Cause> {
        Ok(Box::new(Items(codecs.item::<T>()?)))
    }
}

/// The two outputs of a step that has two.
impl<A: Batch, B: Batch> Batch for (A, B) {
    fn len(&self) -> usize {
        self.0.len() + self.1.len()
    }
    fn clear(&mut self) {
        self.0.clear();
        self.1.clear();
    }
    fn take_first(&mut self, count: usize) -> Self {
        let first = self.0.take_first(count);
        let left = count - first.len();
        (first, self.1.take_first(left))
    }
    fn codec(codecs: &Codecs) -> Result<Box<dyn BatchCodec<Self>>, Cause> {
        Ok(Box::new(Halves(A::codec(codecs)?, B::codec(codecs)?)))
    }
}

impl Batch for Frames {
    fn len(&self) -> usize {
        self.spans.len()
    }
    fn clear(&mut self) {
        self.spans.clear();
        self.numbers.clear();
    }
    fn take_first(&mut self, count: usize) -> Self {
        Frames::take_first(self, count)
    }
    fn codec(_: &Codecs) -> Result<Box<dyn BatchCodec<Self>>, Cause> {
        Ok(Box::new(FrameBytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::Origin;

    #[test]
    fn the_first_items_go_and_the_others_stay() {
        let mut items = vec![1, 2, 3];
        assert_eq!((items.take_first(2), &items), (vec![1, 2], &vec![3]));
        assert_eq!((items.take_first(9), items.is_empty()), (vec![3], true));
        let mut both = (vec![1, 2], vec!['a', 'b', 'c']);
        assert_eq!(both.take_first(1), (vec![1], vec![]));
        assert_eq!(both.take_first(2), (vec![2], vec!['a']));
        assert_eq!(both, (vec![], vec!['b', 'c']));
    }

    #[test]
    fn divided_frames_know_their_origin() {
        let mut frames = Frames {
            data: b"ab\ncd\nef\n".to_vec(),
            spans: vec![(0, 2), (3, 5), (6, 8)],
            offset: 100,
            origin: None,
            numbers: Vec::new(),
        };
        for (count, bodies, places) in [
            (1, vec!["ab"], vec![100]),
            (0, vec![], vec![]),
            (5, vec!["cd", "ef"], vec![103, 106]),
        ] {
            let first = frames.take_first(count);
            let found: Vec<&[u8]> = first.iter().collect();
            let bodies: Vec<&[u8]> = bodies.into_iter().map(str::as_bytes).collect();
            assert_eq!(found, bodies);
            let found: Vec<u64> = first
                .spans
                .iter()
                .map(|span| first.offset + u64::from(span.0))
                .collect();
            assert_eq!(found, places);
        }
        assert!(frames.is_empty());
    }

    #[test]
    fn frames_that_are_parted_know_their_records() {
        let mut frames = Frames {
            origin: Some(Origin::records("topic \"t\", partition 0, offset").into()),
            ..Frames::default()
        };
        for (number, body) in [(7, "a"), (9, "b"), (10, "c")] {
            frames.append(|out| out.extend(body.bytes())).unwrap();
            frames.numbers.push(number);
        }
        let first = frames.take_first(2);
        assert_eq!(first.describe(1), "topic \"t\", partition 0, offset 9");
        assert_eq!(frames.describe(0), "topic \"t\", partition 0, offset 10");
        assert!(frames.numbers == [10] && first.numbers == [7, 9]);
    }
}
