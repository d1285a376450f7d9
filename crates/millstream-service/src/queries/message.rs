//! The messages between a client and a service with queries: JSON after its length, 4 bytes with the most significant
//! first.

use std::io::{Error, ErrorKind, Read, Result, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fault::{Arguments, Fault, QueryError};

/// The version of the messages.
pub(super) const VERSION: u64 = 1;
/// The largest message.
const BYTES_MAX: u32 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub version: u64,
    /// The name of the query; empty for the only one.
    pub query: String,
    pub arguments: Arguments,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reply {
    Result(Value),
    Fault(Fault, String),
}

impl Reply {
    pub fn of(answered: std::result::Result<Value, QueryError>) -> Self {
        match answered {
            Ok(value) => Reply::Result(value),
            Err(QueryError { fault, reason }) => Reply::Fault(fault, reason),
        }
    }
}

pub(super) fn write(out: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).ok();
    let Some(length) = length.filter(|length| *length <= BYTES_MAX) else {
        let line = format!(
            "{} bytes, a message of a query has {BYTES_MAX} at most",
            text.len()
        );
        return Err(Error::new(ErrorKind::InvalidData, line));
    };
    out.write_all(&length.to_be_bytes())?;
    out.write_all(&text)?;
    out.flush()
}

pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > BYTES_MAX {
        let line = format!("{length} bytes, a message of a query has {BYTES_MAX} at most");
        return Err(Error::new(ErrorKind::InvalidData, line));
    }
    let mut text = Vec::new();
    // Memory grows with what arrives, not with what is announced.
    from.take(length.into()).read_to_end(&mut text)?;
    if text.len() < length as usize {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_these_bytes() {
        let mut out = Vec::new();
        let request = Request {
            version: VERSION,
            query: "total".to_owned(),
            arguments: Arguments::new(),
        };
        write(&mut out, &request).unwrap();
        write(&mut out, &Reply::Result(Value::from(7))).unwrap();
        write(&mut out, &Reply::Fault(Fault::Late, "x".to_owned())).unwrap();
        let bytes = [
            &b"\0\0\0\x2c{\"version\":1,\"query\":\"total\",\"arguments\":{}}"[..],
            b"\0\0\0\x0c{\"result\":7}",
            b"\0\0\0\x16{\"fault\":[\"late\",\"x\"]}",
        ]
        .concat();
        assert_eq!(String::from_utf8(out), String::from_utf8(bytes.clone()));
        let mut rest = &bytes[..];
        assert_eq!(read::<Request>(&mut rest).unwrap().query, "total");
        for cut in 0..16 {
            assert!(read::<Reply>(&mut &rest[..cut]).is_err(), "{cut}");
        }
        assert!(read::<Reply>(&mut &b"\xff\0\0\0"[..]).is_err());
    }
}
