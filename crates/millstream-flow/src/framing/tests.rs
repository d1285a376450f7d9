//! Tests of the cutter against a plain model, at every division of the stream into reads.

use super::*;

const LIMIT: usize = 300;
const ALL: [&str; 8] = [
    "u8", "u16", "u16le", "u32", "u32le", "lines", "fixed:1", "fixed:7",
];

/// A small generator (xorshift64*), so that a failure is repeatable from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }
}

fn random_frame(framing: &Framing, random: &mut Random) -> Vec<u8> {
    let length = match framing {
        Framing::Fixed(length) => *length,
        // Short, empty and long ones, the longest at the limit of a prefix of one byte.
        _ => [0, random.below(4), random.below(40), 255][random.below(4)],
    };
    let mut frame: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
    if *framing == Framing::Lines {
        frame
            .iter_mut()
            .filter(|byte| matches!(byte, b'\n' | b'\r'))
            .for_each(|byte| *byte = b'x');
    }
    frame
}

/// The model: divides the whole stream, one frame after the other, without state.
fn model(framing: &Framing, stream: &[u8]) -> Result<Vec<Vec<u8>>, FramingError> {
    let mut frames = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let offset = at as u64;
        let rest = &stream[at..];
        let truncated = |need| FramingError::Truncated {
            offset,
            have: rest.len(),
            need,
        };
        let (skip, length, line_end) = match framing {
            Framing::Fixed(length) => (0, *length, 0),
            Framing::Lines => match rest.iter().position(|&byte| byte == b'\n') {
                Some(end) if end > 0 && rest[end - 1] == b'\r' => (0, end - 1, 2),
                Some(end) => (0, end, 1),
                None => (0, rest.len(), 0),
            },
            Framing::Prefix { width, big_endian } => {
                let mut prefix = rest
                    .get(..width.bytes())
                    .ok_or(truncated(width.bytes()))?
                    .to_vec();
                if *big_endian {
                    prefix.reverse();
                }
                prefix.resize(4, 0);
                let length = u32::from_le_bytes(prefix.try_into().unwrap()) as usize;
                (width.bytes(), length, 0)
            }
        };
        if length > LIMIT {
            return Err(FramingError::FrameTooLong {
                offset,
                length,
                limit: LIMIT,
            });
        }
        let payload = rest
            .get(skip..skip + length)
            .ok_or(truncated(skip + length))?;
        frames.push(payload.to_vec());
        at += skip + length + line_end;
    }
    Ok(frames)
}

/// Divides a stream that arrives in the given pieces, as a source does: the tail moves to the start of the next
/// buffer.
fn cut_in_pieces(framing: &Framing, pieces: &[&[u8]]) -> Result<Vec<Vec<u8>>, FramingError> {
    let mut cutter = Cutter::new(framing.clone(), LIMIT);
    let mut frames = Frames::default();
    let mut all = Vec::new();
    for piece in pieces {
        frames.data.extend_from_slice(piece);
        let consumed = cutter.cut(&frames.data, 0, &mut frames.spans)?;
        assert_eq!(cutter.offset(), frames.offset + consumed as u64);
        all.extend(frames.iter().map(<[u8]>::to_vec));
        let tail = frames.data.split_off(consumed);
        frames = Frames {
            data: tail,
            spans: Vec::new(),
            offset: cutter.offset(),
            origin: None,
            numbers: Vec::new(),
        };
    }
    cutter.finish(&frames.data, 0, &mut frames.spans)?;
    all.extend((0..frames.len()).map(|i| frames.get(i).to_vec()));
    Ok(all)
}

/// The part of the outcome that must not depend on the division of the stream: all but the length of a line
/// that is still too long.
fn fate(outcome: Result<Vec<Vec<u8>>, FramingError>) -> Result<Vec<Vec<u8>>, String> {
    outcome.map_err(|error| match error {
        FramingError::FrameTooLong { offset, .. } => format!("too long at {offset}"),
        other => other.to_string(),
    })
}

#[test]
fn frames_do_not_depend_on_how_the_stream_is_divided() {
    for name in ALL {
        let framing: Framing = name.parse().unwrap();
        for seed in 1..=20 {
            let mut random = Random(seed);
            let frames: Vec<_> = (0..30)
                .map(|_| random_frame(&framing, &mut random))
                .collect();
            let mut stream = Vec::new();
            frames
                .iter()
                .for_each(|frame| encode(&framing, frame, &mut stream).unwrap());
            assert_eq!(
                model(&framing, &stream).unwrap(),
                frames,
                "{name}, seed {seed}: the model"
            );
            for cut in 0..=stream.len() {
                let pieces = [&stream[..cut], &stream[cut..]];
                assert_eq!(
                    cut_in_pieces(&framing, &pieces).unwrap(),
                    frames,
                    "{name}, seed {seed}, cut at {cut}"
                );
            }
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            assert_eq!(
                cut_in_pieces(&framing, &bytes).unwrap(),
                frames,
                "{name}, seed {seed}, byte by byte"
            );
        }
    }
}

#[test]
fn garbage_and_truncated_streams_end_as_in_the_model() {
    for name in ALL {
        let framing: Framing = name.parse().unwrap();
        for seed in 1..=300 {
            let mut random = Random(seed);
            // Few distinct bytes, so that small lengths and line ends are common.
            let alphabet = [0, 0, 0, 1, 2, b'\r', b'\n', random.below(256) as u8];
            let length = random.below(900);
            let stream: Vec<u8> = (0..length)
                .map(|_| alphabet[random.below(alphabet.len())])
                .collect();
            let want = fate(model(&framing, &stream));
            for _ in 0..10 {
                let (first, second) = stream.split_at(random.below(length + 1));
                assert_eq!(
                    fate(cut_in_pieces(&framing, &[first, second])),
                    want,
                    "{name}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn a_stream_that_ends_early_names_the_frame_and_its_offset() {
    let mut stream = Vec::new();
    encode(&Framing::U32, b"whole", &mut stream).unwrap();
    encode(&Framing::U32, b"cut off", &mut stream).unwrap();
    for (keep, have, need) in [(11, 2, 4), (13, 4, 11), (19, 10, 11)] {
        let error = cut_in_pieces(&Framing::U32, &[&stream[..keep]]).unwrap_err();
        assert_eq!(
            error,
            FramingError::Truncated {
                offset: 9,
                have,
                need
            }
        );
    }
    let error = cut_in_pieces(&Framing::Fixed(5), &[b"12345", b"678"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the stream ended inside the frame at offset 5: 3 of 5 bytes arrived"
    );
}

#[test]
fn a_frame_over_the_limit_is_an_error_and_those_before_it_are_kept() {
    let mut stream = Vec::new();
    encode(&Framing::U16, b"good", &mut stream).unwrap();
    encode(&Framing::U16, &[0; LIMIT + 1], &mut stream).unwrap();
    let mut cutter = Cutter::new(Framing::U16, LIMIT);
    let mut spans = Vec::new();
    let error = cutter.cut(&stream, 0, &mut spans).unwrap_err();
    assert_eq!(
        error,
        FramingError::FrameTooLong {
            offset: 6,
            length: LIMIT + 1,
            limit: LIMIT
        }
    );
    assert_eq!((spans, cutter.offset()), (vec![(2, 6)], 6));

    let mut line = vec![b'x'; LIMIT];
    line.extend_from_slice(b"\r\n");
    assert_eq!(
        cut_in_pieces(&Framing::Lines, &[&line]).unwrap().len(),
        1,
        "a line end is not part of the limit"
    );
    line.insert(0, b'x');
    assert!(cut_in_pieces(&Framing::Lines, &[&line]).is_err());
    // A line without an end must fail when it exceeds the limit, and not fill the memory.
    assert!(
        Cutter::new(Framing::Lines, LIMIT)
            .cut(&[b'x'; LIMIT + 2], 0, &mut Vec::new())
            .is_err()
    );
    assert!(
        Cutter::new(Framing::Fixed(LIMIT + 1), LIMIT)
            .cut(b"", 0, &mut Vec::new())
            .is_err()
    );
}

#[test]
fn cutting_starts_at_the_given_offset() {
    let mut buffer = b"skip".to_vec();
    encode(&Framing::Lines, b"a", &mut buffer).unwrap();
    buffer.extend_from_slice(b"b");
    let mut cutter = Cutter::new(Framing::Lines, LIMIT);
    let mut spans = Vec::new();
    assert_eq!(cutter.cut(&buffer, 4, &mut spans), Ok(2));
    cutter.finish(&buffer[6..], 6, &mut spans).unwrap();
    assert_eq!((spans, cutter.offset()), (vec![(4, 5), (6, 7)], 3));
}

#[test]
fn frames_are_contiguous_with_their_prefixes_and_line_ends() {
    let stream = b"a\n\nb\r\r\n\r\nlast";
    let mut spans = Vec::new();
    let mut cutter = Cutter::new(Framing::Lines, LIMIT);
    let consumed = cutter.cut(stream, 0, &mut spans).unwrap();
    cutter
        .finish(&stream[consumed..], consumed, &mut spans)
        .unwrap();
    let ends: Vec<usize> = spans
        .iter()
        .map(|&span| Framing::Lines.end_of(stream, span))
        .collect();
    assert_eq!(ends, [2, 3, 7, 9, 13]);
    assert_eq!(Framing::U8.end_of(b"\x01a\x01b", (1, 2)), 2);
}

#[test]
fn frames_that_would_not_be_read_back_are_errors() {
    let mut out = Vec::new();
    for (framing, frame) in [
        (Framing::U8, vec![0; 256]),
        (Framing::U16, vec![0; 65_536]),
        (Framing::Fixed(3), vec![0; 4]),
        (Framing::Fixed(0), vec![]),
        (Framing::Lines, b"two\nlines".to_vec()),
        (Framing::Lines, b"ends in CR\r".to_vec()),
    ] {
        assert!(encode(&framing, &frame, &mut out).is_err(), "{framing}");
        assert!(out.is_empty(), "{framing}");
    }
}

#[test]
fn a_framing_is_formatted_as_it_is_parsed() {
    for name in ALL {
        assert_eq!(name.parse::<Framing>().unwrap().to_string(), name);
    }
    for wrong in [
        "", "u64", "u8le", "fixed", "fixed:", "fixed:0", "fixed:-1", "Lines",
    ] {
        let error = wrong.parse::<Framing>().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("unknown framing '{wrong}'")),
            "{error}"
        );
    }
}
