//! Asks a service that runs.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::fault::{Arguments, Fault};
use super::message::{Reply, Request, VERSION, read, write};
use crate::error::ServiceError;

/// The longest path of a socket, a few bytes less than the system allows.
const PATH_BYTES_MAX: usize = 100;

/// Asks the component that writes to the journal `output`, and waits for its answer for `limit` at most. An empty name
/// asks the only query of the component.
///
/// # Errors
/// [`ServiceError::Asked`]: no service with queries runs there, it has no such query, or it could not answer.
#[doc(hidden)] // For the other crates of Millstream.
pub fn ask(
    output: &Path,
    query: &str,
    arguments: Arguments,
    limit: Duration,
) -> Result<Value, ServiceError> {
    let fault = |fault, reason: String| ServiceError::Asked {
        output: output.display().to_string(),
        query: query.to_owned(),
        fault,
        reason,
    };
    let request = Request {
        version: VERSION,
        query: query.to_owned(),
        arguments,
    };
    let stream = connect(&socket_beside(output)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => fault(
            Fault::Absent,
            "no service with queries runs on this output".to_owned(),
        ),
        _ => fault(Fault::Absent, error.to_string()),
    })?;
    match exchange(stream, &request, limit) {
        Ok(Reply::Result(value)) => Ok(value),
        Ok(Reply::Fault(kind, reason)) => Err(fault(kind, reason)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(fault(
            Fault::Late,
            format!("the service did not answer within {limit:?}"),
        )),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(fault(
            Fault::Absent,
            "the service ended before it answered".to_owned(),
        )),
        Err(error) => Err(fault(Fault::Failed, error.to_string())),
    }
}

fn exchange(mut stream: UnixStream, request: &Request, limit: Duration) -> io::Result<Reply> {
    let limit = Some(limit.max(Duration::from_millis(1)));
    stream.set_write_timeout(limit)?;
    stream.set_read_timeout(limit)?;
    write(&mut stream, request)?;
    read(&mut stream)
}

/// The socket of the service that writes to `output`: that path with `.queries` appended.
pub(super) fn socket_beside(output: &Path) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(".queries");
    path.into()
}

pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short_path(path, |path| UnixStream::connect(path))
}

/// Calls `work` with the path of a socket, or with a shorter one of the same file: the system limits it.
pub(super) fn with_short_path<T>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return work(path);
    };
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return work(path);
    }
    let folder = File::open(folder)?;
    let short = format!("/proc/self/fd/{}", folder.as_raw_fd());
    work(&Path::new(&short).join(name))
}
