//! What a connection is for: the fields of CALL.

use millstream_link::LinkError;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) purpose: Purpose,
    /// The process that calls.
    pub(super) from: usize,
    /// The process that it means to call.
    pub(super) to: usize,
    pub(super) processes: usize,
}

/// The bytes of a call: run (0 for a control link), from, to, processes.
const CALL_BYTES: usize = 32;

impl Call {
    pub(super) fn body(&self) -> [u8; CALL_BYTES] {
        let run = match self.purpose {
            Purpose::Control => 0,
            Purpose::Data { run } => run,
        };
        let mut out = [0; CALL_BYTES];
        let fields = [run, self.from as u64, self.to as u64, self.processes as u64];
        for (field, number) in out.chunks_exact_mut(8).zip(fields) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        out
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, LinkError> {
        let malformed = || LinkError::protocol("a call is not as it should be");
        if body.len() != CALL_BYTES {
            return Err(malformed());
        }
        let mut fields = body.chunks_exact(8).map(|field| {
            let mut number = [0; 8];
            number.copy_from_slice(field);
            u64::from_le_bytes(number)
        });
        let mut next = || fields.next().ok_or_else(malformed);
        Ok(Call {
            purpose: match next()? {
                0 => Purpose::Control,
                run => Purpose::Data { run },
            },
            from: next()? as usize,
            to: next()? as usize,
            processes: next()? as usize,
        })
    }

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
    use super::*;

    #[test]
    fn a_call_is_read_as_written_and_checked() {
        let call = Call {
            purpose: Purpose::Data { run: 9 },
            from: 2,
            to: 1,
            processes: 3,
        };
        assert_eq!(Call::read(&call.body()).unwrap(), call);
        assert!(Call::read(&call.body()[1..]).is_err());
        assert_eq!(call.check(1, 3), Ok(()));
        assert!(call.check(1, 4).unwrap_err().contains("one of 3"));
        assert!(call.check(0, 3).unwrap_err().contains("mixed up"));
        let control = Call {
            purpose: Purpose::Control,
            ..call
        };
        assert!(control.check(1, 3).unwrap_err().contains("coordinate"));
        let same = Call { from: 1, ..call };
        assert!(same.check(1, 3).unwrap_err().contains("one number"));
    }
}
