//! The result of a verb that prints records or lines.
//!
//! A reader of the output that closes it early ends the verb without an error: [`End::ReaderGone`].

use millstream_flow::FlowError;
use millstream_flow::error::Cause;
use millstream_journal::Error;
use millstream_replication::ReplicationError;

use crate::failure::Failure;

/// Why a verb ends early.
#[derive(Debug)]
pub(crate) enum End {
    /// The reader of the output closed it: no failure.
    ReaderGone,
    /// The verb failed.
    Failed(Failure),
}

pub(crate) type Outcome<T = ()> = Result<T, End>;

/// The result for the program: a closed output is a success.
pub(crate) fn finish(outcome: Outcome) -> Result<(), Failure> {
    match outcome {
        Ok(()) | Err(End::ReaderGone) => Ok(()),
        Err(End::Failed(failure)) => Err(failure),
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        End::Failed(failure)
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        End::Failed(Failure::failed(error.with_remedy()))
    }
}

impl From<FlowError> for End {
    fn from(error: FlowError) -> Self {
        End::Failed(Failure::failed(error))
    }
}

impl From<ReplicationError> for End {
    fn from(error: ReplicationError) -> Self {
        End::Failed(match error {
            error if error.is_usage() => Failure::usage(error),
            error => Failure::failed(error),
        })
    }
}

impl From<Cause> for End {
    fn from(cause: Cause) -> Self {
        End::Failed(Failure::failed(cause))
    }
}

impl From<String> for End {
    fn from(message: String) -> Self {
        End::Failed(Failure::failed(message))
    }
}
