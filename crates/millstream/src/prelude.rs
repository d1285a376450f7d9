//! What programs of flows import again and again.
//!
//! A name that a program imports by itself takes precedence: `use millstream::journal::{Journal, Options};` beside the
//! prelude makes `Options` those of journals.
//!
//! ```
//! use millstream::prelude::*;
//!
//! let (flow, out) = (Flow::new("squares"), testing::Collected::new());
//! flow.source("numbers", testing::items(0..4)).map(|n| n * n).sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [0, 1, 4, 9]);
//! # Ok::<(), FlowError>(())
//! ```

#[doc(no_inline)]
pub use crate::flow::error::Cause;
#[doc(no_inline)]
pub use crate::flow::{
    Emit, EventTime, Flow, FlowError, Join, JoinAll, JoinKind, KeyContext, KeyedStream, Logic,
    OnError, Options, Recovery, SourceExt, Stream, Timed, Timer, Window, codec, files, json_lines,
    stdout, testing,
};
