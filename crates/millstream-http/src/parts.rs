//! Parts of records: bytes with their length.
//!
//! ```text
//! bytes:    u32 LE length, bytes
//! optional: u8 0, or u8 1 and bytes
//! ```

pub(crate) fn length(length: usize) -> Result<[u8; 4], String> {
    let length = u32::try_from(length).map_err(|_| "a part of a request is larger than 4 GiB")?;
    Ok(length.to_le_bytes())
}

pub(crate) fn put(record: &mut Vec<u8>, bytes: &[u8]) -> Result<(), String> {
    record.extend_from_slice(&length(bytes.len())?);
    record.extend_from_slice(bytes);
    Ok(())
}

pub(crate) fn put_optional(record: &mut Vec<u8>, bytes: Option<&[u8]>) -> Result<(), String> {
    record.push(bytes.is_some().into());
    bytes.map_or(Ok(()), |bytes| put(record, bytes))
}

pub(crate) fn take_length(rest: &mut &[u8]) -> Option<u32> {
    let (length, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_le_bytes(*length))
}

pub(crate) fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(rest)? as usize;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

pub(crate) fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take(rest)?).ok()
}

pub(crate) fn take_optional<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (flag, after) = rest.split_first()?;
    *rest = after;
    match flag {
        0 => Some(None),
        1 => take(rest).map(Some),
        _ => None,
    }
}
