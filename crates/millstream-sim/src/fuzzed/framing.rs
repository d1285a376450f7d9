//! Arbitrary bytes as a stream of frames: however the stream is divided into reads, the frames are the same, and
//! written again they are the same stream.
//!
//! The first two bytes of an input choose the framing and how the stream is divided.

use millstream_flow::framing::{Cutter, Framing, FramingError, encode};

const LIMIT: usize = 300;
const FRAMINGS: [&str; 8] = [
    "u8", "u16", "u16le", "u32", "u32le", "lines", "fixed:1", "fixed:7",
];

/// The frames, and how the stream ended.
type Outcome = (Vec<Vec<u8>>, Result<(), String>);

fn cut<'a>(framing: &Framing, pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let mut cutter = Cutter::new(framing.clone(), LIMIT);
    let mut frames = Vec::new();
    let mut buffer = Vec::new();
    let mut spans = Vec::new();
    let keep = |frames: &mut Vec<Vec<u8>>, buffer: &[u8], spans: &mut Vec<(u32, u32)>| {
        frames.extend(
            spans
                .drain(..)
                .map(|(start, end)| buffer[start as usize..end as usize].to_vec()),
        );
    };
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let consumed = cutter.cut(&buffer, 0, &mut spans);
        keep(&mut frames, &buffer, &mut spans);
        match consumed {
            Ok(consumed) => drop(buffer.drain(..consumed)),
            Err(error) => return (frames, Err(fate(&error))),
        }
    }
    let end = cutter.finish(&buffer, 0, &mut spans);
    keep(&mut frames, &buffer, &mut spans);
    (frames, end.map_err(|error| fate(&error)))
}

/// What must not depend on how the stream was divided: all but the length of a line that is still too long.
fn fate(error: &FramingError) -> String {
    match error {
        FramingError::FrameTooLong { offset, .. } => format!("too long at {offset}"),
        other => other.to_string(),
    }
}

/// The stream without the choices that a line end leaves.
fn plain(framing: &Framing, stream: &[u8]) -> Vec<u8> {
    let mut plain = Vec::from(stream);
    if *framing == Framing::Lines {
        if !plain.is_empty() && !plain.ends_with(b"\n") {
            plain.push(b'\n');
        }
        while let Some(at) = plain.windows(2).position(|two| two == b"\r\n") {
            plain.remove(at);
        }
    }
    plain
}

/// Feeds one input. It panics when it finds something.
pub fn run(input: &[u8]) {
    let [choice, step, stream @ ..] = input else {
        return;
    };
    let name = FRAMINGS[usize::from(*choice) % FRAMINGS.len()];
    let framing: Framing = name.parse().expect("it is one of the framings");
    let whole = cut(&framing, std::iter::once(stream));
    assert_eq!(cut(&framing, stream.chunks(1)), whole, "byte by byte");
    assert_eq!(
        cut(&framing, stream.chunks(1 + usize::from(*step))),
        whole,
        "in pieces"
    );
    let mut again = Vec::new();
    for frame in &whole.0 {
        // A line that ends with the CR of an unfinished line end has no other form.
        if encode(&framing, frame, &mut again).is_err() {
            return;
        }
    }
    if whole.1.is_ok() {
        assert_eq!(
            plain(&framing, &again),
            plain(&framing, stream),
            "written again"
        );
    }
}
