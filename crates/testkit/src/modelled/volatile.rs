//! A volatile cache: what the disk took since the last flush may be lost with the power.
//!
//! A real device answers a write when its cache has it, and keeps it only from the next flush on.
//! Here each write goes to the backing file at once, and the sectors under it are remembered as
//! they were. A flush forgets them; a cut puts a random part of them back. Which part, a seed says.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::pattern::byte_at;

/// What is written whole or not at all, bytes.
pub const SECTOR: u64 = 4096;
/// Sectors in the cache: 128 MiB. Beyond, half of them reach the platter without a flush.
const SECTORS_MAX: usize = 32 << 10;
/// An armed cut comes within so many writes.
const ARMED_MAX: u64 = 64;

/// What the cache had not written yet when the power went, and what of it was lost; in sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Sectors written since the last flush.
    pub unflushed: usize,
    /// Those of them that are again as they were.
    pub lost: usize,
}

/// What a disk says of its power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Whether it has none.
    pub off: bool,
    /// What the last cut took.
    pub last: Lost,
}

#[derive(Debug, Default)]
struct CacheState {
    /// Sectors as they were at the last flush; `None` is zeros.
    before: BTreeMap<u64, Option<Box<[u8]>>>,
    /// After how many more writes the power goes, and the seed of what is lost then.
    armed: Option<(u64, u64)>,
    told: Told,
}

/// The cache of one disk.
#[derive(Debug, Default)]
pub struct Volatile(Mutex<CacheState>);

impl Volatile {
    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the power is off: the disk answers nothing but errors then.
    pub fn is_off(&self) -> bool {
        self.state().told.off
    }

    /// Has `change` change `length` bytes at `offset` of the backing file; it may be lost until the
    /// next flush.
    ///
    /// # Errors
    /// When the power is off, or of reading the backing file, or of `change`.
    pub fn change(
        &self,
        backing: &File,
        (offset, length): (u64, u64),
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.state();
        if state.told.off {
            return Err(io::Error::other("the power is off"));
        }
        let end = offset.saturating_add(length).div_ceil(SECTOR);
        for sector in offset / SECTOR..end {
            if let Entry::Vacant(unknown) = state.before.entry(sector) {
                unknown.insert(read_sector(backing, sector)?);
            }
        }
        change()?;
        if state.before.len() > SECTORS_MAX {
            let mut stays = false;
            state.before.retain(|_, _| {
                stays = !stays;
                stays
            });
        }
        state.wrote(backing)
    }

    /// All that was written until now stays.
    ///
    /// # Errors
    /// When the power is off.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.told.off {
            return Err(io::Error::other("the power is off"));
        }
        state.before.clear();
        Ok(())
    }

    /// Cuts the power. A random part of what was written since the last flush, a half on average
    /// and one sector at least, is as it was before.
    ///
    /// # Errors
    /// Of writing the backing file.
    pub fn cut(&self, backing: &File, seed: u64) -> io::Result<Lost> {
        self.state().cut(backing, seed)
    }

    /// Has the power go in the midst of what is written from now on: after one of the next
    /// [`ARMED_MAX`] writes, by the seed. Between two flushes something is always lost then.
    pub fn arm(&self, seed: u64) {
        let writes = u64::from(byte_at(seed, u64::MAX / 2)) % ARMED_MAX;
        self.state().armed = Some((writes, seed));
    }

    /// The power is back.
    pub fn power_on(&self) {
        self.state().told.off = false;
    }

    /// Whether the power is off, and what the last cut took.
    pub fn told(&self) -> Told {
        self.state().told
    }
}

impl CacheState {
    /// Counts a write; the power goes if it was to go now.
    fn wrote(&mut self, backing: &File) -> io::Result<()> {
        match self.armed {
            Some((0, seed)) => self.cut(backing, seed).map(drop),
            Some((left, seed)) => {
                self.armed = Some((left - 1, seed));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn cut(&mut self, backing: &File, seed: u64) -> io::Result<Lost> {
        self.told.off = true;
        self.armed = None;
        let before = std::mem::take(&mut self.before);
        let mut cut = Lost {
            unflushed: before.len(),
            lost: 0,
        };
        // Of a few sectors chance may spare each: such a cut would show nothing.
        let always = seed % (before.len() as u64).max(1);
        for (number, (sector, was)) in (0..).zip(before) {
            if number != always && byte_at(seed, number).is_multiple_of(2) {
                continue;
            }
            let bytes = was.unwrap_or_else(zeros);
            backing.write_all_at(&bytes, sector * SECTOR)?;
            cut.lost += 1;
        }
        self.told.last = cut;
        Ok(cut)
    }
}

fn zeros() -> Box<[u8]> {
    vec![0; usize::try_from(SECTOR).expect("4 KiB")].into_boxed_slice()
}

fn read_sector(backing: &File, sector: u64) -> io::Result<Option<Box<[u8]>>> {
    let mut bytes = zeros();
    backing.read_exact_at(&mut bytes, sector * SECTOR)?;
    Ok(bytes.iter().any(|byte| *byte != 0).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTORS: u64 = 64;

    fn disk() -> File {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(SECTORS * SECTOR).expect("sized");
        file
    }

    fn write(cache: &Volatile, disk: &File, sector: u64, value: u8) -> io::Result<()> {
        let bytes = vec![value; usize::try_from(SECTOR).expect("4 KiB")];
        let at = (sector * SECTOR, SECTOR);
        cache.change(disk, at, || disk.write_all_at(&bytes, sector * SECTOR))
    }

    fn values(disk: &File) -> Vec<u8> {
        let first = |sector| {
            let mut byte = [0];
            disk.read_exact_at(&mut byte, sector * SECTOR)
                .expect("within the disk");
            byte[0]
        };
        (0..SECTORS).map(first).collect()
    }

    #[test]
    fn a_cut_takes_part_of_what_no_flush_followed_and_nothing_else() {
        let (cache, disk) = (Volatile::default(), disk());
        for sector in 0..SECTORS / 2 {
            write(&cache, &disk, sector, 1).expect("written");
        }
        cache.flush().expect("flushed");
        for sector in SECTORS / 4..SECTORS {
            write(&cache, &disk, sector, 2).expect("written");
            write(&cache, &disk, sector, 3).expect("written again");
        }
        let cut = cache.cut(&disk, 7).expect("cut");
        assert_eq!(cut.unflushed, 48);
        assert!(cut.lost > 0 && cut.lost < cut.unflushed, "{cut:?}");
        let values = values(&disk);
        let (kept, later) = values.split_at(16);
        assert!(kept.iter().all(|value| *value == 1), "{values:?}");
        let again = later.iter().filter(|value| **value == 3).count();
        assert_eq!(again, cut.unflushed - cut.lost);
        // What is not as written last is as it was at the flush: never what came between.
        assert!(later[..16].iter().all(|value| [1, 3].contains(value)));
        assert!(later[16..].iter().all(|value| [0, 3].contains(value)));
    }

    #[test]
    fn something_is_lost_of_ever_so_little() {
        for seed in 0..40 {
            let (cache, disk) = (Volatile::default(), disk());
            for sector in 0..1 + seed % 3 {
                write(&cache, &disk, sector, 1).expect("written");
            }
            assert!(cache.cut(&disk, seed).expect("cut").lost > 0, "{seed}");
        }
    }

    #[test]
    fn the_same_seed_loses_the_same() {
        let lost = |seed| {
            let (cache, disk) = (Volatile::default(), disk());
            for sector in 0..SECTORS {
                write(&cache, &disk, sector, 1).expect("written");
            }
            cache.cut(&disk, seed).expect("cut");
            values(&disk)
        };
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }

    #[test]
    fn nothing_is_taken_while_the_power_is_off() {
        let (cache, disk) = (Volatile::default(), disk());
        cache.cut(&disk, 1).expect("cut");
        assert!(cache.is_off());
        assert!(write(&cache, &disk, 0, 1).is_err());
        assert!(cache.flush().is_err(), "or a sync would be believed");
        cache.power_on();
        write(&cache, &disk, 0, 1).expect("the power is back");
    }

    #[test]
    fn an_armed_cut_comes_in_the_midst_of_writes() {
        let (cache, disk) = (Volatile::default(), disk());
        cache.arm(3);
        assert!(!cache.is_off());
        let taken = (0..=ARMED_MAX).take_while(|n| write(&cache, &disk, n % SECTORS, 1).is_ok());
        let taken = taken.count();
        let Told { off, last } = cache.told();
        assert!(off && taken > 0, "{taken}");
        assert_eq!(last.unflushed, taken, "no flush came between");
    }

    #[test]
    fn the_cache_has_a_size() {
        let (cache, disk) = (Volatile::default(), tempfile::tempfile().expect("a file"));
        let sectors = u64::try_from(SECTORS_MAX).expect("fits") + 1;
        disk.set_len(sectors * SECTOR).expect("sized");
        let all = (0, sectors * SECTOR);
        cache.change(&disk, all, || Ok(())).expect("changed");
        assert!(cache.state().before.len() <= SECTORS_MAX);
    }
}
