//! Frames and their checksums, written from `docs/journal-format.md` alone: a second implementation, which judges the
//! journal's.

/// A frame of this kind in a segment of this epoch.
pub fn frame(kind: u32, epoch: u64, sequence: u64, time_ns: u64, body: &[u8]) -> Vec<u8> {
    let low = 1 << 31 | kind << 29 | body.len() as u32;
    let mut frame = Vec::from(low.to_le_bytes());
    frame.extend(checksum(epoch, sequence, time_ns, low, body).to_le_bytes());
    frame.extend(time_ns.to_le_bytes());
    frame.extend(body);
    frame.resize(frame.len().next_multiple_of(8), 0);
    frame
}

/// The checksum of a frame that begins with the four bytes `low`.
pub fn checksum(epoch: u64, sequence: u64, time_ns: u64, low: u32, body: &[u8]) -> u32 {
    let mut crc = crc32c::crc32c(body);
    for word in [epoch, sequence, time_ns] {
        crc = crc32c::crc32c_append(crc, &word.to_le_bytes());
    }
    crc32c::crc32c_append(crc, &low.to_le_bytes())
}
