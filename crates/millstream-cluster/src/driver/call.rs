//! What a connection is for: the fields of CALL.

use serde::{Deserialize, Serialize};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// The control link of a process to process 0.
    Control,
    /// A data link of a run.
    Data {
        /// The id of the run.
        run: u64,
    },
}

/// A request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) purpose: Purpose,
    /// The process that calls.
    pub(super) from: usize,
    /// The process that it means to call.
    pub(super) to: usize,
    pub(super) processes: usize,
}

impl Call {
    /// Whether process `process` of `processes` is the one that is called, by one that may call it.
    pub(super) fn check(&self, process: usize, processes: usize) -> Result<(), String> {
        if self.processes != processes {
            return Err(format!(
                "process {} was started as one of {} processes, process {process} as one of {processes}",
                self.from, self.processes
            ));
        }
        if self.to != process {
            return Err(format!(
                "this is process {process}, and process {} takes it for process {}: the addresses of the processes are mixed up",
                self.from, self.to
            ));
        }
        if self.from <= process || self.from >= processes {
            return Err(format!(
                "process {} does not connect to process {process}: two processes may have been started with one number",
                self.from
            ));
        }
        if self.purpose == Purpose::Control && process != 0 {
            return Err(format!("process {process} does not coordinate the others"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use millstream_link::{decode, encode};

    use super::*;

    #[test]
    fn a_call_is_read_as_written_and_checked() {
        let call = Call {
            purpose: Purpose::Data { run: 9 },
            from: 2,
            to: 1,
            processes: 3,
        };
        let body = encode(&call);
        assert_eq!(body, b"\x94\x81\xa4Data\x91\x09\x02\x01\x03");
        assert_eq!(decode::<Call>(&body).unwrap(), call);
        assert_eq!(call.check(1, 3), Ok(()));
        assert!(call.check(1, 4).unwrap_err().contains("one of 3"));
        assert!(call.check(0, 3).unwrap_err().contains("mixed up"));
        let control = Call {
            purpose: Purpose::Control,
            ..call
        };
        assert_eq!(encode(&control), b"\x94\xa7Control\x02\x01\x03");
        assert!(control.check(1, 3).unwrap_err().contains("coordinate"));
        let same = Call { from: 1, ..call };
        assert!(same.check(1, 3).unwrap_err().contains("one number"));
    }
}
