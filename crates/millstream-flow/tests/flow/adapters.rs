//! Adapters of sources hand on what the source inside says of itself.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_flow::SourceExt;
use millstream_flow::codec;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::poller::Io;
use millstream_flow::source::{Partition, Position, Source};

/// A source that says something of its own about everything that has a default.
struct Marked;

impl Source<Frames> for Marked {
    fn describe(&self) -> String {
        "marked".to_owned()
    }
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        Ok(vec!["fixed".to_owned()])
    }
    fn partitions_for(&self, workers: usize) -> Result<Vec<String>, Cause> {
        Ok(vec![format!("for {workers}")])
    }
    fn inputs(&self) -> Vec<PathBuf> {
        vec!["input".into()]
    }
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        (name, saved) == ("new", "old")
    }
    fn batch_size_max(&self) -> Option<usize> {
        Some(5)
    }
    fn open(
        &self,
        _: usize,
        _: Option<Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        Err("nobody reads it".into())
    }
}

fn check<B>(adapter: &str, source: &impl Source<B>) {
    assert_eq!(source.describe(), "marked", "{adapter}");
    assert_eq!(source.partitions().unwrap(), ["fixed"], "{adapter}");
    assert_eq!(source.partitions_for(3).unwrap(), ["for 3"], "{adapter}");
    assert_eq!(source.inputs(), [PathBuf::from("input")], "{adapter}");
    assert!(source.is_same_partition("new", "old"), "{adapter}");
    assert!(!source.is_same_partition("old", "old"), "{adapter}");
    assert_eq!(source.batch_size_max(), Some(5), "{adapter}");
}

#[test]
fn every_adapter_hands_on_every_verb() {
    check("none", &Marked);
    check("box", &(Box::new(Marked) as Box<dyn Source<Frames>>));
    check("arc", &(Arc::new(Marked) as Arc<dyn Source<Frames>>));
    check("batch_size", &Marked.batch_size(7));
    check("decode", &codec::decode(Marked, codec::text));
    check("both", &codec::decode(Marked.batch_size(7), codec::text));
}
