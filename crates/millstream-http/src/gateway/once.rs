//! The header `Idempotency-Key`: a request that is repeated is one call.

use hyper::header::HeaderName;
use hyper::{HeaderMap, StatusCode};
use millstream_flow::error::Cause;
use millstream_journal::{Error, Journal};
use millstream_service::{Calls, Key};
use millstream_wire::{Call, KeyedCall, Record, Schema};

use crate::refusal::Refusal;

/// The key of a request.
pub(super) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// In the answer to a repeated request.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The key of a request, if it has one.
pub(super) fn key_of(headers: &HeaderMap) -> Result<Option<Key>, Refusal> {
    let mut values = headers.get_all(KEY).iter();
    let (Some(value), other) = (values.next(), values.next()) else {
        return Ok(None);
    };
    let key = value.to_str().ok().and_then(|text| Key::new(text).ok());
    if let (Some(key), None) = (key, other) {
        return Ok(Some(key));
    }
    let line = format!(
        "the header Idempotency-Key is one key of 1 to {} visible characters of ASCII",
        Key::BYTES_MAX
    );
    Err(Refusal::new(StatusCode::BAD_REQUEST, line))
}

/// Whether a request for a method of `schema`, with these arguments, is for the call with a key that is the record
/// `sequence`. If another version of the interface has recorded it, the arguments are read with that version. A record
/// that was pruned is taken for the same.
pub(super) fn is_same(
    journal: &Journal,
    sequence: u64,
    method: &str,
    arguments: &[u8],
    schema: &Schema,
) -> Result<bool, Cause> {
    let mut reader = journal.reader()?;
    let record = match reader.read(sequence) {
        Ok(record) => record,
        Err(Error::Pruned { .. }) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let (Some(recorded), Record::Call(_, head, _)) =
        (KeyedCall::read(record.body)?, Record::read(record.body)?)
    else {
        return Ok(false);
    };
    let mut calls = Calls::of(journal);
    let theirs = if head.schema == schema.id() {
        schema
    } else {
        calls.schema(head.schema, sequence)?
    };
    let call = Call::from_json(method, arguments, theirs).and_then(|call| call.contents(theirs));
    Ok(theirs.interface() == schema.interface() && call.is_ok_and(|it| it == recorded.contents))
}
