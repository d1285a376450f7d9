//! The saved state of a step as JSON, for programs that read it without the flow.
//!
//! Around the values of a user a step stores structure of its own: windows, timers, items that wait. A commit has words
//! for it ([`StepMark`](crate::checkpoint::StepMark)), by which it is shown with names.
//!
//! ```
//! use millstream_flow::shown::{Shows, state};
//!
//! let shows = Shows { object: &|_, _| None, time: |nanoseconds| format!("{nanoseconds} ns") };
//! let saved = [0x95, 7, 0x91, 5, 0x90, 6, 6]; // 7, with a timer
//! assert_eq!(state(&["timers"], &saved, &shows).unwrap()["state"], 7);
//! ```

use serde_json::{Map, Value, json};

use super::collect::List;
use super::join::{JoinState, Side, Sides, read_values};
use super::window::{OpenWindows, TimedItems, WithWatermark};
use crate::checkpoint::pack;
use crate::error::Cause;
use crate::saved::json;
use crate::saved::raw::{Raw, RawState, read};
use crate::state::{Timer, Waiting, WithTimers, WithTimersCodec};
use crate::time::{BEFORE_ALL, NEVER};

/// How values are shown that are no plain data.
#[derive(Clone, Copy)]
pub struct Shows<'a> {
    /// A value that another language wrote.
    pub object: json::Show<'a>,
    /// A time; nanoseconds since 1970.
    pub time: fn(i64) -> String,
}

/// Converts a state; `None` if it is not MessagePack, or is of another layout.
#[must_use]
pub fn state(layout: &[impl AsRef<str>], bytes: &[u8], shows: &Shows<'_>) -> Option<Value> {
    let Some((word, inner)) = layout.split_first() else {
        return json::state(bytes, shows.object);
    };
    let inner = |raw: &Raw| state(inner, &raw.0, shows).unwrap_or_else(|| json::hex(&raw.0));
    let shown = match word.as_ref() {
        "timers" => with_timers(bytes, shows, inner),
        "turns" => in_turn(bytes, shows, inner),
        "watermark" => with_watermark(bytes, shows, inner),
        aligned @ ("panes" | "groups") => windows(aligned == "panes", bytes, shows, inner),
        "items" => timed_items(bytes, shows, inner),
        "join" => join(bytes, shows),
        "sides" => Sides::read(bytes).map(|sides| {
            let [left, right] = sides.both().map(|side| values(side, shows));
            json!({ "left": left, "right": right })
        }),
        "streams" => streams(bytes, shows),
        "list" => list(bytes, shows),
        "datetimes" => Ok(inner(&without_mark(bytes))),
        _ => return None,
    };
    shown.ok()
}

impl Shows<'_> {
    /// Adds a time to what is shown, unless there is none.
    fn put(&self, name: &str, at: i64, out: &mut Map<String, Value>) {
        if at != NEVER && at != BEFORE_ALL {
            out.insert(name.to_owned(), (self.time)(at).into());
        }
    }

    fn value(&self, raw: &Raw) -> Value {
        json::state(&raw.0, self.object).unwrap_or_else(|| json::hex(&raw.0))
    }

    /// An item with its time.
    fn item(&self, time: i64, value: Value) -> Map<String, Value> {
        let mut item = Map::new();
        self.put("time", time, &mut item);
        item.insert("value".to_owned(), value);
        item
    }
}

fn values(values: &[Raw], shows: &Shows<'_>) -> Value {
    values.iter().map(|value| shows.value(value)).collect()
}

/// A state alone, or with its timers and the end of its life.
fn with_timers(
    bytes: &[u8],
    shows: &Shows<'_>,
    inner: impl Fn(&Raw) -> Value,
) -> Result<Value, Cause> {
    let held: WithTimers<Raw> = read(&WithTimersCodec(RawState), bytes)?;
    let mut out = Map::new();
    let timers: Vec<Value> = held
        .set_timers()
        .map(|timer| match timer {
            Timer::Event(at) => json!({ "event": (shows.time)(at) }),
            Timer::Processing(at) => json!({ "processing": (shows.time)(at) }),
        })
        .collect();
    if !timers.is_empty() {
        out.insert("timers".to_owned(), timers.into());
    }
    let expires = held.expires();
    shows.put("expires", expires.event.min(expires.processing), &mut out);
    Ok(beside(inner(&held.state), out))
}

/// A state alone, or beside what surrounds it.
fn beside(state: Value, mut out: Map<String, Value>) -> Value {
    if out.is_empty() {
        return state;
    }
    out.insert("state".to_owned(), state);
    out.into()
}

fn in_turn(bytes: &[u8], shows: &Shows<'_>, inner: impl Fn(&Raw) -> Value) -> Result<Value, Cause> {
    let held = Waiting::read(bytes)?;
    let items = held.items();
    let waiting = items.map(|item| shows.item(item.time, shows.value(&item.value)).into());
    let waiting: Vec<Value> = waiting.collect();
    let mut out = Map::new();
    if !waiting.is_empty() {
        out.insert("waiting".to_owned(), waiting.into());
    }
    Ok(beside(held.state().map_or(Value::Null, inner), out))
}

fn with_watermark(
    bytes: &[u8],
    shows: &Shows<'_>,
    inner: impl Fn(&Raw) -> Value,
) -> Result<Value, Cause> {
    let (watermark, state) = WithWatermark::read(bytes)?;
    let mut out = Map::new();
    shows.put("watermark", watermark, &mut out);
    Ok(beside(inner(&state), out))
}

fn windows(
    aligned: bool,
    bytes: &[u8],
    shows: &Shows<'_>,
    inner: impl Fn(&Raw) -> Value,
) -> Result<Value, Cause> {
    let names = if aligned {
        ["start", "end"]
    } else {
        ["first", "last"]
    };
    let open = OpenWindows::read(aligned, bytes)?;
    let shown = open.each().into_iter().map(|(start, end, items, acc)| {
        let mut window = Map::new();
        shows.put(names[0], start, &mut window);
        shows.put(names[1], end, &mut window);
        window.insert("items".to_owned(), items.into());
        window.insert("value".to_owned(), inner(acc));
        Value::Object(window)
    });
    Ok(shown.collect())
}

fn timed_items(
    bytes: &[u8],
    shows: &Shows<'_>,
    inner: impl Fn(&Raw) -> Value,
) -> Result<Value, Cause> {
    let held = TimedItems::read(bytes)?;
    let items = held.items().iter();
    Ok(items
        .map(|(time, value)| Value::from(shows.item(*time, inner(value))))
        .collect())
}

fn join(bytes: &[u8], shows: &Shows<'_>) -> Result<Value, Cause> {
    let held = JoinState::read(bytes)?;
    let mut out = Map::new();
    for (name, items) in ["left", "right"].into_iter().zip(held.retained()) {
        let items = items.into_iter();
        let items = items.map(|(time, value)| Value::from(shows.item(time, shows.value(value))));
        out.insert(name.to_owned(), items.collect());
    }
    let waiting = held.waiting().map(|item| {
        let (side, value) = match &item.value {
            Side::Left(value) => ("left", value),
            Side::Right(value) => ("right", value),
        };
        let mut shown = shows.item(item.time, shows.value(value));
        shown.insert("side".to_owned(), side.into());
        Value::from(shown)
    });
    let waiting: Vec<Value> = waiting.collect();
    if !waiting.is_empty() {
        out.insert("waiting".to_owned(), waiting.into());
    }
    shows.put("expires", held.expires(), &mut out);
    Ok(out.into())
}

fn streams(bytes: &[u8], shows: &Shows<'_>) -> Result<Value, Cause> {
    let (expires, streams) = read_values(bytes)?;
    let streams = streams.iter().map(|stream| values(stream, shows));
    let mut out = Map::new();
    shows.put("expires", expires, &mut out);
    Ok(beside(streams.collect(), out))
}

fn list(bytes: &[u8], shows: &Shows<'_>) -> Result<Value, Cause> {
    let (due, list) = List::read(bytes)?;
    let mut out = Map::new();
    shows.put("due", due, &mut out);
    Ok(beside(values(&list, shows), out))
}

/// A value of a window whose times are datetimes in Python, without the mark that says so.
fn without_mark(bytes: &[u8]) -> Raw {
    let mut rest = bytes;
    let marked = pack::take_members(2, &mut rest).and_then(|()| pack::take_flag(&mut rest));
    let is_marked = marked.unwrap_or(false);
    Raw(if is_marked { rest } else { bytes }.to_vec())
}
