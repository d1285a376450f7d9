//! The last 15 minutes of named things, one moment a second.
//!
//! Invariant: at most [`MOMENTS_MAX`] moments of at most [`NAMES_MAX`] names, so that memory is bounded.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

/// The number of moments: 15 minutes.
const MOMENTS_MAX: usize = 900;
/// The number of names that have a history; further ones have none.
const NAMES_MAX: usize = 512;

/// The last 15 minutes of things that have `N` values each. What is not known is not a number.
pub(super) struct Tracks<const N: usize> {
    names: [&'static str; N],
    times_ms: VecDeque<u64>,
    values: HashMap<String, VecDeque<[f32; N]>>,
}

impl<const N: usize> Tracks<N> {
    /// Nothing yet; `names` are those of the values.
    pub(super) fn new(names: [&'static str; N]) -> Self {
        Tracks {
            names,
            times_ms: VecDeque::new(),
            values: HashMap::new(),
        }
    }

    /// Adds a moment. A thing that is no more is forgotten.
    pub(super) fn add<'a>(
        &mut self,
        time_ms: u64,
        things: impl IntoIterator<Item = (&'a str, [f32; N])>,
    ) {
        if self.times_ms.len() == MOMENTS_MAX {
            self.times_ms.pop_front();
            for track in self.values.values_mut() {
                track.pop_front();
            }
        }
        let known = self.times_ms.len();
        self.times_ms.push_back(time_ms);
        for (name, values) in things {
            if !self.values.contains_key(name) {
                if self.values.len() >= NAMES_MAX {
                    continue;
                }
                self.values.insert(
                    name.to_owned(),
                    std::iter::repeat_n([f32::NAN; N], known).collect(),
                );
            }
            if let Some(track) = self.values.get_mut(name) {
                track.push_back(values);
            }
        }
        self.values.retain(|_, track| track.len() == known + 1);
    }

    /// Returns the values of one thing: `{times_ms: [...], series: {NAME: [...]}}`, with null for what is not known;
    /// empty for a thing that has no history.
    pub(super) fn of(&self, name: &str) -> Value {
        let track = self.values.get(name);
        let series = self.names.iter().enumerate().map(|(index, name)| {
            // JSON has no number that is none: it becomes null.
            let all: Vec<f32> = track
                .into_iter()
                .flatten()
                .map(|values| values[index])
                .collect();
            ((*name).to_owned(), json!(all))
        });
        let series: serde_json::Map<String, Value> = series.collect();
        match track {
            Some(_) => json!({"times_ms": self.times_ms, "series": series}),
            None => json!({"times_ms": [], "series": series}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_a_new_thing_has_no_past() {
        let mut tracks = Tracks::new(["a"]);
        for time in 0..1000 {
            let late = (time > 990).then_some(("late", [2.0]));
            tracks.add(time, [("all", [time as f32])].into_iter().chain(late));
        }
        let all = tracks.of("all");
        assert_eq!(all["times_ms"].as_array().unwrap().len(), 900);
        assert_eq!(all["series"]["a"][0], json!(100.0));
        let late = tracks.of("late");
        assert_eq!(late["series"]["a"].as_array().unwrap().len(), 900);
        assert_eq!(late["series"]["a"][0], Value::Null);
        assert_eq!(late["series"]["a"][899], json!(2.0));

        tracks.add(1000, [("all", [0.0])]);
        assert_eq!(
            tracks.of("late"),
            json!({"times_ms": [], "series": {"a": []}})
        );
        let many: Vec<String> = (0..2 * NAMES_MAX).map(|name| name.to_string()).collect();
        tracks.add(1001, many.iter().map(|name| (name.as_str(), [0.0])));
        assert_eq!(tracks.values.len(), NAMES_MAX - 1);
    }
}
