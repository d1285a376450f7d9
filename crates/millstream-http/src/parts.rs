//! Parts of records: bytes with their length, and headers.
//!
//! ```text
//! bytes:    u32 LE length, bytes
//! optional: u8 0, or u8 1 and bytes
//! headers:  u32 LE count, then for each: name and value, which are bytes
//! ```

use hyper::header::{HeaderName, HeaderValue};

fn length(length: usize) -> Result<[u8; 4], String> {
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

pub(crate) fn put_headers<'a>(
    record: &mut Vec<u8>,
    headers: impl ExactSizeIterator<Item = (&'a str, &'a [u8])>,
) -> Result<(), String> {
    record.extend_from_slice(&length(headers.len())?);
    for (name, value) in headers {
        put(record, name.as_bytes())?;
        put(record, value)?;
    }
    Ok(())
}

/// Takes headers, each value by `value`.
pub(crate) fn take_headers<'a, V>(
    rest: &mut &'a [u8],
    value: impl Fn(&mut &'a [u8]) -> Option<V>,
) -> Option<Vec<(&'a str, V)>> {
    let count = take_length(rest)?;
    (0..count)
        .map(|_| Some((take_text(rest)?, value(rest)?)))
        .collect()
}

/// Reads a header that a user has given; those in `own` are set by `owner`. The value may be a secret: no error has it.
pub(crate) fn header(
    name: &str,
    value: &str,
    (owner, own): (&str, &[HeaderName]),
) -> Result<(HeaderName, HeaderValue), String> {
    let parsed: HeaderName = name
        .parse()
        .map_err(|_| format!("no name of a header: \"{name}\""))?;
    if own.contains(&parsed) {
        return Err(format!("the header {name} is set by the {owner}"));
    }
    let value = HeaderValue::from_str(value).map_err(|_| {
        format!("the value of the header {name} has characters that a header cannot have")
    })?;
    Ok((parsed, value))
}
