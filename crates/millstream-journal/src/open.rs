//! Opening: find out which processes have the journal open, recover if there are none, and join.
//!
//! Every opening that may write shares a lock on the control file until it has the lock of a writer's slot, which says
//! the same. The opening that can have the lock on the control file exclusively, while no slot is locked, is the first
//! one, and recovers. An exclusive opening keeps it. Readers take no lock, since writing does not conflict with
//! reading.

use std::io;
use std::time::Duration;

use crate::copies::identity::{self, Identity};
use crate::copies::term;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::control::Control;
use crate::format::files;
use crate::options::Options;
use crate::read::cursor_file;
use crate::recover;
use crate::storage::{Access, Hold, Storage};

/// An opening and the lock that prevents a recovery by others.
pub(crate) struct Opening<S: Storage> {
    pub core: Core<S>,
    pub lock: Option<S::Lock>,
}

/// Open the journal in `storage`.
pub(crate) fn open<S: Storage>(storage: S, options: Options) -> Result<Opening<S>> {
    let opened = take_part(storage.clone(), options);
    // The result is worthless if a file could not be read, or a store failed.
    if let Some(fault) = storage.fault() {
        return Err(fault.into());
    }
    if let Ok(opened) = &opened {
        opened.core.check()?;
    }
    opened
}

fn take_part<S: Storage>(storage: S, options: Options) -> Result<Opening<S>> {
    options.check()?;
    if options.read_only {
        read(storage, options)
    } else {
        open_to_write(storage, options)
    }
}

fn open_to_write<S: Storage>(storage: S, mut options: Options) -> Result<Opening<S>> {
    prepare(&storage, &options)?;
    let start = options.host.monotonic();
    let mut pause = Duration::from_micros(100);
    loop {
        let lock = |hold| {
            storage
                .lock(files::CONTROL, hold)
                .map_err(|source| failed("lock", &storage, source))
        };
        if let Some(alone) = lock(Hold::Exclusive)? {
            if !files::has_writer(&storage).map_err(|source| failed("lock", &storage, source))? {
                recover(&storage, &options)?;
                // The journal exists now, and the next round would refuse it.
                options.create_new = false;
                if options.exclusive {
                    return taken_over(storage, options, alone);
                }
            }
            // A process that opens the journal in between recovers again, which changes nothing.
            drop(alone);
        }
        if options.create_new {
            // The process that has it open has created it.
            return Err(Error::Exists {
                path: storage.path(""),
            });
        }
        if !options.exclusive
            && let Some(shared) = lock(Hold::Shared)?
            && let Some(control) = Control::open(&storage, Access::Write)?
            && control.is_ready(options.host.boot())
        {
            let segment_bytes = control.segment_bytes();
            let core = Core::new(storage, options, Some(control), None, segment_bytes)?;
            return Ok(Opening {
                core,
                lock: Some(shared),
            });
        }
        let waited = options.host.monotonic().saturating_sub(start);
        refuse(&storage, &options, waited)?;
        wait(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// How long a lock may be held by mistake: a process that starts another one shares its locks with it until that
/// executes its program, and a process that has just closed the journal may still seem to have it open.
const FORKING: Duration = Duration::from_secs(1);

/// Reports that another opening excludes this one, once that is certain to last.
fn refuse<S: Storage>(storage: &S, options: &Options, waited: Duration) -> Result<()> {
    let owner = Control::open(storage, Access::Read)?.map_or(0, |control| control.owner());
    let why = match (options.exclusive, owner) {
        (_, 1..) if waited > FORKING => {
            format!("process {owner} has the journal open exclusively")
        }
        (true, 0) if waited > FORKING => "the journal is open in another process, or twice in this one, and cannot be opened exclusively".to_owned(),
        (false, 0) if waited > options.busy_timeout => "another process has been recovering the journal for too long".to_owned(),
        _ => return Ok(()),
    };
    Err(Error::Locked {
        path: storage.path(""),
        why,
    })
}

fn prepare<S: Storage>(storage: &S, options: &Options) -> Result<()> {
    let found = storage.list("");
    let missing = matches!(&found, Err(error) if error.kind() == io::ErrorKind::NotFound);
    if missing && !options.create {
        return Err(Error::NotFound {
            path: storage.path(""),
        });
    }
    recover::check_names(storage)?;
    if let Ok(names) = found
        && !options.create
        && !names
            .iter()
            .any(|name| crate::format::segment::number(name).is_some())
    {
        return Err(Error::NotFound {
            path: storage.path(""),
        });
    }
    storage
        .prepare()
        .map_err(|source| failed("make", storage, source))
}

fn taken_over<S: Storage>(storage: S, options: Options, alone: S::Lock) -> Result<Opening<S>> {
    let control = Control::create(&storage)?;
    control.set_owner(std::process::id());
    let segment_bytes = control.segment_bytes();
    let core = Core::new(storage, options, Some(control), None, segment_bytes)?;
    Ok(Opening {
        core,
        lock: Some(alone),
    })
}

/// Plan and act, alone.
fn recover<S: Storage>(storage: &S, options: &Options) -> Result<()> {
    let left = Control::open(storage, Access::Read)?;
    let plan = recover::plan(storage, left.as_ref(), options)?;
    drop(left);
    if options.create_new && !plan.is_new() {
        return Err(Error::Exists {
            path: storage.path(""),
        });
    }
    if plan.is_new() {
        // Nothing is acknowledged in a directory that a loss of power could take away.
        storage
            .sync_entry()
            .map_err(|source| failed("sync the entry of", storage, source))?;
    }
    let control = Control::create(storage)?;
    control.begin_recovery();
    check(storage, &control)?;
    if plan.is_new() {
        // Before the first segment, so that no journal is ever without. One that is there belongs to an attempt that
        // failed.
        let identity = options.identity;
        let identity = identity.unwrap_or_else(|| Identity::new(None, &options.host));
        identity::write(storage, identity)?;
    }
    // A sync that fails now must be known to the next recovery.
    recover::act(storage, &plan, options)
        .and_then(|()| cursor_file::roll_back(storage, plan.facts.tail_segment))
        .and_then(|()| check(storage, &control))
        .inspect_err(|_| control.poison())?;
    control.end_recovery(&plan.facts, storage.mount());
    if term::leadership(storage)?.superseded_by.is_some() {
        control.supersede();
    }
    check(storage, &control)
}

/// An error if the file system has failed under what was done so far.
fn check<S: Storage>(storage: &S, control: &Control<S::Region>) -> Result<()> {
    match control.fault().or_else(|| storage.fault()) {
        Some(fault) => Err(fault.into()),
        None => Ok(()),
    }
}

/// Open for reading: beside those that write, or as a recovery would leave the journal.
fn read<S: Storage>(storage: S, options: Options) -> Result<Opening<S>> {
    if let Some(control) = Control::open(&storage, Access::Read)?
        && control.is_live(&storage, options.host.boot())
    {
        let Some(known) = recover::agree(&storage, &control)? else {
            return planned(storage, options, Some(&control));
        };
        let segment_bytes = control.segment_bytes();
        let core =
            Core::new(storage, options, Some(control), None, segment_bytes)?.with_confirmed(known);
        // A format that is too new, or a tail that is missing, is an error now and not at the first record.
        core.tail_open()?;
        return Ok(Opening { core, lock: None });
    }
    planned(storage, options, None)
}

/// Open for reading what a recovery would leave.
fn planned<S: Storage>(
    storage: S,
    options: Options,
    left: Option<&Control<S::Region>>,
) -> Result<Opening<S>> {
    let plan = recover::plan(&storage, left, &options)?;
    if plan.is_new() {
        return Err(Error::NotFound {
            path: storage.path(""),
        });
    }
    let segment_bytes = plan.facts.segment_bytes;
    let core = Core::new(storage, options, None, Some(plan), segment_bytes)?;
    Ok(Opening { core, lock: None })
}

fn failed<S: Storage>(verb: &'static str, storage: &S, source: io::Error) -> Error {
    Error::Io {
        verb,
        path: storage.path(""),
        source,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when another process has recovered or gone"
)]
fn wait(pause: Duration) {
    std::thread::sleep(pause);
}
