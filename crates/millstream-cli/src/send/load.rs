//! What is sent: bytes in memory, and where each message ends in them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use millstream_flow::framing::{Cutter, Framing, FramingError};

use crate::address;
use crate::data::Kind;
use crate::failure::Failure;

/// The bytes of a stream. It has at least one message, and ends with one.
#[derive(Debug)]
pub(super) struct Load {
    /// Where it came from, for the report.
    pub(super) source: String,
    /// All messages in their framing.
    pub(super) data: Vec<u8>,
    /// The end of each message in `data`, prefix and line end included.
    pub(super) ends: Vec<usize>,
}

impl Load {
    /// The files, one after the other.
    pub(super) fn read(
        paths: &[PathBuf],
        framing: Framing,
        max_frame: usize,
        repeat: bool,
    ) -> Result<Self, Failure> {
        let source = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
            .join(" ");
        let mut data = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            let bytes = fs::read(path).map_err(|error| cannot_read(path, error))?;
            // A line without an end, which only the last may be, would run into the next one.
            let last = index + 1 == paths.len() && !repeat;
            data.extend_from_slice(&bytes);
            if framing == Framing::Lines && !last && !bytes.is_empty() && !bytes.ends_with(b"\n") {
                data.push(b'\n');
            }
        }
        Self::new(source, data, framing, max_frame)
    }

    /// Generated messages.
    pub(super) fn generate(
        kind: Kind,
        count: u64,
        seed: u64,
        framing: Framing,
        max_frame: usize,
    ) -> Result<Self, Failure> {
        let mut data = Vec::new();
        kind.write(count, seed, &framing, &mut data)
            .map_err(|error| Failure::failed(format!("--generate: {error}")))?;
        Self::new(format!("{kind:?}"), data, framing, max_frame)
    }

    fn new(
        source: String,
        data: Vec<u8>,
        framing: Framing,
        max_frame: usize,
    ) -> Result<Self, Failure> {
        let ends = cut(&data, framing, max_frame)
            .map_err(|error| Failure::failed(format!("{source}: {error}")))?;
        if ends.is_empty() {
            return Err(Failure::failed(format!("{source}: there is no message")));
        }
        Ok(Self { source, data, ends })
    }

    /// How many messages there are.
    pub(super) fn messages(&self) -> u64 {
        self.ends.len() as u64
    }
}

/// The end of each message.
fn cut(data: &[u8], framing: Framing, max_frame: usize) -> Result<Vec<usize>, FramingError> {
    // Pieces far below the 4 GiB of a span, so that the file may be of any length.
    const PIECE_BYTES: usize = 1 << 30;
    let mut cutter = Cutter::new(framing.clone(), max_frame.min(PIECE_BYTES));
    let mut ends = Vec::new();
    let mut spans = Vec::new();
    let mut at = 0;
    loop {
        let piece = &data[at..data.len().min(at + 2 * PIECE_BYTES)];
        let consumed = cutter.cut(piece, 0, &mut spans)?;
        ends.extend(spans.drain(..).map(|span| at + framing.end_of(piece, span)));
        if at + piece.len() == data.len() {
            cutter.finish(&piece[consumed..], consumed, &mut spans)?;
            ends.extend(spans.drain(..).map(|span| at + framing.end_of(piece, span)));
            return Ok(ends);
        }
        at += consumed;
    }
}

fn cannot_read(path: &Path, error: std::io::Error) -> Failure {
    Failure::failed(format!("cannot read '{}': {error}", path.display()))
}

/// The value of `--stream`.
pub(super) fn parse_stream(text: &str) -> Result<(PathBuf, SocketAddr), String> {
    let (path, to) = text
        .rsplit_once('@')
        .ok_or_else(|| format!("'{text}': expected FILE@HOST:PORT"))?;
    Ok((PathBuf::from(path), address::parse(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_the_next_one_starts() {
        let load = Load::new(
            "test".into(),
            b"a\r\nb\n\nlast".to_vec(),
            Framing::Lines,
            100,
        )
        .unwrap();
        assert_eq!(load.ends, [3, 5, 6, 10]);
        let load = Load::new("test".into(), b"\x01a\x00\x02bc".to_vec(), Framing::U8, 100).unwrap();
        assert_eq!(load.ends, [2, 3, 6]);
        assert!(Load::new("test".into(), Vec::new(), Framing::Lines, 100).is_err());
        assert!(Load::new("test".into(), b"\x05a".to_vec(), Framing::U8, 100).is_err());
    }

    #[test]
    fn a_stream_is_a_file_and_an_address() {
        let (path, to) = parse_stream("a@b.msg@:7000").unwrap();
        assert_eq!(
            (path.to_str(), to.to_string().as_str()),
            (Some("a@b.msg"), "127.0.0.1:7000")
        );
        assert!(parse_stream("a.msg").is_err() && parse_stream("a.msg@").is_err());
    }
}
