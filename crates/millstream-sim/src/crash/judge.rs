//! The check of a disk after a loss of power, for many of the disks that could be left.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millstream_journal::storage::Simulated;
use millstream_journal::{CursorMode, Error, Journal, Options, Reader};

use super::model::{Judged, Model, broken};
use super::world::{World, failed, read_on};

/// How many disks are tried for each loss of power in the middle of work, and read when their recovery was allowed to
/// end.
const IMAGES: u64 = 16;
/// How often power is lost again during a recovery, at most.
const RELAPSES: u64 = 3;

/// Judge the disks that could be left, and let the world continue with the last of them.
pub fn images(world: &mut World) -> Judged<()> {
    let machine = world.machine.clone();
    let model = world.model.clone();
    for _ in 0..IMAGES {
        let mut left = model.clone();
        world.machine = image(world, &machine, &mut left)?;
        world.model = left;
    }
    Ok(())
}

fn after_power_loss(world: &mut World, machine: &Simulated) -> Simulated {
    world.boot += 1;
    world.tally.images += 1;
    let random = &mut world.random;
    let after = machine.lose_power(&mut |limit| random.below(limit));
    if let Some(bug) = world.kind.bug() {
        bug.spoil(&after);
    }
    after
}

/// Recover from one disk, perhaps not at the first try, and compare with the model. Returns the machine as it was left.
fn image(world: &mut World, before: &Simulated, model: &mut Model) -> Judged<Simulated> {
    let mut machine = after_power_loss(world, before);
    for _ in 0..world.random.below(RELAPSES + 1) {
        let process = machine.process();
        process.kill_after(world.random.below(60));
        let options = world.options();
        let opened = catch_unwind(AssertUnwindSafe(|| {
            world.open(process.clone(), options).map(drop)
        }));
        if process.is_dead() {
            world.tally.relapses += 1;
        } else {
            let opened = opened.or_else(|_| broken(3, "recovery panicked"))?;
            opened.map_err(|error| failed("recover", &error))?;
        }
        machine = after_power_loss(world, &machine);
    }
    let seen = look(world, &machine, model)?;
    let options = world.options();
    let journal = world.open(machine.process(), options);
    let journal = journal.map_err(|error| failed("recover", &error))?;
    let mut reader = journal.reader().map_err(|error| failed("read", &error))?;
    let first = reader.position();
    let next = read_on(&mut reader, model)?;
    seek_times(world, &mut reader, &model.times(first, next))?;
    if seen.is_some_and(|seen| seen != (first, next)) {
        return broken(
            3,
            format!("a reader saw {seen:?}, recovery left {first} to {next}"),
        );
    }
    let promised = journal.next().map_err(|error| failed("ask", &error))?;
    if promised != next {
        return broken(3, format!("{promised} records should be there, {next} are"));
    }
    model.check_after_power_loss(next)?;
    model.fix_first(first)?;
    if !model.is_cursor_lost() {
        check_cursor(&journal, model)?;
    }
    Ok(machine)
}

fn check_cursor(journal: &Journal<Simulated>, model: &Model) -> Judged<()> {
    let cursor = journal
        .cursor("reader", CursorMode::Exclusive)
        .map_err(|error| failed("open a cursor", &error))?;
    let position = cursor
        .position()
        .map_err(|error| failed("read a cursor", &error))?;
    model.check_cursor(position)
}

/// Read without recovering; there may be no journal yet. Returns the first record and the end.
fn look(world: &mut World, machine: &Simulated, model: &mut Model) -> Judged<Option<(u64, u64)>> {
    let options = Options {
        read_only: true,
        create: false,
        ..world.options()
    };
    let journal = match Journal::open_in(machine.process(), options) {
        Err(Error::NotFound { .. }) => return Ok(None),
        opened => opened.map_err(|error| failed("look", &error))?,
    };
    let mut reader = journal.reader().map_err(|error| failed("read", &error))?;
    let first = reader.position();
    let next = read_on(&mut reader, model)?;
    seek_times(world, &mut reader, &model.times(first, next))?;
    Ok(Some((first, next)))
}

/// A search by time finds what a look at all records finds.
fn seek_times(
    world: &mut World,
    reader: &mut Reader<Simulated>,
    times: &[(u64, u64)],
) -> Judged<()> {
    let (Some(&(first, _)), Some(&(last, _))) = (times.first(), times.last()) else {
        return Ok(());
    };
    for _ in 0..3 {
        let some = times[world.random.below(times.len() as u64) as usize].1;
        let time_ns = some.saturating_add(world.random.below(3)).saturating_sub(1);
        let from = times.iter().find(|(_, of_ns)| *of_ns >= time_ns);
        let end = times.iter().rfind(|(_, of_ns)| *of_ns < time_ns);
        let expected = [
            from.map_or(last + 1, |(sequence, _)| *sequence),
            end.map_or(first, |(sequence, _)| sequence + 1),
        ];
        let found = [Reader::seek_time, Reader::seek_time_end].map(|seek| {
            seek(reader, time_ns).map_err(|error| failed("seek", &error))?;
            Ok(reader.position())
        });
        for (found, expected) in found.into_iter().zip(expected) {
            let found = found?;
            if found != expected {
                let what = format!("time {time_ns} is at record {found}, not {expected}");
                return broken(3, what);
            }
        }
    }
    Ok(())
}
