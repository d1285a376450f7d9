//! Adapters of sources and sinks pass on the properties of what is inside. That none forgets a method is checked by the
//! lint `clippy::missing_trait_methods`.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_flow::SourceExt;
use millstream_flow::batch::Kind;
use millstream_flow::cluster::Membership;
use millstream_flow::codec;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::files;
use millstream_flow::framing::Frames;
use millstream_flow::input::Input;
use millstream_flow::poller::Io;
use millstream_flow::sink::{
    Forwarding, Output, OutputRun, Refused, Sink, Token, Transactional, Writer,
};
use millstream_flow::source::{Growing, Partition, Position, Resumable, Source, SourceSettings};

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
    fn growing(&self) -> Option<&dyn Growing> {
        Some(self)
    }
    fn over(&self, frames: Arc<dyn Source<Frames>>, _: Kind) -> Option<Arc<dyn Source<Frames>>> {
        Some(frames)
    }
}

impl Resumable for Marked {
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        (name, saved) == ("new", "old")
    }
}

impl Growing for Marked {
    fn found(&self, known: usize) -> Result<Vec<String>, Cause> {
        Ok(vec![format!("after {known}")])
    }
}

fn check<B: 'static>(adapter: &str, source: &impl Source<B>) {
    assert_eq!(source.describe(), "marked", "{adapter}");
    assert_eq!(source.partitions(3).unwrap(), ["for 3"], "{adapter}");
    let settings = source.settings();
    assert_eq!(settings.inputs, [Input::File("input".into())], "{adapter}");
    assert_eq!(settings.batch_size_max, Some(5), "{adapter}");
    assert!(settings.local, "{adapter}");
    let resumable = source.resumable().expect(adapter);
    assert!(resumable.is_same_partition("new", "old"), "{adapter}");
    assert!(!resumable.is_same_partition("old", "old"), "{adapter}");
    let growing = source.growing().expect(adapter);
    assert_eq!(growing.found(3).unwrap(), ["after 3"], "{adapter}");
    let over = source.over(Arc::new(Marked), Kind::Bytes).expect(adapter);
    assert_eq!(over.describe(), "marked", "{adapter}");
}

#[test]
fn every_adapter_of_a_source_passes_on_every_method() {
    check("none", &Marked);
    check("box", &(Box::new(Marked) as Box<dyn Source<Frames>>));
    check("arc", &(Arc::new(Marked) as Arc<dyn Source<Frames>>));
    check("batch_size", &Marked.batch_size(7));
    check("decode", &codec::decode(Marked, codec::text));
    check("both", &codec::decode(Marked.batch_size(7), codec::text));
}

/// A sink whose methods differ from all defaults.
struct MarkedSink;

impl<B: 'static> Sink<B> for MarkedSink {
    fn describe(&self) -> String {
        "marked".to_owned()
    }
    fn open(&self, _: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<B>>, Cause> {
        Err("nobody writes it".into())
    }
    fn join(&self, membership: Option<Membership>) -> Option<PathBuf> {
        membership.map(|membership| format!("process {}", membership.process).into())
    }
    fn in_one_process(&self) -> bool {
        true
    }
    fn output(&self, recovery: bool) -> Option<Output> {
        recovery.then(|| Output {
            path: "out".into(),
            sink: 7,
        })
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
    fn forwarding(&self) -> Option<&dyn Forwarding> {
        Some(self)
    }
    fn skip_refused(&self, keeps: bool) -> bool {
        keeps
    }
    fn record_bytes_max(&self) -> Option<usize> {
        Some(9)
    }
}

impl Transactional for MarkedSink {
    fn resume(&self, _: &[Token]) -> Result<Option<Token>, Cause> {
        Ok(None)
    }
    fn identity(&self) -> Option<usize> {
        Some(5)
    }
}

impl Forwarding for MarkedSink {
    fn begin(&self, _: &OutputRun<'_>) -> Result<(), Cause> {
        Ok(())
    }
    fn start(&self) -> Result<(), Cause> {
        Ok(())
    }
    fn has_ended(&self) -> bool {
        true
    }
    fn take_refused(&self) -> Result<(Vec<Refused>, Token), Cause> {
        Ok((Vec::new(), b"marked".to_vec()))
    }
}

fn check_sink<B: 'static>(adapter: &str, sink: &impl Sink<B>) {
    assert_eq!(sink.describe(), "marked", "{adapter}");
    let membership = Membership {
        process: 2,
        processes: 3,
    };
    assert_eq!(sink.join(Some(membership)), Some("process 2".into()));
    assert!(sink.in_one_process(), "{adapter}");
    let output = sink.output(true).expect(adapter);
    assert_eq!((output.path, output.sink), ("out".into(), 7), "{adapter}");
    assert_eq!(sink.output(false), None, "{adapter}");
    let transactional = sink.transactional().expect(adapter);
    assert_eq!(transactional.identity(), Some(5), "{adapter}");
    let forwarding = sink.forwarding().expect(adapter);
    assert_eq!(forwarding.take_refused().unwrap().1, b"marked", "{adapter}");
    assert!(sink.skip_refused(true) && !sink.skip_refused(false));
    assert_eq!(sink.record_bytes_max(), Some(9), "{adapter}");
}

#[test]
fn every_adapter_of_a_sink_passes_on_every_method() {
    let encode = |item: &String, out: &mut Vec<u8>| codec::display(item, out);
    let shared = || Arc::new(MarkedSink) as Arc<dyn Sink<Frames>>;
    check_sink::<Frames>("none", &MarkedSink);
    check_sink("arc", &shared());
    check_sink("encode", &codec::encode(MarkedSink, encode));
    check_sink("both", &codec::encode(shared(), encode));
    let by_key = files::by_key(MarkedSink, String::clone, encode);
    check_sink::<Vec<String>>("by_key", &by_key);
}
