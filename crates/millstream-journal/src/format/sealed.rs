//! A small file that is written once: a few words and their checksum, all of it on the disk before the file has its
//! name.

use std::io;

use crate::storage::{Access, Region, Storage};

/// Make the file `name`, by way of the file `draft`.
pub(crate) fn write<S: Storage>(
    storage: &S,
    draft: &str,
    name: &str,
    bytes: u64,
    words: &[u64],
) -> io::Result<()> {
    fill(storage, draft, bytes, words)?;
    storage.rename(draft, name)?;
    storage.sync_names()
}

/// [`write`], in place of the file of that name, if there is one.
pub(crate) fn replace<S: Storage>(
    storage: &S,
    draft: &str,
    name: &str,
    bytes: u64,
    words: &[u64],
) -> io::Result<()> {
    fill(storage, draft, bytes, words)?;
    storage.replace(draft, name)?;
    storage.sync_names()
}

fn fill<S: Storage>(storage: &S, draft: &str, bytes: u64, words: &[u64]) -> io::Result<()> {
    let region = storage.create(draft, bytes)?;
    for (at, word) in (0..).step_by(8).zip(words.iter().chain([&check(words)])) {
        region.publish(at, *word);
    }
    region.sync(0, bytes)
}

/// The words of a file; `None` if it is too short, does not begin with `magic`, or does not match its checksum.
pub(crate) fn read<S: Storage, const WORDS: usize>(
    storage: &S,
    name: &str,
    bytes: u64,
    magic: u64,
) -> io::Result<Option<[u64; WORDS]>> {
    let region = match storage.open(name, Access::Read) {
        // Nothing of it is left.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        region => region?,
    };
    if region.bytes_len() < bytes {
        return Ok(None);
    }
    let mut words = [0; WORDS];
    for (at, word) in (0..).step_by(8).zip(&mut words) {
        *word = region.load(at);
    }
    let whole = words[0] == magic && region.load(WORDS as u64 * 8) == check(&words);
    if let Some(fault) = region.fault() {
        return Err(fault.source);
    }
    Ok(whole.then_some(words))
}

fn check(words: &[u64]) -> u64 {
    words
        .iter()
        .fold(0, |crc, word| {
            crc32c::crc32c_append(crc, &word.to_le_bytes())
        })
        .into()
}
