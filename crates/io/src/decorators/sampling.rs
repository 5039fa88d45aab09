//! Which operations a meter counts.

use std::sync::atomic::{AtomicU32, Ordering};

/// Which operations are counted; may be changed while they run. Engines can share one.
///
/// Operations on names are counted as soon as anything is: they are few, and each says something
/// about the disk.
#[derive(Debug)]
pub struct Sampling {
    /// Of a hundred reads, writes and syncs.
    percent: AtomicU32,
    seen: AtomicU32,
}

impl Sampling {
    /// Counts `percent` of a hundred reads, writes and syncs; 0 counts nothing, more than 100 are
    /// 100.
    #[must_use]
    pub fn new(percent: u32) -> Self {
        Self {
            percent: AtomicU32::new(percent.min(100)),
            seen: AtomicU32::new(0),
        }
    }

    /// From now on counts `percent` of a hundred.
    pub fn set(&self, percent: u32) {
        self.percent.store(percent.min(100), Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.percent.load(Ordering::Relaxed) > 0
    }

    /// Whether this one is counted: `percent` of each hundred, evenly.
    pub(super) fn takes(&self) -> bool {
        match self.percent.load(Ordering::Relaxed) {
            0 => false,
            100 => true,
            percent => {
                let n = self.seen.fetch_add(1, Ordering::Relaxed) % 100;
                (n + 1) * percent / 100 > n * percent / 100
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_taken_evenly() {
        let sampling = Sampling::new(0);
        for percent in [0, 1, 30, 99, 100, 1000] {
            sampling.set(percent);
            let taken = (0..1000).filter(|_| sampling.takes()).count();
            assert_eq!(taken, percent.min(100) as usize * 10, "of 1000");
            assert_eq!(sampling.is_on(), percent > 0);
        }
    }
}
