//! Errors of the disk under a volume: in how many different places it had one lately.
//!
//! A place is a file. A client that reads one bad block a thousand times has met one error, and a
//! disk of which a part cannot be read has as many as there are files there.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hayloft_io::locks;
use hayloft_wire::ids::PoolId;
use tokio::sync::Notify;

/// Places that are remembered; beyond them only the total grows.
const PLACES_MAX: usize = 10_000;
/// Replicas whose neighbours are to be looked at, at most.
const CENTRES_MAX: usize = 256;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct VolumeErrors {
    /// By a hash of the path: when it last had one.
    places: Mutex<HashMap<u64, Instant>>,
    total: AtomicU64,
    /// Replicas with an error, for a search among their neighbours.
    centres: Mutex<VecDeque<(PoolId, i64)>>,
    /// Bad replicas that were told, and until when they are not told again: a search, suspects and
    /// the scanner come across the same ones.
    told: Mutex<HashMap<(PoolId, i64), Instant>>,
    /// Told when there is a new place.
    pub changed: Notify,
    /// The operator was told that the volume ought to be given up.
    pub is_told: AtomicBool,
    /// Its replicas are being looked through.
    pub searching: AtomicBool,
}

impl VolumeErrors {
    /// Takes note of an error at `path`. Gives the places with one within `window`, and whether
    /// this is a new one of them.
    pub fn note(&self, path: &Path, window: Duration) -> (usize, bool) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let now = Instant::now();
        let mut places = locks::lock(&self.places);
        places.retain(|_, at| *at + window > now);
        let room = places.len() < PLACES_MAX;
        let place = hasher.finish();
        let new = match places.get_mut(&place) {
            Some(at) => {
                *at = now;
                false
            }
            None if room => places.insert(place, now).is_none(),
            None => false,
        };
        (places.len(), new)
    }

    /// Places with an error within `window`.
    pub fn places(&self, window: Duration) -> usize {
        if self.total() == 0 {
            return 0;
        }
        let now = Instant::now();
        let mut places = locks::lock(&self.places);
        places.retain(|_, at| *at + window > now);
        places.len()
    }

    /// All errors so far.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// A replica had one: its neighbours are looked at first. The oldest is forgotten for the
    /// newest.
    pub fn add_centre(&self, pool: PoolId, id: i64) {
        let mut centres = locks::lock(&self.centres);
        if centres.iter().any(|known| *known == (pool.clone(), id)) {
            return;
        }
        if centres.len() >= CENTRES_MAX {
            centres.pop_front();
        }
        centres.push_back((pool, id));
    }

    /// Whether a bad replica is to be told now: not if it was told within `pause`. Of too many
    /// some are told again.
    pub fn may_tell(&self, pool: &PoolId, id: i64, pause: Duration) -> bool {
        let now = Instant::now();
        let mut told = locks::lock(&self.told);
        told.retain(|_, until| *until > now);
        let key = (pool.clone(), id);
        if told.contains_key(&key) {
            return false;
        }
        if told.len() < PLACES_MAX {
            told.insert(key, now + pause);
        }
        true
    }

    /// Takes the replicas out that had one since the last call.
    pub fn take_centres(&self) -> VecDeque<(PoolId, i64)> {
        std::mem::take(&mut *locks::lock(&self.centres))
    }
}

/// Errors of the disk under a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskErrors {
    /// Files with one within `hayloft.disk.errors.window`.
    pub places: usize,
    /// All since the start.
    pub total: u64,
    /// All its replicas are being read because of them.
    pub searching: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_counts_once_a_place_and_for_a_while() {
        let errors = VolumeErrors::default();
        let window = Duration::from_secs(3600);
        assert_eq!(errors.note(Path::new("/d/blk_1"), window), (1, true));
        assert_eq!(errors.note(Path::new("/d/blk_1"), window), (1, false));
        assert_eq!(errors.note(Path::new("/d/blk_2"), window), (2, true));
        assert_eq!((errors.places(window), errors.total()), (2, 3));
        assert_eq!(errors.places(Duration::ZERO), 0);
        assert_eq!(errors.places(window), 0, "what is old is forgotten");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let errors = VolumeErrors::default();
        let window = Duration::from_secs(3600);
        let pool = PoolId::new("BP-1-127.0.0.1-1").expect("a pool");
        for n in 0..PLACES_MAX + 10 {
            errors.note(Path::new(&format!("/d/blk_{n}")), window);
            errors.add_centre(pool.clone(), i64::try_from(n).expect("small"));
        }
        assert_eq!(errors.places(window), PLACES_MAX);
        let centres = errors.take_centres();
        assert_eq!(centres.len(), CENTRES_MAX);
        assert_eq!(centres.back().map(|(_, id)| *id), Some(10_009));
        assert!(errors.take_centres().is_empty());
    }
}
