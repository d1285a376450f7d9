//! The stores into a file of the simulated disk since its last sync, and the contents that a loss of power may leave.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::storage::memory;

/// The part of a page that a disk writes at once.
pub(super) const PAGE: u64 = memory::PAGE as u64;
const SECTOR: u64 = 512;

/// The contents of a file on the disk, and all stores since.
#[derive(Default)]
pub(super) struct History {
    /// Shared by the machines that have seen no sync of it since one became the other.
    pub disk: Arc<Vec<u8>>,
    /// By page, the stores since it was synced.
    stores: BTreeMap<u64, Stores>,
    /// Pages of which a sync has failed: as kernels do, this one takes them for clean until they are stored to again.
    given_up: BTreeSet<u64>,
    /// How many syncs have failed.
    pub failures: u64,
}

/// Stores into one page, and all their bytes.
#[derive(Default)]
struct Stores {
    all: Vec<Store>,
    bytes: Vec<u8>,
}

struct Store {
    at: u64,
    /// Where its bytes begin among those of the page.
    start: usize,
    length: usize,
    /// A word is stored at once, other bytes are not.
    word: bool,
}

impl Stores {
    /// Put the first bytes of a store onto the disk, as far as they belong to a part of it.
    fn put(&self, store: &Store, length: usize, disk: &mut [u8], part: &Range<u64>) {
        let from = store.at.max(part.start);
        let to = (store.at + length as u64).min(part.end);
        if from < to {
            let skipped = store.start + (from - store.at) as usize;
            disk[from as usize..to as usize]
                .copy_from_slice(&self.bytes[skipped..][..(to - from) as usize]);
        }
    }
}

impl History {
    /// Of a file that was just synced.
    pub fn of(disk: Arc<Vec<u8>>) -> Self {
        History {
            disk,
            ..Self::default()
        }
    }

    /// Bytes are stored: a word, or what takes several stores of the processor.
    pub fn note(&mut self, at: u64, bytes: &[u8], word: bool) {
        let mut from = 0;
        while from < bytes.len() {
            let page = (at + from as u64) / PAGE;
            let to = bytes.len().min(((page + 1) * PAGE - at) as usize);
            let stores = self.stores.entry(page).or_default();
            stores.all.push(Store {
                at: at + from as u64,
                start: stores.bytes.len(),
                length: to - from,
                word,
            });
            stores.bytes.extend_from_slice(&bytes[from..to]);
            self.given_up.remove(&page);
            from = to;
        }
    }

    /// The pages that these bytes are in are on the disk.
    pub fn sync(&mut self, from: u64, to: u64) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            if self.given_up.contains(&page) {
                continue;
            }
            let Some(stores) = self.stores.remove(&page) else {
                continue;
            };
            let disk = Arc::make_mut(&mut self.disk);
            for store in &stores.all {
                stores.put(store, store.length, disk, &(0..u64::MAX));
            }
        }
    }

    /// A sync of these bytes fails.
    pub fn fail_sync(&mut self, from: u64, to: u64) {
        self.failures += 1;
        self.give_up(from, to);
    }

    /// These bytes are taken for clean, and are not on the disk.
    pub fn give_up(&mut self, from: u64, to: u64) {
        self.given_up.extend(from / PAGE..to.div_ceil(PAGE));
    }

    /// A possible state of the disk: of each page some of its stores, and of the last one some bytes. A page that was
    /// being written when the power failed has a moment for each of its sectors.
    pub fn after_power_loss(&self, random: &mut dyn FnMut(u64) -> u64) -> Arc<Vec<u8>> {
        let mut shared = Arc::clone(&self.disk);
        for (page, stores) in &self.stores {
            let disk = Arc::make_mut(&mut shared);
            let part = if random(4) == 0 { SECTOR } else { PAGE };
            let end = (disk.len() as u64).min((page + 1) * PAGE);
            for from in (page * PAGE..end).step_by(part as usize) {
                let part = from..end.min(from + part);
                let whole = moment(stores.all.len() as u64, random) as usize;
                for store in &stores.all[..whole] {
                    stores.put(store, store.length, disk, &part);
                }
                if let Some(torn) = stores.all.get(whole).filter(|store| !store.word) {
                    let length = random(torn.length as u64 + 1) as usize;
                    stores.put(torn, length, disk, &part);
                }
            }
        }
        shared
    }
}

/// One of `stores` + 1 moments; the first and the last are the likely ones: not written back at all, or just now.
fn moment(stores: u64, random: &mut dyn FnMut(u64) -> u64) -> u64 {
    match random(4) {
        0 => 0,
        1 => stores,
        _ => random(stores + 1),
    }
}
