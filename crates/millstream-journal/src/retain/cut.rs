//! Removing records from the end, as a sink does when its flow resumes from an earlier position.
//!
//! A cut can change several files, and a loss of power between two of them must not leave a journal with a gap. So the
//! intent is written first, in a file of its own; a recovery that finds it repeats the cut.

use std::sync::Arc;

use crate::core::{Core, SegmentOf};
use crate::error::{Error, Result};
use crate::format::{files, index};
use crate::read::cursor_file;
use crate::recover::{self, CutIntent};
use crate::storage::Storage;

/// Drops the records from `sequence` on. Returns whether there were any.
///
/// All records before are durable, and the caller holds the append lock, and the segment `tail`, of which it keeps one
/// reference; the writer must move to the new last segment afterwards. Bodies are cleared in the segment in which the
/// cut begins, so no reader may hold it.
pub(crate) fn cut<S: Storage>(
    core: &Arc<Core<S>>,
    sequence: u64,
    tail: &SegmentOf<S>,
) -> Result<bool> {
    core.check_sequence(sequence)?;
    if sequence == core.next()? {
        return Ok(false);
    }
    let intent = intent(core, sequence)?;
    let owners = usize::from(tail.number() == intent.number);
    core.exclusively(intent.number, owners, || carry_out(core, &intent))?;
    core.forget_from(intent.number + 1);
    Ok(true)
}

/// Writes the intent, and does it.
fn carry_out<S: Storage>(core: &Core<S>, intent: &CutIntent) -> Result<()> {
    let draft = format!("draft-cut-{:016x}", core.options.host.random());
    let failed = |source| Error::Io {
        verb: "create",
        path: core.storage.path(files::CUT),
        source,
    };
    intent.write(&core.storage, &draft).map_err(failed)?;
    let control = core.control()?;
    let last = files::segments(&core.storage)?.last().copied().unwrap_or(0);
    let plan = intent.plan(
        core.first_segment(),
        last,
        core.segment_bytes,
        core.options.host.boot(),
        false,
    );
    control.begin_sync();
    // Half a cut: the next opening ends it.
    recover::act(&core.storage, &plan, &core.options)
        .and_then(|()| cursor_file::roll_back(&core.storage, plan.facts.tail_segment))
        .inspect_err(|_| control.poison())?;
    control.end_sync();
    control.move_back(&plan.facts);
    Ok(())
}

fn intent<S: Storage>(core: &Core<S>, sequence: u64) -> Result<CutIntent> {
    let segment = core.locate(sequence)?;
    let number = segment.number();
    let base = core.base(&segment)?;
    let mark = core.find(&segment, sequence)?;
    // A cut cannot be undone, so it must not depend on a word that may be damaged.
    let traced = index::trace(&segment, base, mark).ok_or_else(|| {
        let what = "the frames before the cut do not match their checksums";
        core.damage(&segment, segment.data_start(), what)
    })?;
    let before = || {
        if number > core.first_segment() {
            Ok(core.ended(&*core.segment(number - 1)?)?.1)
        } else {
            core.start_time_ns()
        }
    };
    let latest_time_ns = index::latest_to(&segment, base, mark, traced, before)?;
    Ok(CutIntent {
        number,
        base,
        mark,
        latest_time_ns,
    })
}
