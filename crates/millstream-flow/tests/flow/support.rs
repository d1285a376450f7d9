//! Shared parts of the tests: a watchdog, listeners on free ports, clients, failing sinks.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::metrics::Report;
use millstream_flow::sink::{Sink, Writer};
use millstream_flow::tcp::{TcpSource, listen};
use millstream_flow::{Flow, FlowError, Framing, Options, Running, framing};

/// Far longer than any test takes: a flow that has not ended by then hangs.
pub const WATCHDOG: Duration = Duration::from_secs(300);

/// Waits for the end of a flow; one that hangs fails the test.
pub fn finish(running: Running) -> Result<Report, FlowError> {
    if !running.ended_within(WATCHDOG) {
        // Dropping it would wait forever.
        std::mem::forget(running);
        panic!("the flow hangs");
    }
    running.wait()
}

/// Runs a flow with a number of workers.
pub fn run(flow: &Flow, workers: usize) -> Result<Report, FlowError> {
    finish(flow.start(Options::workers(workers)).expect("it starts"))
}

/// Returns the message of a flow that must fail.
pub fn failure(flow: &Flow, workers: usize) -> String {
    match run(flow, workers) {
        Ok(_) => panic!("the flow ended well with {workers} workers"),
        Err(error) => format!("{error:?}"),
    }
}

/// Pseudo-random numbers from a seed (xorshift64*, Vigna 2016).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    /// A number below `limit`.
    pub fn below(&mut self, limit: i64) -> i64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as i64) % limit
    }
}

/// The outputs of each key, in order.
pub fn by_key<K: Ord, V>(outputs: Vec<(K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut keys: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in outputs {
        keys.entry(key).or_default().push(value);
    }
    keys
}

/// A listener on a free port, and the channel that reports its address.
pub fn listener() -> (TcpSource, Receiver<SocketAddr>) {
    let (tell, told) = channel();
    let source = listen("127.0.0.1:0").on_bound(move |address| tell.send(address).unwrap());
    (source, told)
}

pub fn address(told: &Receiver<SocketAddr>) -> SocketAddr {
    told.recv_timeout(WATCHDOG).expect("the flow listens")
}

pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(work)
}

pub fn wait(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

pub fn framed<P: AsRef<[u8]>>(framing: &Framing, payloads: impl IntoIterator<Item = P>) -> Vec<u8> {
    let mut stream = Vec::new();
    for payload in payloads {
        framing::encode(framing, payload.as_ref(), &mut stream).unwrap();
    }
    stream
}

/// Connects, writes everything and closes.
pub fn send(to: SocketAddr, bytes: &[u8]) {
    TcpStream::connect(to).unwrap().write_all(bytes).unwrap();
}

/// Accepts one connection and reads it to its end.
pub fn receive_one(server: &TcpListener) -> Vec<u8> {
    let (mut stream, _) = server.accept().unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns the frames of a whole stream.
pub fn cut(framing: Framing, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut cutter = framing::Cutter::new(framing, 1 << 20);
    let mut spans = Vec::new();
    let used = cutter.cut(bytes, 0, &mut spans).unwrap();
    assert_eq!(used, bytes.len(), "only whole frames");
    spans
        .iter()
        .map(|&(start, end)| bytes[start as usize..end as usize].to_vec())
        .collect()
}

/// Runs an ignored test of this program as a separate process.
pub fn in_own_process(test: &str) -> Output {
    in_own_process_with(test, |_| {})
}

/// The same, after `configure` has changed the command.
pub fn in_own_process_with(test: &str, configure: impl FnOnce(&mut Command)) -> Output {
    let mut command = own_process(test);
    configure(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "no test {test}: {output:?}"
    );
    output
}

/// Starts an ignored test of this program as a separate process, which may be killed. `configure` changes the command.
pub fn start_own_process(test: &str, configure: impl FnOnce(&mut Command)) -> Child {
    let mut command = own_process(test);
    configure(&mut command);
    command.spawn().unwrap()
}

fn own_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]);
    command
}

/// A sink that fails at its first batch.
pub struct FullDisk;

impl<T: 'static> Sink<Vec<T>> for FullDisk {
    fn describe(&self) -> String {
        "a full disk".to_owned()
    }
    fn open(&self, _: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Vec<T>>>, Cause> {
        Ok(Box::new(FullDisk))
    }
}

impl<T> Writer<Vec<T>> for FullDisk {
    fn write_batch(&mut self, _: &mut Vec<T>) -> Result<(), Cause> {
        Err("the disk is full".into())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}

/// Writes the log to standard error.
pub fn show_log() {
    tracing_subscriber::fmt()
        .without_time()
        .with_ansi(false)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}
