//! Timers that an earlier version has recorded by number.

use super::{Entry, Schedule};
use crate::error::ServiceError;

/// The names of the timers that a schedule records by number, in the order of the numbers; `None` when there are none.
///
/// `timers` are those of the component, with their periods in ns, in the order in which that version counted them. They are considered
/// the same set if there are as many as were recorded and the ticks of each fall on multiples of its period. `given` are names from the
/// user.
pub(crate) fn old_timers(
    schedule: &Schedule,
    timers: &[(&str, i64)],
    given: Option<&[String]>,
) -> Result<Option<Vec<String>>, ServiceError> {
    // Ticks by number: all, and those on the grid of the timer that has the number now.
    let mut ticks: Vec<(u64, u64)> = Vec::new();
    let mut reader = schedule.journal.reader()?;
    while let Some(record) = reader.next()? {
        if let Ok(Entry::Timer { timer, time_ns }) = Entry::unpack(record.body) {
            let timer = timer as usize;
            ticks.resize(ticks.len().max(timer + 1), (0, 0));
            let on_grid = timers
                .get(timer)
                .is_some_and(|(_, period_ns)| time_ns % period_ns == 0);
            ticks[timer].0 += 1;
            ticks[timer].1 += u64::from(on_grid);
        }
    }
    if ticks.is_empty() {
        return Ok(None);
    }
    let names = |timers: &[(&str, i64)]| {
        let names: Vec<String> = timers.iter().map(|(name, _)| (*name).to_owned()).collect();
        names
    };
    if let Some(given) = given.filter(|given| given.len() >= ticks.len()) {
        return Ok(Some(given.to_vec()));
    }
    let same_grids = ticks.iter().all(|(all, on_grid)| on_grid * 2 >= *all);
    if timers.len() == ticks.len() && same_grids {
        return Ok(Some(names(timers)));
    }
    let recorded = match same_grids {
        _ if timers.len() != ticks.len() => format!("0 to {}", ticks.len() - 1),
        _ => "with other periods".to_owned(),
    };
    Err(ServiceError::OldTimers {
        schedule: schedule.name.clone(),
        recorded,
        now: match timers {
            [] => "none".to_owned(),
            timers => names(timers).join(", "),
        },
    })
}
