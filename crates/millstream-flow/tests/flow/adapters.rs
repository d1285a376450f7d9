//! Adapters of sources pass on the properties of the source inside.

use std::sync::Arc;

use millstream_flow::SourceExt;
use millstream_flow::codec;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::input::Input;
use millstream_flow::poller::Io;
use millstream_flow::source::{Partition, Position, Resumable, Source, SourceSettings};

/// A source whose methods differ from all defaults.
struct Marked;

impl Source<Frames> for Marked {
    fn describe(&self) -> String {
        "marked".to_owned()
    }
    fn partitions(&self, workers: usize) -> Result<Vec<String>, Cause> {
        Ok(vec![format!("for {workers}")])
    }
    fn open(
        &self,
        _: usize,
        _: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        Err("nobody reads it".into())
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            inputs: vec![Input::File("input".into())],
            batch_size_max: Some(5),
            local: true,
            ..SourceSettings::default()
        }
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
}

impl Resumable for Marked {
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        (name, saved) == ("new", "old")
    }
}

fn check<B>(adapter: &str, source: &impl Source<B>) {
    assert_eq!(source.describe(), "marked", "{adapter}");
    assert_eq!(source.partitions(3).unwrap(), ["for 3"], "{adapter}");
    let settings = source.settings();
    assert_eq!(settings.inputs, [Input::File("input".into())], "{adapter}");
    assert_eq!(settings.batch_size_max, Some(5), "{adapter}");
    assert!(settings.local, "{adapter}");
    let resumable = source.resumable().expect(adapter);
    assert!(resumable.is_same_partition("new", "old"), "{adapter}");
    assert!(!resumable.is_same_partition("old", "old"), "{adapter}");
}

#[test]
fn every_adapter_passes_on_every_method() {
    check("none", &Marked);
    check("box", &(Box::new(Marked) as Box<dyn Source<Frames>>));
    check("arc", &(Arc::new(Marked) as Arc<dyn Source<Frames>>));
    check("batch_size", &Marked.batch_size(7));
    check("decode", &codec::decode(Marked, codec::text));
    check("both", &codec::decode(Marked.batch_size(7), codec::text));
}
