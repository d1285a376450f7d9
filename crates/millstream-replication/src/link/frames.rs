//! The frames of replication, by kind of message; [`millstream_link`] cuts them out of the bytes of a connection.

use millstream_link::FrameKind;

pub(super) use millstream_link::frames::{begin, end, frame};

/// Cuts the bytes of a connection into frames.
pub(super) type Frames = millstream_link::Frames<Kind>;

/// One frame.
pub(super) type Frame<'a> = millstream_link::Frame<'a, Kind>;

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Hello = 1,
    Challenge = 2,
    Follow = 3,
    Welcome = 4,
    Records = 5,
    Ack = 6,
    Alive = 7,
    Refused = 8,
    End = 9,
    Names = 10,
    Pruned = 11,
}

impl FrameKind for Kind {
    fn of(byte: u8) -> Option<Self> {
        use Kind::{Ack, Alive, Challenge, End, Follow, Hello};
        use Kind::{Names, Pruned, Records, Refused, Welcome};
        let all = [
            Hello, Challenge, Follow, Welcome, Records, Ack, Alive, Refused, End, Names, Pruned,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    fn byte(self) -> u8 {
        self as u8
    }
}
