//! The browser of records: a page of them from a number, from a time, or at the end.

use std::path::Path;

use millstream_http::pages::{Page, PageRequest};
use millstream_journal::{Error, Journal, Options, Record, chain};
use serde_json::{Value, json};

use crate::sections::journal_figures::JournalSnapshot;
use crate::sections::{json as answer, text_and_hex};

/// The number of records of a page.
const RECORDS_MAX: u64 = 50;
/// The number of bytes of a record that are shown.
const HEAD_BYTES: usize = 512;
/// The number of characters of a decoded record that are shown.
const TEXT_MAX: usize = 2_000;

/// Decodes records: `None` for one that is shown as bytes.
pub type Decoder = Box<dyn FnMut(&Record<'_>) -> Option<String>>;
/// Makes a decoder of the records of a journal.
#[doc(hidden)] // For the other crates of Millstream.
pub type Decode = Box<dyn Fn(&Journal) -> Decoder + Send + Sync>;

/// `{first, next, from, records: [...]}`, or `{error}`: the records from `from`, from `time_ms`, or the last ones.
pub(super) fn page(
    journal: &JournalSnapshot,
    request: &PageRequest<'_>,
    decode: Option<&Decode>,
) -> Page {
    let number = |name: &str| request.parameter(name).and_then(|text| text.parse().ok());
    let read = read(
        Path::new(&journal.path),
        number("from"),
        number("time_ms"),
        decode,
    );
    answer(&read.unwrap_or_else(|error| json!({"error": chain(&error).to_string()})))
}

fn read(
    path: &Path,
    from: Option<u64>,
    time_ms: Option<u64>,
    decode: Option<&Decode>,
) -> Result<Value, Error> {
    let journal = Journal::open(path, Options::read_only())?;
    let mut reader = journal.reader()?;
    let first = journal.first()?;
    let next = journal.next()?;
    match (from, time_ms) {
        // A number that is not there is the nearest one that is.
        (Some(from), _) => reader.seek(from.clamp(first, next))?,
        (None, Some(time_ms)) => reader.seek_time(time_ms.saturating_mul(1_000_000))?,
        (None, None) => reader.seek(next.saturating_sub(RECORDS_MAX).max(first))?,
    }
    let from = reader.position();
    let mut decoder = decode.map(|decode| decode(&journal));
    let mut records = Vec::new();
    while reader.position() < next && reader.position() < from + RECORDS_MAX {
        let Some(record) = reader.next()? else {
            break;
        };
        let decoded = decoder.as_mut().and_then(|decoder| decoder(&record));
        records.push(shown(&record, decoded));
    }
    Ok(json!({"first": first, "next": next, "from": from, "records": records}))
}

fn shown(record: &Record<'_>, decoded: Option<String>) -> Value {
    let head = &record.body[..record.body.len().min(HEAD_BYTES)];
    let whole = head.len() == record.body.len();
    let (text, hex) = text_and_hex(head, whole);
    let decoded = decoded.map(|text| text.chars().take(TEXT_MAX).collect::<String>());
    json!({
        "sequence": record.sequence,
        "time_ms": record.time_ns / 1_000_000,
        "bytes": record.body.len(),
        "text": text,
        "hex": hex,
        "decoded": decoded,
        "is_whole": whole,
    })
}
